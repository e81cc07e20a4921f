"""Gates as CI meets them: over HTTP, and from the command line with its exit codes."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import anyio
import httpx
import pytest

from app.cli import main
from app.gates.service import GateService
from app.runs.model import RunStatus
from app.settings import RunSettings, StoreSettings
from app.store.database import Database
from layers.model import EvalExample, EvalPrediction
from tests.gates import World, example, examples, recorded, world_on
from tests.runs import Scripted, dataset, reached, request, run_service
from tests.service.conftest import Api

NOBODY = "00000000-0000-7000-8000-000000000000"
FLOOR = '[[floors]]\nmetric = "accuracy"\nmin = 0.8\n'
FALL = "[[regressions]]\ntolerated = 0.02\n"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/store.db"))
    yield opened
    await opened.close()


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    async with world_on(database) as made:
        yield made


@pytest.fixture
async def http(world: World, api: Api) -> AsyncIterator[httpx.AsyncClient]:
    async with api(runs=world.runs, gates=world.gates, database=world.database) as client:
        yield client


async def gate(http: httpx.AsyncClient, run: str, policy: str, **body: Any) -> dict[str, Any]:
    response = await http.post(f"/runs/{run}/gate", json={"policy": policy, **body})
    assert response.status_code == 200, response.text
    return response.json()


def by_name(verdict: dict[str, Any]) -> dict[str, Any]:
    return {rule["name"]: rule for rule in verdict["rules"]}


# --- over HTTP --------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_an_operator_learns_whether_a_new_prompt_may_go_out(world: World, http: httpx.AsyncClient) -> None:
    """Submit, make it the baseline, submit again, gate: one verdict that CI can act on."""
    good, bad = await world.run(examples(400, wrong=range(20))), await world.run(examples(400, wrong=range(70)))
    assert (await http.put("/baselines/production", json={"run_id": good})).status_code == 200
    policy = 'baseline = "production"\n' + FLOOR + FALL + '[[regressions]]\nlabel = "*"\ntolerated = 0.02\n'
    verdict = await gate(http, bad, policy)
    assert (verdict["verdict"], verdict["run_id"], verdict["baseline_run_id"]) == ("BLOCK", bad, good)
    rules = by_name(verdict)
    assert rules["regression"]["status"] == rules["regression of high"]["status"] == "BLOCK"
    assert "larger than tolerated" in rules["regression"]["reason"]
    assert verdict["comparison"]["strict"]["broke"] == 50
    assert (await gate(http, good, FLOOR))["verdict"] == "PASS"


@pytest.mark.anyio
async def test_a_comparison_is_answered_with_all_its_parts(world: World, http: httpx.AsyncClient) -> None:
    one, other = await world.run(examples(80, wrong=[1, 2])), await world.run(examples(80, wrong=range(3, 12)))
    query = {"baseline": one, "slice": ["/input/kind", "/input/none"], "alpha": "0.1"}
    made = (await http.get(f"/runs/{other}/comparison", params=query)).json()
    assert (made["run_id"], made["baseline_run_id"], made["alpha"]) == (other, one, 0.1)
    assert (made["strict"]["corrected"], made["strict"]["broke"]) == (2, 9)
    assert made["binary"]["broke"] == 9
    assert [cut["path"] for cut in made["slices"]] == ["/input/kind", "/input/none"]
    assert {row["label"] for row in made["per_label"]} == {"low", "high"}
    assert 0 < made["sequential"]["p_value"] <= 1


@pytest.mark.anyio
async def test_a_comparison_may_be_looked_at_while_a_run_goes_on(database: Database) -> None:
    """Pairs come in as both have them; the rest is pending, and the largest e-value is kept."""
    go, half = anyio.Event(), anyio.Event()

    async def slow(asked: EvalExample) -> EvalPrediction:
        if asked.metadata.get("held") and int((asked.id or "e0")[1:]) >= 40:
            half.set()
            await go.wait()
        return await recorded(asked)

    settings = RunSettings(chunk_size=40)
    async with run_service(database, Scripted(slow).as_system(), settings) as runs:
        world = World(runs, GateService(database), database)
        before = await world.run(examples(80))
        rows = [one.model_copy(update={"metadata": {"held": True}}) for one in examples(80, wrong=range(20))]
        run = await runs.submit(request(), dataset(1).model_copy(update={"examples": tuple(rows)}))
        with anyio.fail_after(20):
            await half.wait()
            while (await runs.get(run.run_id)).progress.n_scored < 40:  # noqa: ASYNC110 - as a client has to
                await anyio.sleep(0.005)
        seen = await world.gates.compare(run.run_id, before)
        assert seen.pairs.n_pending == 40
        assert (seen.strict.n, seen.strict.broke, seen.sequential.decided) == (40, 20, True)
        go.set()
        await reached(runs, run.run_id, RunStatus.SUCCEEDED)
        after = await world.gates.compare(run.run_id, before)
        assert after.pairs.n_pending == 0
        assert after.sequential.peak_log >= seen.sequential.peak_log


@pytest.mark.anyio
async def test_failed_and_missing_examples_block(world: World, http: httpx.AsyncClient) -> None:
    rows = [*examples(100), example("f1", "low", None), example("f2", "low", None)]
    before, after = await world.run(rows), await world.run(rows[10:])
    verdict = await gate(http, after, "max_failed_share = 0.01\n" + FLOOR, baseline=before)
    rules = by_name(verdict)
    assert (verdict["verdict"], rules["failed examples"]["status"]) == ("BLOCK", "BLOCK")
    assert (rules["examples of the baseline"]["status"], rules["examples of the baseline"]["observed"]) == ("BLOCK", 10)
    lenient = "max_failed_share = 0.05\nmax_missing = 10\n" + FLOOR
    assert (await gate(http, after, lenient, baseline=before))["verdict"] == "PASS"


@pytest.mark.anyio
async def test_the_judges_coverage_is_read_from_the_records(world: World, http: httpx.AsyncClient) -> None:
    """The fallback is no judge, and a failed example was seen by none."""
    rows = [example(f"e{n}", "low", "low", metadata={"instrument_path": "ollama"}) for n in range(90)]
    rows += [example(f"f{n}", "low", "low", metadata={"instrument_path": "heuristics_fallback"}) for n in range(9)]
    run = await world.run([*rows, example("g", "low", None)])
    policy = "min_judge_coverage = {}\nmax_failed_share = 0.5\n"
    rule = by_name(await gate(http, run, policy.format(0.9)))["judge coverage"]
    assert (rule["status"], rule["observed"], rule["n"]) == ("PASS", 0.9, 100)
    assert (await gate(http, run, policy.format(0.95)))["verdict"] == "BLOCK"
    plain = await world.run(examples(20))
    assert (await gate(http, plain, policy.format(0.1)))["verdict"] == "MISSING"


@pytest.mark.anyio
@pytest.mark.parametrize("scored", [0, 10], ids=["nothing scored", "some scored"])
async def test_a_failed_run_never_becomes_a_baseline(world: World, http: httpx.AsyncClient, scored: int) -> None:
    """Neither by name nor for one comparison of a gate."""
    failed = await world.run([example(f"e{n}", "low", "low" if n < scored else None) for n in range(30)])
    assert (await world.runs.get(failed)).status is not RunStatus.SUCCEEDED
    response = await http.put("/baselines/main", json={"run_id": failed})
    assert (response.status_code, response.json()["type"]) == (409, "/problems/conflict")
    assert (await http.get("/baselines/main")).status_code == 404
    good = await world.run(examples(20))
    response = await http.post(f"/runs/{good}/gate", json={"policy": FALL, "baseline": failed})
    assert response.status_code == 409
    looked = (await http.get(f"/runs/{good}/comparison", params={"baseline": failed})).json()
    assert looked["warnings"] == [f"the baseline {failed} is failed"]
    assert (await gate(http, failed, FLOOR))["verdict"] == "BLOCK"


@pytest.mark.anyio
async def test_a_baseline_that_is_not_set_yet_leaves_regressions_missing(world: World, http: httpx.AsyncClient) -> None:
    """The first release has nothing to compare with; asking for one by name that is not there is an error."""
    run = await world.run(examples(100))
    verdict = await gate(http, run, 'baseline = "main"\n' + FLOOR + FALL)
    assert (verdict["verdict"], verdict["baseline_run_id"], verdict["comparison"]) == ("MISSING", None, None)
    assert (await http.post(f"/runs/{run}/gate", json={"policy": FALL, "baseline": "main"})).status_code == 404


@pytest.mark.anyio
async def test_baselines_are_listed_and_shown(world: World, http: httpx.AsyncClient) -> None:
    run = await world.run(examples(20))
    for name in ("b", "a"):
        assert (await http.put(f"/baselines/{name}", json={"run_id": run})).json()["history"][0]["run_id"] == run
    page = (await http.get("/baselines", params={"limit": 1})).json()
    assert [item["name"] for item in page["items"]] == ["a"]
    page = (await http.get("/baselines", params={"cursor": page["next_cursor"]})).json()
    assert ([item["name"] for item in page["items"]], page["next_cursor"]) == (["b"], None)


@pytest.mark.anyio
async def test_decisions_are_kept_for_whoever_asks_later(world: World, http: httpx.AsyncClient) -> None:
    run = await world.run(examples(50))
    made = await gate(http, run, FLOOR)
    assert (await http.get(f"/runs/{run}/gate")).json() == {"items": [made], "next_cursor": None}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind"),
    [
        ("GET", f"/runs/{NOBODY}/comparison?baseline={NOBODY}", None, 404, "not-found"),
        ("GET", f"/runs/{NOBODY}/comparison", None, 400, "bad-request"),
        ("GET", f"/runs/{NOBODY}/comparison?baseline=a/b", None, 400, "bad-request"),
        ("GET", f"/runs/{NOBODY}/comparison?baseline=a&alpha=0.9", None, 400, "bad-request"),
        ("GET", f"/runs/{NOBODY}/comparison?baseline=a&alpha=nan", None, 400, "bad-request"),
        ("GET", f"/runs/{NOBODY}/comparison?baseline=a&slice=input", None, 400, "bad-request"),
        ("GET", f"/runs/{NOBODY}/comparison?baseline=a{'&slice=/input/a' * 9}", None, 400, "bad-request"),
        ("POST", f"/runs/{NOBODY}/gate", {"policy": FLOOR}, 404, "not-found"),
        ("POST", f"/runs/{NOBODY}/gate", {"policy": "x"}, 422, "invalid-policy"),
        ("POST", f"/runs/{NOBODY}/gate", {"policy": FLOOR, "baseline": "a\u0000"}, 422, "unprocessable"),
        ("POST", f"/runs/{NOBODY}/gate", {"policy": FLOOR, "force": True}, 422, "unprocessable"),
        ("POST", f"/runs/{NOBODY}/gate", {}, 422, "unprocessable"),
        ("GET", f"/runs/{NOBODY}/gate", None, 404, "not-found"),
        ("PUT", "/baselines/main", {"run_id": NOBODY}, 404, "not-found"),
        ("PUT", "/baselines/main", {"run_id": "latest"}, 422, "unprocessable"),
        ("PUT", "/baselines/%00", {"run_id": NOBODY}, 404, "not-found"),
        ("GET", "/baselines/none", None, 404, "not-found"),
        ("GET", "/baselines?cursor=x", None, 400, "bad-request"),
        ("DELETE", "/baselines/main", None, 405, "method-not-allowed"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_its_kind(http, method, path, body, status, kind) -> None:
    response = await http.request(method, path, json=body)
    assert (response.status_code, response.json()["type"]) == (status, f"/problems/{kind}")


@pytest.mark.anyio
async def test_a_run_is_not_held_against_itself(world: World, http: httpx.AsyncClient) -> None:
    run = await world.run(examples(60))
    response = await http.post(f"/runs/{run}/gate", json={"policy": FALL, "baseline": run})
    assert (response.status_code, "itself" in response.json()["detail"]) == (422, True)
    assert (await http.get(f"/runs/{run}/gate")).json()["items"] == []


@pytest.mark.anyio
async def test_a_bad_policy_names_its_line_and_key(world: World, http: httpx.AsyncClient) -> None:
    run = await world.run(examples(20))
    response = await http.post(f"/runs/{run}/gate", json={"policy": FLOOR + "mni = 1\n"})
    (error,) = response.json()["errors"]
    assert (response.json()["type"], error["pointer"]) == ("/problems/invalid-policy", "/floors/0/mni")
    assert "line 4" in error["message"]


@pytest.mark.anyio
async def test_a_report_is_cut_and_read_in_two_labels_on_demand(world: World, http: httpx.AsyncClient) -> None:
    run = await world.run(examples(40, wrong=range(10)))
    plain = (await http.get(f"/runs/{run}/report")).json()
    assert (plain["slices"], plain["binary"], plain["calibration"]["n"]) == ([], None, 40)
    cut = (await http.get(f"/runs/{run}/report?slice=/input/kind&slice=/metadata/x&binary=true")).json()
    assert [one["path"] for one in cut["slices"]] == ["/input/kind", "/metadata/x"]
    assert cut["binary"]["accuracy"] == 0.75
    assert (await http.get(f"/runs/{run}/report?slice=/expected_label")).status_code == 400


# --- from the command line --------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Put runs into the store that the command line will open; their ids."""
    url = f"sqlite:///{tmp_path}/store.db"
    monkeypatch.setenv("ARBITER_DATABASE_URL", url)
    monkeypatch.chdir(tmp_path)

    async def fill(datasets: tuple[list[EvalExample], ...]) -> list[str]:
        database = await Database.open(StoreSettings(url=url))
        async with world_on(database) as world:
            ids = [await world.run(rows) for rows in datasets]
        await database.close()
        return ids

    return lambda *datasets: anyio.run(fill, datasets)


def exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def policy_file(text: str) -> str:
    Path("gate.toml").write_text(text, encoding="utf-8")
    return "gate.toml"


@pytest.mark.parametrize(
    ("wrong", "policy", "code"),
    [
        (0, FLOOR, 0),
        (2, FLOOR + "severity = 'warn'\n", 0),
        (60, FLOOR, 1),
        (14, FLOOR, 2),
        (0, FALL, 2),
        (0, "floors = 3\n", 3),
        (0, "", 3),
    ],
)
def test_the_exit_code_is_the_verdict(stored, capsys, wrong: int, policy: str, code: int) -> None:
    """0 pass or warn, 1 block, 2 inconclusive or missing, 3 could not run."""
    (run,) = stored(examples(100, wrong=range(wrong)))
    assert exit_code("gate", run, "--policy", policy_file(policy)) == code
    words = {0: ("PASS", "WARN"), 1: ("BLOCK",), 2: ("INCONCLUSIVE", "MISSING"), 3: ("",)}[code]
    text = capsys.readouterr().out
    assert any(word in text for word in words)


@pytest.mark.parametrize(
    "arguments",
    [
        ("gate",),
        ("gate", NOBODY),
        ("gate", NOBODY, "--policy", "gate.toml", "--nonsense"),
        ("gate", NOBODY, "--policy", "nowhere.toml"),
        ("gate", NOBODY, "--policy", "."),
        ("gate", NOBODY, "--policy", "gate.toml"),
        ("gate", "../x", "--policy", "gate.toml"),
        ("gate", NOBODY, "--policy", "gate.toml", "--server", "http://127.0.0.1:9"),
        ("gate", NOBODY, "--policy", "gate.toml", "--server", "nonsense"),
        ("compare", NOBODY),
        ("compare", NOBODY, "--baseline", NOBODY),
        ("compare", NOBODY, "--baseline", NOBODY, "--alpha", "7"),
    ],
)
def test_what_could_not_run_is_never_taken_for_a_verdict(stored, capsys, arguments) -> None:
    policy_file(FLOOR)
    assert exit_code(*arguments) == 3
    assert capsys.readouterr().out == ""


def test_a_run_as_its_own_baseline_is_wrong_usage(stored, capsys) -> None:
    """Nothing can fall behind itself, so a gate that lets it pass would have checked nothing."""
    (run,) = stored(examples(400))
    assert exit_code("gate", run, "--policy", policy_file(FALL), "--baseline", run) == 3
    told = capsys.readouterr()
    assert (told.out, "itself" in told.err) == ("", True)


def test_wrong_settings_are_no_verdict_either(stored, monkeypatch, capsys) -> None:
    monkeypatch.setenv("ARBITER_DATABASE_URL", "nonsense")
    assert exit_code("gate", NOBODY, "--policy", policy_file(FLOOR)) == 3
    assert "ARBITER_DATABASE_URL" in capsys.readouterr().err


def test_a_verdict_is_written_for_machines_and_for_people(stored, capsys) -> None:
    before, after = stored(examples(300, wrong=range(5)), examples(300, wrong=range(60)))
    command = ["gate", after, "--baseline", before, "--policy", policy_file(FLOOR + FALL), "--json"]
    assert exit_code(*command, "--junit", "gate.xml", "--markdown", "gate.md") == 1
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["verdict"], verdict["baseline_run_id"]) == ("BLOCK", before)
    suite = ET.fromstring(Path("gate.xml").read_text(encoding="utf-8")).find("testsuite")  # noqa: S314 - our own
    assert int(suite.get("tests")) == len(verdict["rules"])
    assert "55 broke" in Path("gate.md").read_text(encoding="utf-8")
    assert exit_code(*command[:-1], "--markdown", "no/such/folder.md") == 3


def test_two_runs_are_compared_in_text_and_json(stored, capsys) -> None:
    before, after = stored(examples(100, wrong=range(5)), examples(100, wrong=range(3, 30)))
    assert exit_code("compare", after, "--baseline", before, "--slice", "/input/kind") == 0
    text = capsys.readouterr().out
    assert "3 corrected, 25 broke" in text
    assert "/input/kind = a" in text
    assert exit_code("compare", after, "--baseline", before, "--json") == 0
    assert json.loads(capsys.readouterr().out)["strict"]["verdict"] == "worse"


def test_watching_ends_when_it_is_decided(stored, capsys) -> None:
    before, after = stored(examples(100), examples(100, wrong=range(30)))
    assert exit_code("compare", after, "--baseline", before, "--watch") == 0
    assert "decided" in capsys.readouterr().err


def test_hostile_ids_reach_the_terminal_as_text(stored, capsys) -> None:
    """No escape sequence and no markup of an example's id is acted on."""
    rows = [example("\x1b[31m[bold]red", "low", "low"), *examples(5)]
    worse = [example("\x1b[31m[bold]red", "low", "high"), *examples(5)]
    before, after = stored(rows, worse)
    assert exit_code("compare", after, "--baseline", before) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "[bold]red" in text
