"""A critic over the whole service: runs with and without it, its report, its trail, and what is refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from typer.testing import CliRunner

from app.cli.commands import app as command_line
from app.critic.replay import replay
from app.settings import (
    CriticSettings,
    NetworkSettings,
    OllamaJudgeSettings,
    Settings,
    StoreSettings,
    TelemetrySettings,
)
from app.wiring import service_app
from tests.critics import TEXT, accept, challenge, labels
from tests.fakes import client_of
from tests.standins import Call, Remote, Wire, nobody, ollama, playing
from tests.unit.test_critic_config import written

pytestmark = pytest.mark.anyio

Speak = Callable[[str], str]
CASE = '"id":"'


def speak(prompt: str) -> str:
    """Odd rows are refunds that the classifier takes for fees at first; the critic sees it where triage noted a fee."""
    case = int(prompt.rpartition(CASE)[2].partition('"')[0][1:]) if CASE in prompt else 0
    odd = case % 2 == 1
    if "note signals" in prompt:
        return json.dumps({"signals": {"mentions_fee": odd}})
    if "You review labels" in prompt:
        again = "An earlier challenge, after which the classifier looked again: null" not in prompt
        return challenge(rule="C2") if odd and not again else accept()
    return labels("refund") if odd and "You answered this case before" in prompt else labels("fee")


@asynccontextmanager
async def serving(folder: Path, host: str) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(
        store=StoreSettings(url=f"sqlite:///{folder}/critic.db"),
        telemetry=TelemetrySettings(enabled=False),
        ollama=OllamaJudgeSettings(host=host, timeout=5),
        network=NetworkSettings(connect_timeout=0.5),
        critic=CriticSettings(classifiers=(written(folder),)),
    )
    async with client_of(service_app(settings), timeout=30) as client:
        yield client


@asynccontextmanager
async def model(say: Speak = speak) -> AsyncIterator[Remote]:
    async def answer(call: Call, wire: Wire) -> None:
        text = say(call.body["messages"][0]["content"])
        await wire.send(200, json.dumps(ollama(text)).encode())

    async with playing(answer) as remote:
        yield remote


def rows(size: int, prefix: str = "e") -> list[dict[str, Any]]:
    return [
        {
            "id": f"{prefix}{number}",
            "input": {"id": f"{prefix}{number}"},
            "expected_label": "refund" if number % 2 else "fee",
            "expected_labels": {"domain": "cards"},
        }
        for number in range(size)
    ]


async def finished(
    http: httpx.AsyncClient, examples: list[dict[str, Any]], pipeline: str = "critic", *, patience: float = 30
) -> dict[str, Any]:
    body = {"system": "tickets", "dataset": {"examples": examples}, "options": {"pipeline": pipeline}}
    response = await http.post("/runs", json=body)
    assert response.status_code == 202, response.text
    run: dict[str, Any] = response.json()
    with anyio.fail_after(patience):
        while run["status"] not in {"succeeded", "failed"}:
            await anyio.sleep(0.02)
            run = (await http.get(f"/runs/{run['run_id']}")).json()
    return run


async def test_a_run_under_a_critic_is_reported_and_its_trail_replays_to_the_same_report(tmp_path: Path) -> None:
    async with model() as remote, serving(tmp_path, remote.url) as http:
        main = await finished(http, rows(16))
        assert main["status"] == "succeeded"
        control, arm = await finished(http, rows(8, "c")), await finished(http, rows(8, "c"), "offline")
        path = f"/runs/{main['run_id']}/critic"
        params = {"control_run_id": control["run_id"], "baseline_run_id": arm["run_id"]}
        report = (await http.get(path, params=params)).json()
        category = report["axes"][0]
        assert (category["corrected"]["count"], category["broke"]["count"]) == (8, 0)
        assert (category["accuracy_before"], category["accuracy_after"]) == (0.5, 1.0)
        assert report["states"] == {"accepted": 8, "fixed": 8, "contested": 0, "fail_closed": 0, "salvaged": 0}
        assert report["calls_per_row"] == 4.0
        assert report["challenges_admitted"]["red_flag"] is True
        assert report["control"]["n_paired"] == 8
        assert report["outcome"] == "INCONCLUSIVE"  # it works, and challenges far more than was declared
        trails = [await http.get(f"/runs/{run['run_id']}/critic/audit") for run in (main, control, arm)]
        lines = [trail.content.splitlines() for trail in trails]
        told = replay(lines[0], control=lines[1], baseline=lines[2])
        assert json.loads(told.model_dump_json()) == report
        metrics = (await http.get(f"/runs/{main['run_id']}/report")).json()
        assert metrics["accuracy"] == 1.0
        record = (await http.get(f"/runs/{main['run_id']}/records?limit=2")).json()["items"][1]
        assert record["prediction"]["metadata"]["state"] == "fixed"
        for refused, pointer in (
            ({"control_run_id": control["run_id"]}, "/control_run_id"),
            ({"control_run_id": main["run_id"], "baseline_run_id": arm["run_id"]}, "/control_run_id"),
            ({"control_run_id": arm["run_id"], "baseline_run_id": arm["run_id"]}, "/control_run_id"),
        ):
            answer = await http.get(path, params=refused)
            assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
        assert (await http.get(f"/runs/{arm['run_id']}/critic")).status_code == 422
        trail = tmp_path / "audit.ndjson"
        trail.write_bytes(trails[0].content)
    command = await anyio.to_thread.run_sync(lambda: CliRunner().invoke(command_line, ["critic", "replay", str(trail)]))
    assert command.exit_code == 2
    assert command.stdout.startswith("outcome: INCONCLUSIVE")
    trail.write_bytes(trails[0].content.replace(b'"fixed"', b'"accepted"'))
    command = await anyio.to_thread.run_sync(lambda: CliRunner().invoke(command_line, ["critic", "replay", str(trail)]))
    assert command.exit_code == 3


async def test_the_arm_alone_asks_anew_and_with_the_very_same_question(tmp_path: Path) -> None:
    async with model() as remote, serving(tmp_path, remote.url) as http:
        await finished(http, rows(2))
        before = len(remote.calls)
        await finished(http, rows(2), "offline")
        prompts = [call.body["messages"][0]["content"] for call in remote.calls]
        alone = set(prompts[before:])
        assert alone == {TEXT.replace("{{input}}", f'{{"id":"e{number}"}}') for number in range(2)}
        assert alone <= set(prompts[:before])
        assert len(prompts) == before + 2


async def test_with_every_model_down_no_row_gets_a_label(tmp_path: Path) -> None:
    with nobody() as url:
        async with serving(tmp_path, url) as http:
            run = await finished(http, rows(3))
            assert (run["status"], run["progress"]["n_scored"]) == ("failed", 0)
            report = (await http.get(f"/runs/{run['run_id']}/critic")).json()
            assert (report["outcome"], report["calls_per_row"]) == ("INCONCLUSIVE", None)
            assert sum(report["states"].values()) == 0
            audit = (await http.get(f"/runs/{run['run_id']}/critic/audit")).text
            assert '"event":"verdict"' not in audit


@pytest.mark.parametrize(
    ("request_", "pointer"),
    [
        ({"system": "recorded", "options": {"pipeline": "critic"}}, "/options/pipeline"),
        ({"system": "tickets", "options": {"pipeline": "critic", "repeats": 2}}, "/options/repeats"),
        ({"system": "tickets", "options": {"pipeline": "critic", "driver": "x"}}, "/options/driver"),
    ],
)
async def test_a_run_that_can_have_no_critic_is_refused(tmp_path: Path, request_: dict[str, Any], pointer: str) -> None:
    async with model() as remote, serving(tmp_path, remote.url) as http:
        answer = await http.post("/runs", json={**request_, "dataset": {"examples": rows(1)}})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


async def test_runs_that_are_no_classifiers_have_no_trail(tmp_path: Path) -> None:
    async with model() as remote, serving(tmp_path, remote.url) as http:
        body = {"system": "recorded", "dataset": {"examples": rows(1)}}
        run = (await http.post("/runs", json=body)).json()["run_id"]
        for run_id in (run, "01900000-0000-7000-8000-000000000000"):
            for path in ("critic", "critic/audit"):
                assert (await http.get(f"/runs/{run_id}/{path}")).status_code == 404
