"""A stand-in Synapse-L4 that speaks its protocol: the fast path's rule table, its own rule, and its failures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import anyio
from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel

STATUSES = ("nominal", "degraded", "critical")
DOMAINS = ("aml", "gdpr", "hipaa", "saas")

_BY_OUTCOME = {"passed": "nominal", "success": "nominal", "failed": "critical", "error": "critical"}
_BY_CLASSIFICATION = {"normal": "nominal", "warning": "degraded", "critical": "critical"}
_SCORES = {"normal": 0.1, "warning": 0.5, "critical": 0.9}


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class SynapseKnobs:
    """How the stand-in behaves: `latency` in seconds; `crashes` and `emit_failures` are how many calls fail first."""

    latency: float = 0.0
    crashes: int = 0
    emit_failures: int = 0
    now: Callable[[], datetime] = _utc_now


class IngestRequest(BaseModel):
    """The body of `/ingest`."""

    source_id: str
    payload: dict[str, Any]


class ExtractionFailed(Exception):
    """No axiom can be read from a payload."""


class StandInSynapse:
    """The stand-in's state. `emitted` is the side effect: the axioms that would be on Sentinel's stream."""

    def __init__(self, knobs: SynapseKnobs) -> None:
        self.knobs = knobs
        self.requests = 0
        self.emitted: list[dict[str, Any]] = []
        self._crashes = knobs.crashes
        self._emit_failures = knobs.emit_failures

    async def ingest(self, body: IngestRequest) -> Response:
        """`POST /ingest`."""
        self.requests += 1
        await anyio.sleep(self.knobs.latency)
        if self._crashes > 0:
            self._crashes -= 1
            return PlainTextResponse("Internal Server Error", 500)
        try:
            axiom = extract(body.payload)
        except ExtractionFailed as exc:
            return JSONResponse(
                {"error": "extraction_failed", "detail": str(exc), "raw_payload": body.payload}, status_code=422
            )
        axiom.update(source_id=body.source_id, emitted_at=self.knobs.now().isoformat(), domain=_domain(body.payload))
        return self._emit(axiom)

    def _emit(self, axiom: dict[str, Any]) -> Response:
        if (broken := broken_rule(axiom)) is not None:
            rule, detail = broken
            rejection = {"error": "judge_rejected", "rule": rule, "detail": detail, "axiom_candidate": axiom}
            return JSONResponse(rejection, status_code=422)
        if self._emit_failures > 0:
            self._emit_failures -= 1
            failure = {"error": "emit_failed", "detail": "the stream refused the axiom", "status_code": 503}
            return JSONResponse(failure, status_code=502)
        self.emitted.append(axiom)
        return JSONResponse({"axiom": axiom, "pipeline_ms": round(self.knobs.latency * 1000)})


def build_synapse(**knobs: Any) -> FastAPI:
    """The stand-in as an ASGI app; its `StandInSynapse` is `app.state.synapse`.

    `knobs` are the fields of `SynapseKnobs`.
    """
    synapse = StandInSynapse(SynapseKnobs(**knobs))
    app = FastAPI(title="Synapse-L4 (stand-in)", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.synapse = synapse
    app.add_api_route("/ingest", synapse.ingest, methods=["POST"], response_model=None)
    app.add_api_route("/health", _health, methods=["GET"])
    return app


async def _health() -> dict[str, str]:
    return {"status": "ok", "version": "stand-in"}


def extract(payload: dict[str, Any]) -> dict[str, Any]:
    """Status, metric and score of a payload by the fast path's rule table. Raises `ExtractionFailed`."""
    if all(key in payload for key in ("status", "metric_value", "anomaly_score")):
        if payload["status"] not in STATUSES:
            raise ExtractionFailed(f"status must be one of {', '.join(STATUSES)}")
        return {key: payload[key] for key in ("status", "metric_value", "anomaly_score")}
    if "raw" not in payload and "processed" not in payload:
        raise ExtractionFailed("the payload has neither raw nor processed, and no model is there to read it")
    inner = _object(_object(payload, "raw"), "payload")
    processed = _object(payload, "processed")
    classification = processed.get("classification")
    key = classification if isinstance(classification, str) else ""
    outcome = inner.get("status")
    status = _BY_OUTCOME.get(outcome) if isinstance(outcome, str) else None
    return {
        "status": status or _BY_CLASSIFICATION.get(key, "degraded"),
        "metric_value": inner.get("durationMs") or inner.get("value") or processed.get("value") or 0,
        "anomaly_score": _SCORES.get(key, 0.3),
    }


def broken_rule(axiom: dict[str, Any]) -> tuple[str, str] | None:
    """The rule of Synapse's own that an axiom breaks, with the reason; None when it breaks none."""
    score, status, metric = axiom["anomaly_score"], axiom["status"], axiom["metric_value"]
    if not _is_number(metric) or not abs(metric) < math.inf:
        return "metric_finite", "metric_value must be a finite number"
    if not _is_number(score) or not 0 <= score <= 1:
        return "score_range", "anomaly_score must be between 0 and 1"
    if score >= 0.8 and status != "critical":
        return "score_requires_critical", f"anomaly_score {score} requires status critical, not {status}"
    if score >= 0.5 and status == "nominal":
        return "score_forbids_nominal", f"anomaly_score {score} forbids status nominal"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _object(value: dict[str, Any], key: str) -> dict[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _domain(payload: dict[str, Any]) -> str | None:
    domain = payload.get("domain")
    return domain if domain in DOMAINS else None
