"""Synapse-L4: reading its axioms, and every reply that it can give."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.synapse_l4 import SynapseSystem, body_from, read_payload
from app.demo.generate_fixtures import FIXTURES
from app.demo.synapse import build_synapse
from layers.errors import (
    DependencyError,
    DependencyMalformed,
    DependencyRejected,
    DependencyUnavailable,
    VerdictNotOffered,
)
from layers.model import EvalDataset, EvalExample
from tests.adapters.peers import over_asgi, over_handler

BASE = "http://synapse.test"
AXIOM = {
    "status": "nominal",
    "metric_value": 5210.0,
    "anomaly_score": 0.1,
    "source_id": "ci",
    "emitted_at": "2026-02-03T04:05:06+00:00",
    "domain": None,
}
EXAMPLE = EvalExample(id="e-1", input={"payload": {"raw": {}}}, expected_label="nominal")


def answers(status: int, body: Any) -> Callable[[httpx.Request], httpx.Response]:
    if isinstance(body, str):
        return lambda request: httpx.Response(status, text=body)
    return lambda request: httpx.Response(status, json=body)


def axiom(**changes: Any) -> Callable[[httpx.Request], httpx.Response]:
    return answers(200, {"axiom": {**AXIOM, **changes}, "pipeline_ms": 20})


async def predict(handler: Callable[..., Any], **more: Any) -> Any:
    async with over_handler(handler, "synapse", **more) as client:
        return await SynapseSystem(client, BASE).predict(EXAMPLE)


@pytest.mark.anyio
async def test_an_axiom_about_another_source_is_noticed():
    """Who was asked about and who the answer names are both on record; where they are one, nothing is added."""
    assert (await predict(axiom(source_id="other"))).metadata["asked_source_id"] == "e-1"
    same = (await predict(axiom(source_id="e-1"))).metadata
    assert (same["source_id"], same.get("asked_source_id")) == ("e-1", None)


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [AXIOM, {"axiom": AXIOM, "pipeline_ms": 20}], ids=["axiom", "reply"])
def test_an_axiom_is_read_alone_and_in_its_reply(payload: dict[str, Any]):
    """Status is the label, the anomaly score is what lands in confidence."""
    reading = read_payload(payload)
    assert (reading.label, reading.confidence) == ("nominal", 0.1)
    assert reading.metadata["source_id"] == "ci"
    assert "domain" not in reading.metadata


@pytest.mark.parametrize("metric", ["NaN", "Infinity", None, {}])
def test_the_metric_is_left_to_the_profiles_rules(metric: Any):
    """A metric that is no number is a contradiction to flag, not a reason to refuse what was posted."""
    assert read_payload({**AXIOM, "metric_value": metric}).label == "nominal"


@pytest.mark.parametrize(
    ("payload", "pointer"),
    [
        ({**AXIOM, "anomaly_score": 1.2}, "/anomaly_score"),
        ({**AXIOM, "anomaly_score": None}, "/anomaly_score"),
        ({**AXIOM, "anomaly_score": math.nan}, "/anomaly_score"),
        ({**AXIOM, "status": None}, "/status"),
        ({}, "/status"),
        ({"axiom": []}, "/axiom"),
        ({"axiom": {**AXIOM, "anomaly_score": "0.1"}}, "/axiom/anomaly_score"),
    ],
)
def test_a_wrong_field_is_named(payload: dict[str, Any], pointer: str):
    """The error says where, in the payload as it was given."""
    with pytest.raises(DependencyMalformed) as caught:
        read_payload(payload)
    assert caught.value.detail["pointer"] == pointer


@given(st.dictionaries(st.sampled_from([*AXIOM, "axiom"]), st.none() | st.floats() | st.text() | st.booleans()))
def test_any_payload_is_read_or_refused(changes: dict[str, Any]):
    """A reading is always a known status and a score in 0..1."""
    try:
        reading = read_payload({**AXIOM, **changes})
    except DependencyError:
        return
    assert reading.label in {"nominal", "degraded", "critical"}
    assert 0 <= reading.confidence <= 1


# --- input ------------------------------------------------------------------------------------------------------------


def test_the_source_is_the_example_where_the_input_names_none():
    """Synapse wants a source for every event."""
    assert body_from(EXAMPLE)["source_id"] == "e-1"
    named = EXAMPLE.model_copy(update={"input": {"payload": {}, "source_id": "ci"}})
    assert body_from(named) == {"source_id": "ci", "payload": {}}


@pytest.mark.parametrize("given_input", [{}, {"payload": []}, {"payload": {}, "source_id": 3}, {"text": "x"}])
def test_wrong_input_is_refused_before_the_call(given_input: dict[str, Any]):
    """Nothing is sent, and the message says what is needed."""
    with pytest.raises(DependencyRejected, match="needs `payload`") as caught:
        body_from(EvalExample(id="e", input=given_input, expected_label="nominal"))
    assert caught.value.kind == "invalid_input"


# --- replies ----------------------------------------------------------------------------------------------------------

JUDGE = {
    "error": "judge_rejected",
    "rule": "score_requires_critical",
    "detail": "0.9 requires critical",
    "axiom_candidate": {**AXIOM, "anomaly_score": 0.9},
}
EXTRACTION = {"error": "extraction_failed", "detail": "no status", "raw_payload": {"a": 1}}
VALIDATION = {"detail": [{"type": "missing", "loc": ["body", "source_id"], "msg": "Field required", "input": {}}]}
EMIT = {"error": "emit_failed", "detail": "stream down", "status_code": 503}


def unplugged(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("no", request=request)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("handler", "error", "kind"),
    [
        pytest.param(unplugged, DependencyUnavailable, "refused", id="refused"),
        pytest.param(answers(422, JUDGE), DependencyRejected, "judge_rejected", id="judge_rejected"),
        pytest.param(answers(422, EXTRACTION), DependencyRejected, "extraction_failed", id="extraction_failed"),
        pytest.param(answers(422, VALIDATION), DependencyRejected, "invalid_input", id="validation"),
        pytest.param(answers(422, {"detail": "no"}), DependencyRejected, "rejected", id="422 unknown"),
        pytest.param(answers(422, {"detail": [3]}), DependencyRejected, "rejected", id="422 odd"),
        pytest.param(answers(422, "no"), DependencyRejected, "rejected", id="422 text"),
        pytest.param(answers(502, EMIT), DependencyUnavailable, "emit_failed", id="emit_failed"),
        pytest.param(answers(502, "Bad Gateway"), DependencyUnavailable, "server_error", id="502 of a proxy"),
        pytest.param(answers(500, "Internal Server Error"), DependencyUnavailable, "server_error", id="500"),
        pytest.param(answers(503, "busy"), DependencyUnavailable, "server_error", id="503"),
        pytest.param(answers(429, "busy"), DependencyUnavailable, "rate_limited", id="429"),
        pytest.param(answers(404, {"detail": "Not Found"}), DependencyRejected, "rejected", id="404"),
        pytest.param(answers(200, "<html>"), DependencyMalformed, "malformed", id="html"),
        pytest.param(answers(200, "[]"), DependencyMalformed, "malformed", id="list"),
        pytest.param(answers(200, {"axiom": None}), DependencyMalformed, "malformed", id="no axiom"),
        pytest.param(answers(200, '{"axiom": {"metric_value": NaN}}'), DependencyMalformed, "malformed", id="nan"),
        pytest.param(axiom(metric_value="NaN"), DependencyMalformed, "malformed", id="metric text"),
        pytest.param(axiom(metric_value=None), DependencyMalformed, "malformed", id="metric null"),
        pytest.param(axiom(metric_value=True), DependencyMalformed, "malformed", id="metric true"),
        pytest.param(axiom(anomaly_score=1.5), DependencyMalformed, "malformed", id="score"),
        pytest.param(axiom(status="odd"), VerdictNotOffered, "not_a_label", id="status"),
    ],
)
async def test_failures(handler: Callable[..., Any], error: type[DependencyError], kind: str):
    """Every reply that is no axiom has one error."""
    with pytest.raises(DependencyError) as caught:
        await predict(handler)
    assert type(caught.value) is error
    assert caught.value.kind == kind


@pytest.mark.anyio
async def test_a_rejection_keeps_rule_detail_and_candidate():
    """What Synapse's own judge refused is what an operator wants to see."""
    with pytest.raises(DependencyRejected) as caught:
        await predict(answers(422, JUDGE))
    assert caught.value.detail == {key: value for key, value in JUDGE.items() if key != "error"}
    assert "score_requires_critical" in caught.value.message


@pytest.mark.anyio
async def test_a_big_payload_is_not_kept_beside_the_reason():
    """The example holds it already."""
    with pytest.raises(DependencyRejected) as caught:
        await predict(answers(422, {**EXTRACTION, "raw_payload": {"a": "x" * 100_000}}))
    assert caught.value.detail == {"detail": "no status"}


@pytest.mark.anyio
@pytest.mark.parametrize("status", [500, 502, 503])
async def test_what_synapse_may_have_worked_on_is_not_sent_twice(status: int):
    """A second axiom on the stream would be a second event to Sentinel."""
    seen: list[httpx.Request] = []

    def failing(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status, json=EMIT)

    with pytest.raises(DependencyUnavailable):
        await predict(failing, attempts=3)
    assert len(seen) == 1


@pytest.mark.anyio
async def test_the_prediction_is_the_axiom():
    """The raw output is what Synapse put on its stream; the pipeline's time is kept beside it."""
    prediction = await predict(axiom(domain="aml"))
    assert prediction.raw_output == {**AXIOM, "domain": "aml"}
    assert (prediction.id, prediction.label, prediction.confidence) == ("e-1", "nominal", 0.1)
    assert prediction.metadata["pipeline_ms"] == 20


@pytest.mark.anyio
async def test_the_stand_in_agrees_with_every_hand_derived_label():
    """The rule table and the ground truth say the same, and each answer leaves one axiom on the stream."""
    dataset = EvalDataset.model_validate_json((FIXTURES / "synapse_l4_ground_truth.json").read_bytes())
    app = build_synapse()
    async with over_asgi(app, "synapse") as client:
        system = SynapseSystem(client, BASE)
        for example in dataset.examples:
            assert (await system.predict(example)).label == example.expected_label
    assert len(app.state.synapse.emitted) == len(dataset.examples)
