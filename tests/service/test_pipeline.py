"""`/evaluate` through the whole service: who is asked, what stands behind the answer, and that it can be checked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from starlette.responses import PlainTextResponse

from app import verify
from app.demo.sentinel import build_sentinel
from app.settings import EmbedderSettings, EvaluationSettings, Settings, VectorSettings
from layers.compliance import Recorded, compliance, summary
from tests.adapters.peers import serving
from tests.standins import (
    CONFIRMED,
    FLAGGED,
    Call,
    Remote,
    Wire,
    embeddings,
    gemini,
    gemini_at,
    neighbour,
    ollama,
    ollama_at,
    playing,
    says,
    sentinel_at,
    service,
    settings_for,
    upstash,
    upstash_at,
    verdict,
)

pytestmark = pytest.mark.anyio

COSTLY = ("disagreement", "consistency", "judge")
AGREEING = {"a": lambda _: 3, "b": lambda _: 3, "c": lambda _: 4}  # points of a rule: each of them says `high`
CLEAN = {"id": "c", "system": "generic", "raw_output": {"a": 1}, "label": "low", "confidence": 0.9}
UNHEARD_OF = {**FLAGGED, "label": "severe"}


@pytest.fixture
async def judge() -> AsyncIterator[Remote]:
    async with playing(says(ollama(CONFIRMED))) as remote:
        yield remote


@pytest.fixture
async def world(judge: Remote, tmp_path: Path) -> AsyncIterator[Settings]:
    """Settings with every remote there is, all of them well."""
    async with playing(embeddings()) as embedder, playing(upstash([neighbour("txn_7", "high")])) as index:
        with serving(build_sentinel(opinions=AGREEING)) as sentinel:
            yield settings_for(
                tmp_path,
                sentinel=sentinel_at(sentinel, drivers=tuple(AGREEING)),
                ollama=ollama_at(judge.url),
                embedder=EmbedderSettings(ollama_url=embedder.url),
                vectors=upstash_at(index.url),
            )


async def bundle_of(http: httpx.AsyncClient, answer: dict[str, Any]) -> dict[str, Any]:
    path = f"/evaluations/{answer['evaluation_id']}/provenance"
    return (await http.get(path, params={"revision": answer["revision"]})).json()


def stages(bundle: dict[str, Any]) -> dict[str, Any]:
    return {stage["name"]: json.loads(stage["payload"]) for stage in bundle["stages"]}


def statuses(answer: dict[str, Any]) -> dict[str, str]:
    return {name: report["reason"] or report["status"] for name, report in answer["layers"].items()}


def check(bundle: dict[str, Any]) -> None:
    """Raises `verify.Differs` when something in it is not as it was recorded."""
    verify.verify(bundle, lambda *_: None)


# --- everything is there ----------------------------------------------------------------------------------------------


async def test_a_flagged_item_is_looked_at_by_every_layer_and_says_who_said_what(world: Settings) -> None:
    async with service(world) as http:
        answer = (await http.post("/evaluate", json=FLAGGED)).json()
    assert set(statuses(answer).values()) == {"scored"}
    assert (answer["disposition"], answer["decision"], answer["degraded"]) == ("pass", "judge_confirms", False)
    assert answer["disagreement_result"]["labels_by_provider"] == {"a": "high", "b": "high", "c": "high"}
    assert answer["disagreement_result"]["agreed"] is True
    assert answer["consistency_result"]["neighbors"][0]["id"] == "txn_7"
    assert (answer["consistency_result"]["consistent"], answer["consistency_result"]["embedder"][:6]) == (
        True,
        "ollama",
    )
    (claim,) = answer["judge_verdict"]["claims"]
    assert (claim["rung"], claim["evidence_ids"]) == ("EVIDENCE-WARRANTED", ["E7"])
    assert (answer["assurance"], answer["instrument_path"]) == ("EVIDENCE-WARRANTED", "ollama")


async def test_every_stage_stands_behind_it_and_anyone_can_check(world: Settings, tmp_path: Path) -> None:
    """The bundle holds what was asked, how, under which contracts; the checker needs nothing else."""
    async with service(world) as http:
        answer = (await http.post("/evaluate", json=FLAGGED)).json()
        bundle = await bundle_of(http, answer)
    assert [stage["name"] for stage in bundle["stages"]] == [
        "input", "preflight", "retrieval_plan", "neighbors", "evidence", "prompt", "model_output", "verification",
        "verdict",
    ]  # fmt: skip
    held = stages(bundle)
    (ahead,) = held["preflight"]
    assert {"status", "concerns", "answer_contract", "prompt_contract", "evidence_contract", "policy"} <= set(ahead)
    assert ahead["prompt_contract"] == answer["judge_verdict"]["prompt"]
    assert ahead["policy"]["transactions"]["threshold"] == 0.9
    (plan,) = held["retrieval_plan"]
    assert plan["queries"] == ["Amount: very_large USD | Type: N/A | Category: unknown | Merchant: Corner Books | "
                               "Time: N/A | Message: N/A"]  # fmt: skip
    assert (plan["namespace"], plan["top_k"], plan["over_fetch"], plan["filter"]) == ("transactions", 5, 7, None)
    (numbered,) = held["evidence"]
    roles = [item["role"] for item in numbered["items"]]
    assert [roles.count(role) for role in ("provider", "neighbor", "flag")] == [3, 1, 3]
    assert held["verdict"] == {**answer, "provenance_root": None, "log_index": None}
    file = tmp_path / "bundle.json"
    file.write_text(json.dumps(bundle))
    assert verify.main([str(file)]) == 0
    file.write_text(json.dumps(bundle).replace("Corner Books", "Corner Boots"))
    assert verify.main([str(file)]) == 1


async def test_the_compliance_row_is_what_the_bundle_gives(world: Settings) -> None:
    """Whoever holds the bundle computes the same row again."""
    async with service(world) as http:
        answer = (await http.post("/evaluate", json=FLAGGED)).json()
        held = stages(await bundle_of(http, answer))
        unflagged = (await http.post("/evaluate", json=CLEAN)).json()
    row = summary(compliance(Recorded(held, held["verdict"])))
    assert answer["compliance"] == row == {"held": [1, 2, 3, 4, 5, 6, 7, 9], "not_applicable": [8, 10], "violated": []}
    assert unflagged["compliance"]["held"] == [4, 9]


async def test_anchors_of_a_narrative_point_into_the_map_of_the_record(world: Settings) -> None:
    """Numbered before anybody is asked, and only where a claim was found."""
    calm = {**FLAGGED, "raw_output": {**FLAGGED["raw_output"], "confidence": 0.9}}
    async with service(world) as http:
        for body in (FLAGGED, calm):
            answer = (await http.post("/evaluate", json=body)).json()
            held = stages(await bundle_of(http, answer))
            pointers = {item["id"]: item["pointer"] for item in held["evidence"][-1]["items"]}
            anchors = answer["narrative_grounding_result"]["anchors"]
            found = {each["text"]: [pointers[one] for one in each["evidence_ids"]] for each in anchors}
            assert found == {"9,900 USD": ["/amount"], "AML-BSA-001": ["/policy_refs/0"]}
        clean = (await http.post("/evaluate", json=CLEAN)).json()
        assert set(stages(await bundle_of(http, clean))) == {"input", "preflight", "verdict"}


# --- preflight --------------------------------------------------------------------------------------------------------


async def test_a_refused_question_is_put_to_nobody_and_goes_to_a_person(judge: Remote, world: Settings) -> None:
    """No costly layer runs, and the tree has three stages that can be checked."""
    async with service(world) as http:
        answer = (await http.post("/evaluate", json=UNHEARD_OF)).json()
        bundle = await bundle_of(http, answer)
    assert (answer["disposition"], answer["decision"]) == ("review", "question_refused")
    assert (answer["escalated"], answer["degraded"], answer["inclusion_probability"]) == (False, False, 0)
    assert answer["escalation_reasons"][-1] == "preflight:false_premise"
    assert {statuses(answer)[name] for name in COSTLY} == {"not_selected"}
    assert judge.calls == []
    assert [stage["name"] for stage in bundle["stages"]] == ["input", "preflight", "verdict"]
    assert stages(bundle)["preflight"][0]["status"] == "refused"
    check(bundle)


async def test_a_refused_question_retrieves_nothing_either(tmp_path: Path) -> None:
    """Preflight comes before stage 3 of grounding: the open claim stays unknown."""
    with serving(app := build_sentinel()) as sentinel:
        async with service(settings_for(tmp_path, sentinel=sentinel_at(sentinel))) as http:
            body = {**UNHEARD_OF, "raw_output": {**FLAGGED["raw_output"], "policy_refs": []}}
            refused = (await http.post("/evaluate", json=body)).json()
            assert app.state.sentinel.calls == []
            asked = (await http.post("/evaluate", json={**body, "label": "high"})).json()
            assert ("search-policies" in {name for name, _ in app.state.sentinel.calls}) is True
            held = stages(await bundle_of(http, asked))
    assert refused["narrative_grounding_result"]["stage"] == 2
    assert {each["status"] for each in refused["narrative_grounding_result"]["anchors"]} == {
        "grounded_by_reference",
        "unknown",
    }
    assert asked["narrative_grounding_result"]["stage"] == 3
    plan = next(each for each in held["retrieval_plan"] if each["layer"] == "narrative_grounding")
    assert (plan["namespace"], plan["threshold"], plan["context_cap"], plan["filter"]) == ("policies", 0.7, 8000, None)


async def test_an_unflagged_item_binds_the_policy_in_force_and_is_asked_nothing(world: Settings) -> None:
    async with service(world) as http:
        answer = (await http.post("/evaluate", json=CLEAN)).json()
        held = stages(await bundle_of(http, answer))
    (ahead,) = held["preflight"]
    assert ahead["status"] == "not_needed"
    assert ahead["policy"]["profile"] == "generic"
    assert "concerns" not in ahead


# --- again ------------------------------------------------------------------------------------------------------------


async def test_a_repeat_of_a_degraded_answer_asks_only_those_who_failed(judge: Remote, world: Settings) -> None:
    """The next revision keeps what the others noted, so that the judge sees what it would have seen."""
    well, judge.answer = judge.answer, says({}, 500)
    async with service(world) as http:
        first = (await http.post("/evaluate", json=FLAGGED)).json()
        judge.answer = well
        second = (await http.post("/evaluate", json=FLAGGED)).json()
        third = (await http.post("/evaluate", json=FLAGGED)).json()
        before, after = stages(await bundle_of(http, first)), stages(await bundle_of(http, second))
        listed = (await http.get(f"/evaluations/{first['evaluation_id']}?revision=1")).json()
    assert (first["revision"], first["degraded"], first["instrument_path"]) == (1, True, "heuristics_fallback")
    assert (second["revision"], second["degraded"], second["instrument_path"]) == (2, False, "ollama")
    assert (third["revision"], third["replayed"], listed["revision"]) == (2, True, 1)
    for name in ("narrative_grounding_result", "disagreement_result", "consistency_result"):
        assert second[name] == first[name]
    for stage in ("retrieval_plan", "neighbors"):
        assert after[stage] == [{**note, "from_revision": 1} for note in before[stage]]
    assert after["evidence"] == before["evidence"]
    assert [note["source"] for note in before["prompt"]] == ["ollama"], "asked, though nothing came back"
    assert second["compliance"]["violated"] == []


async def test_a_panel_that_gave_no_label_has_failed_and_is_asked_again(judge: Remote, tmp_path: Path) -> None:
    """It degrades the answer with its cause, each provider's error is shown, and a repeat mends it."""
    app, sick = build_sentinel(opinions=AGREEING), [True]

    async def sentinel(scope: Any, receive: Any, send: Any) -> None:
        if sick[0] and scope["type"] == "http":
            await PlainTextResponse("", 500)(scope, receive, send)
        else:
            await app(scope, receive, send)

    with serving(sentinel) as url:
        settings = settings_for(tmp_path, sentinel=sentinel_at(url, drivers=("a", "b")), ollama=ollama_at(judge.url))
        async with service(settings) as http:
            first = (await http.post("/evaluate", json=FLAGGED)).json()
            asked = len(judge.calls)
            sick[0] = False
            second = (await http.post("/evaluate", json=FLAGGED)).json()
            held = [stages(await bundle_of(http, each)) for each in (first, second)]
    maps = [each["evidence"][-1]["items"] for each in held]
    assert [[(item["id"], item["pointer"][-1:]) for item in items if item["role"] == "provider"] for items in maps] == [
        [("E14", "a"), ("E15", "b")]
    ] * 2, "what the kept verdict of the judge points to has the same numbers"
    for stage in ("prompt", "verification"):
        assert held[1][stage] == [{**note, "from_revision": 1} for note in held[0][stage]]
    report = first["layers"]["disagreement"]
    assert (report["status"], report["cause"]["kind"], first["degraded"]) == ("failed", "server_error", True)
    assert report["cause"]["dependency"] == "sentinel.a"
    assert "a server_error, b server_error" in report["cause"]["message"]
    shown = first["disagreement_result"]
    assert {name: each["kind"] for name, each in shown["errors_by_provider"].items()} == dict.fromkeys(
        ("a", "b"), "server_error"
    )
    assert (shown["labels_by_provider"], shown["agreed"]) == ({}, None)
    assert (second["revision"], second["layers"]["disagreement"]["status"]) == (2, "scored")
    assert second["disagreement_result"]["labels_by_provider"] == {"a": "high", "b": "high"}
    assert len(judge.calls) == asked, "the judge had answered"
    assert first["compliance"]["violated"] == second["compliance"]["violated"] == []


async def test_where_no_judge_answered_its_layer_says_which_and_why(judge: Remote, world: Settings) -> None:
    """The fallback is no verdict: the layer has ended, and its cause tells what became of each judge."""
    judge.answer = says(ollama("no verdict at all"))
    async with service(world) as http:
        answer = (await http.post("/evaluate", json=FLAGGED)).json()
        judge.answer = says(ollama(CONFIRMED))
        mended = (await http.post("/evaluate", json=FLAGGED)).json()
    report = answer["layers"]["judge"]
    assert (report["status"], answer["instrument_path"], answer["degraded"]) == ("scored", "heuristics_fallback", True)
    assert (report["cause"]["kind"], report["cause"]["message"]) == (
        "malformed",
        "no judge answered: ollama malformed",
    )
    assert (mended["layers"]["judge"]["cause"], mended["degraded"]) == (None, False)


async def test_policies_found_before_are_evidence_for_the_judge_asked_again(tmp_path: Path, judge: Remote) -> None:
    """What stage 3 retrieved for the first revision is on the map of the second."""
    settings = settings_for(tmp_path, ollama=ollama_at(judge.url), vectors=VectorSettings(policies_threshold=0.05))
    body = {**FLAGGED, "raw_output": {**FLAGGED["raw_output"], "policy_refs": []}}
    policy = {"id": "p1", "text": "AML-BSA-001: deposits just below 10,000 USD on one day are structuring."}
    well, judge.answer = judge.answer, says({}, 500)
    async with service(settings) as http:
        await http.post("/index/policies", json={"items": [policy]})
        first = (await http.post("/evaluate", json=body)).json()
        judge.answer = well
        second = (await http.post("/evaluate", json=body)).json()
        held = [stages(await bundle_of(http, each))["evidence"][-1]["items"] for each in (first, second)]
    assert first["narrative_grounding_result"]["stage"] == 3
    assert [[item["pointer"] for item in items if item["role"] == "policy"] for items in held] == [["/policies/p1"]] * 2
    assert '"/policies/p1"' in judge.calls[-1].body["messages"][0]["content"]


async def test_an_item_of_the_sample_is_answered_first_and_looked_at_later(judge: Remote, tmp_path: Path) -> None:
    """The linked record has every layer, its own proof and the chance of being drawn."""
    settings = settings_for(tmp_path, ollama=ollama_at(judge.url), evaluation=EvaluationSettings(audit_rate=1))
    async with service(settings) as http:
        first = (await http.post("/evaluate", json=CLEAN)).json()
        assert judge.calls == []
        assert (first["escalated"], first["inclusion_probability"]) == (False, 1)
        await judge.asked.wait()
        while len(items := (await http.get("/evaluations")).json()["items"]) < 2:
            pass
        audit = next(each for each in items if each["parent_id"] == first["evaluation_id"])
        check(await bundle_of(http, audit))
    assert (audit["escalated"], audit["escalation_reasons"]) == (True, ["audit_sample"])
    assert audit["instrument_path"] == "ollama"


# --- figures ----------------------------------------------------------------------------------------------------------


async def test_the_figures_of_the_judges_come_from_what_is_stored(judge: Remote, world: Settings) -> None:
    """By the newest revision of each evaluation, of one system, since a time; what asked no judge does not count."""
    async with service(world) as http:

        async def figures(**query: str) -> dict[str, Any]:
            return (await http.get("/judge/metrics", params=query)).json()

        none = await figures()
        assert (none["total"], none["pct_scored_by_judge"]) == (0, None)
        await http.post("/evaluate", json=CLEAN)
        for number in range(3):
            await http.post("/evaluate", json={**FLAGGED, "id": f"good-{number}"})
        judge.answer = says(ollama("no verdict at all"))
        body = {**FLAGGED, "id": "bad", "input": {**FLAGGED["input"], "amount": 9901}}
        bad = {**body, "raw_output": {**FLAGGED["raw_output"], "confidence": 0.44}}
        last = (await http.post("/evaluate", json=bad)).json()
        assert await figures() == {
            "total": 4,
            "scored_by_judge": 3,
            "pct_scored_by_judge": 75,
            "by_source": {"ollama": 3, "gemini_flash": 0, "openai_compatible": 0, "heuristics_fallback": 1},
        }
        assert (await figures(system="sentinel-l7"))["total"] == 4
        assert (await figures(system="generic"))["total"] == 0
        assert (await figures(since=last["created_at"]))["by_source"]["heuristics_fallback"] == 1
        judge.answer = says(ollama(verdict("high", "The amount is 9901", ids=("E7",))))
        await http.post("/evaluate", json=bad)
        assert (await figures())["by_source"]["heuristics_fallback"] == 0
        assert (await http.get("/judge/metrics?since=yesterday")).status_code == 400


# --- nothing is there -------------------------------------------------------------------------------------------------


async def test_with_nothing_configured_it_works_and_says_what_was_not_looked_at(tmp_path: Path) -> None:
    """The embedded index is asked, and has nothing to compare with."""
    async with service(settings_for(tmp_path)) as http:
        answer = (await http.post("/evaluate", json=FLAGGED)).json()
        check(await bundle_of(http, answer))
    assert statuses(answer) == {
        "heuristics": "scored",
        "narrative_grounding": "scored",
        "disagreement": "not_configured",
        "consistency": "scored",
        "judge": "not_configured",
    }
    assert (answer["consistency_result"]["consistent"], answer["consistency_result"]["neighbors"]) == (None, [])
    assert "lexical" in answer["consistency_result"]["embedder"]
    assert (answer["disposition"], answer["decision"], answer["degraded"]) == ("flag", "no_second_opinion", True)
    assert (answer["judge_verdict"], answer["instrument_path"], answer["assurance"]) == (None, None, None)


# --- the judge is measured --------------------------------------------------------------------------------------------


async def test_a_judge_is_measured_against_labels_by_each_instrument_path(tmp_path: Path) -> None:
    """Recorded predictions go to it, flagged or not; its verdicts are scored, strictly and in two labels, apart by who
    really answered, and what nobody answered is a failure."""

    async def only_small(call: Call, wire: Wire) -> None:
        said = verdict("high") if '"low-' not in call.body["messages"][0]["content"] else "no verdict"
        await says(ollama(said))(call, wire)

    examples = [
        {
            "id": f"{label}-{number}",
            "input": {"merchant": f"{label}-{number}"},
            "expected_label": label,
            "prediction": {"raw_output": {"risk_level": label}, "label": label, "confidence": 0.95},
        }
        for label in ("high", "low", "medium")
        for number in range(2)
    ]
    async with playing(only_small) as first, playing(says(gemini(verdict("medium")))) as second:
        settings = settings_for(tmp_path, ollama=ollama_at(first.url), gemini=gemini_at(second.url))
        async with service(settings) as http:
            options = {"driver": "sentinel-l7", "binary": True}
            body = {"system": "judge", "dataset": {"examples": examples}, "options": options}
            run = (await http.post("/runs", json=body)).json()
            path = f"/runs/{run['run_id']}"
            with anyio.fail_after(30):
                while (await http.get(path)).json()["status"] not in {"succeeded", "failed"}:
                    pass
            report = (await http.get(f"{path}/report?slice=/prediction/metadata/instrument_path")).json()
    assert (report["n_scored"], report["n_failed"], report["correct"]) == (6, 0, 2)
    (cut,) = report["slices"]
    by_path = {part["value"]: part for part in cut["values"]}
    assert {name: (part["n_scored"], part["correct"]) for name, part in by_path.items()} == {
        "ollama": (4, 2),
        "gemini_flash": (2, 0),
    }
    assert (report["binary"]["correct"], by_path["ollama"]["binary"]["correct"]) == (4, 4)
