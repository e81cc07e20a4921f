"""The stand-in Synapse behaves as the real one does."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from app.demo.synapse import build_synapse

pytestmark = pytest.mark.anyio


def http(app: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://peer.test")


async def ingest(app: Any, payload: dict[str, Any]) -> httpx.Response:
    async with http(app) as client:
        return await client.post("/ingest", json={"source_id": "s", "payload": payload})


def event(status: str | None = None, classification: str | None = None, **inner: Any) -> dict[str, Any]:
    raw = {"payload": {**({"status": status} if status else {}), **inner}}
    return {"raw": raw, **({"processed": {"classification": classification}} if classification else {})}


@pytest.mark.parametrize(
    ("payload", "status", "score", "metric"),
    [
        (event("passed", "normal", durationMs=12), "nominal", 0.1, 12),
        (event("success"), "nominal", 0.3, 0),
        (event("failed", "normal", value=3), "critical", 0.1, 3),
        (event("error", "critical"), "critical", 0.9, 0),
        (event("skipped", "warning"), "degraded", 0.5, 0),
        (event(None, "odd"), "degraded", 0.3, 0),
        ({"processed": {"classification": "normal"}}, "nominal", 0.1, 0),
        ({"status": "degraded", "metric_value": 1.5, "anomaly_score": 0.7}, "degraded", 0.7, 1.5),
    ],
)
async def test_the_fast_path_follows_its_table(payload: dict[str, Any], status: str, score: float, metric: float):
    """Outcome first, then classification; what is ready is taken as it is."""
    reply = await ingest(build_synapse(), payload)
    axiom = reply.json()["axiom"]
    assert (axiom["status"], axiom["anomaly_score"], axiom["metric_value"]) == (status, score, metric)
    assert axiom["source_id"] == "s"
    assert "pipeline_ms" in reply.json()


@pytest.mark.parametrize(
    ("payload", "rule"),
    [
        (event("passed", "critical"), "score_requires_critical"),
        (event("passed", "warning"), "score_forbids_nominal"),
        ({"status": "nominal", "metric_value": "x", "anomaly_score": 0.1}, "metric_finite"),
        ({"status": "nominal", "metric_value": 1, "anomaly_score": 7}, "score_range"),
    ],
)
async def test_an_axiom_that_contradicts_itself_is_rejected_and_not_emitted(payload: dict[str, Any], rule: str):
    """Its own judge names rule, detail and candidate; the stream stays as it was."""
    app = build_synapse()
    reply = await ingest(app, payload)
    body = reply.json()
    assert (reply.status_code, body["error"], body["rule"]) == (422, "judge_rejected", rule)
    assert body["axiom_candidate"]["status"]
    assert app.state.synapse.emitted == []


async def test_a_payload_nobody_can_read_is_given_back():
    """Without raw, processed or a ready axiom there is nothing to extract from."""
    reply = await ingest(build_synapse(), {"hello": 1})
    assert (reply.status_code, reply.json()["error"]) == (422, "extraction_failed")
    assert reply.json()["raw_payload"] == {"hello": 1}


async def test_a_body_of_the_wrong_shape_gets_the_frameworks_own_refusal():
    """A list of details and no `error` key."""
    async with http(build_synapse()) as client:
        reply = await client.post("/ingest", json={"payload": {}})
    assert reply.status_code == 422
    assert set(reply.json()) == {"detail"}
    assert reply.json()["detail"][0]["loc"] == ["body", "source_id"]


async def test_failures_come_first_and_then_it_is_well():
    """A crash is plain text, a stream that is down is a 502; neither emits anything."""
    app = build_synapse(crashes=1, emit_failures=1)
    replies = [await ingest(app, event("passed", "normal")) for _ in range(3)]
    assert [reply.status_code for reply in replies] == [500, 502, 200]
    assert replies[0].text == "Internal Server Error"
    assert replies[1].json()["error"] == "emit_failed"
    assert len(app.state.synapse.emitted) == 1


async def test_it_says_that_it_is_well():
    """Health has a status and a version."""
    async with http(build_synapse()) as client:
        assert (await client.get("/health")).json()["status"] == "ok"
