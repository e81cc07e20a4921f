"""The spans of one evaluation, from what was noted while it went on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from app.evaluation.item import Item
from app.evaluation.observe import Ending
from app.evaluation.plan import AUDIT_REASON
from app.telemetry.metrics import LAYER_SPAN_NAMES
from app.telemetry.model_calls import ModelCall, attempt_steps, failure
from app.telemetry.redact import Redactor
from app.telemetry.traces import SAMPLING_RATIO, Step
from layers.json_pointer import resolve
from layers.model import (
    ConsistencyResult,
    DisagreementResult,
    Failed,
    HeuristicResult,
    InstrumentPath,
    JudgeVerdict,
    LayerName,
    NarrativeGroundingResult,
    Outcome,
    Scored,
    Skipped,
)

Layer: TypeAlias = tuple[LayerName, Outcome, int, int]
"""Name, outcome, start and end in nanoseconds since 1970."""

VERDICT = "arbiter_l8.verdict"
"""`gen_ai.evaluation.name` of the one event that every verdict leaves."""


def evaluation_step(
    item: Item,
    ending: Ending,
    layers: Sequence[Layer],
    calls: list[ModelCall],
    *,
    span: tuple[int, int],
    ratio: float,
    content: bool,
    redact: Redactor,
) -> Step:
    """The span `evaluate_item` with all that lies beneath it. `content`: the item's own texts go along, redacted."""
    verdict, plan = ending.verdict, ending.plan
    reasons = () if plan is None else plan.reasons
    values: dict[str, Any] = {
        "prediction_id": item.prediction.id,
        "evaluation_id": ending.evaluation_id,
        "system": item.system,
        "escalated": plan is not None and plan.escalate,
        "flags": [reason for reason in reasons if reason != AUDIT_REASON],
        "audit_sample": AUDIT_REASON in reasons,
        "replayed": ending.evaluation_id is not None and verdict is None,
        "instrument_path": _instrument_path(ending),
        SAMPLING_RATIO: ratio,
    }
    if verdict is not None:
        values |= {
            "disposition": verdict.disposition.value,
            "decision": verdict.decision,
            "degraded": verdict.degraded,
            "suspicion_score": verdict.suspicion_score,
            "assurance": verdict.assurance,
        }
    if content:
        values |= _content(item, redact)
    error = "given_up" if ending.evaluation_id is None else None
    events = () if verdict is None else ((_RESULT, _result(ending, redact if content else None)),)
    steps = tuple(_layer_step(layer, calls, redact, content=content) for layer in layers)
    return Step("evaluate_item", *span, values, error, events=events, steps=steps)


_RESULT = "gen_ai.evaluation.result"


def _result(ending: Ending, redact: Redactor | None) -> dict[str, Any]:
    """The verdict as an evaluation event. A missing score is left out: nobody looked, and that is not 0."""
    if ending.verdict is None:
        return {}
    reasons = ending.plan.reasons if ending.plan else ()
    explanation = f"{ending.verdict.decision}: {', '.join(reasons) or 'nothing was flagged'}"
    judged = _judged(ending)
    if redact is not None and judged is not None and judged.reasoning:
        explanation += f"; the judge: {redact(judged.reasoning)}"
    failures = (outcome.cause.kind for outcome in ending.outcomes.values() if isinstance(outcome, Failed))
    fell_back = judged is not None and judged.source is InstrumentPath.HEURISTICS_FALLBACK
    return {
        "gen_ai.evaluation.name": VERDICT,
        "gen_ai.evaluation.score.value": ending.verdict.suspicion_score,
        "gen_ai.evaluation.score.label": ending.verdict.disposition.value,
        "gen_ai.evaluation.explanation": explanation,
        "error.type": next(failures, "heuristics_fallback" if fell_back else None),
    }


def _layer_step(layer: Layer, calls: list[ModelCall], redact: Redactor, *, content: bool) -> Step:
    name, outcome, started_ns, ended_ns = layer
    values: dict[str, Any] = {"layer": name.value, "status": outcome.status, "version": outcome.version}
    error = None
    attempts: tuple[Any, ...] = ()
    match outcome:
        case Scored(finding=finding):
            values |= _found(finding, redact if content else None)
            if isinstance(finding, JudgeVerdict):
                attempts = finding.attempts
                if finding.source is InstrumentPath.HEURISTICS_FALLBACK:
                    error = "heuristics_fallback"
        case Skipped(reason=reason):
            values["reason"] = reason.value
        case Failed(cause=cause):
            error = cause.kind
            values |= {**failure(cause.kind, cause.message, redact), "dependency": cause.dependency}
    steps: tuple[Step, ...] = ()
    if name is LayerName.JUDGE:
        steps = attempt_steps(attempts, calls, started_ns, redact)
        if error == "heuristics_fallback":
            steps = (*steps, Step("heuristics_fallback", ended_ns, ended_ns, {"instrument_path": error}))
    return Step(LAYER_SPAN_NAMES[name], started_ns, ended_ns, values, error, steps=steps)


def _found(finding: Any, redact: Redactor | None) -> dict[str, Any]:
    """What a layer concluded, without a word of what it read, unless it may leave redacted."""
    match finding:
        case HeuristicResult():
            return {"flags": [flag.rule for flag in finding.flags], "suspicion_score": finding.suspicion_score}
        case NarrativeGroundingResult():
            statuses = sorted({anchor.status.value for anchor in finding.anchors})
            return {"flagged": finding.ng_flagged, "stage": finding.stage, "anchors": statuses}
        case DisagreementResult():
            errors = sorted({error.kind for error in finding.errors_by_provider.values()})
            return {"agreed": finding.agreed, "confidence_spread": finding.confidence_spread, "provider_errors": errors}
        case ConsistencyResult():
            return {"consistent": finding.consistent, "neighbors": len(finding.neighbors), "embedder": finding.embedder}
        case JudgeVerdict():
            shown = {"reasoning": redact(finding.reasoning)} if redact is not None and finding.reasoning else {}
            return {
                "instrument_path": finding.source.value,
                "agrees": finding.agrees,
                "cached": finding.cached,
                "claims": len(finding.claims),
                **shown,
            }
        case _:
            return {}


def _content(item: Item, redact: Redactor) -> dict[str, Any]:
    raw = item.prediction.raw_output
    pointer = item.profile.narrative_pointer
    narrative = resolve(raw, pointer) if pointer else None
    return {
        "arbiter.raw_output": redact(json.dumps(raw, ensure_ascii=False)),
        "arbiter.narrative": redact(narrative) if isinstance(narrative, str) else None,
        "arbiter.label": redact.without_known(item.prediction.label),
    }


def _judged(ending: Ending) -> JudgeVerdict | None:
    outcome = ending.outcomes.get(LayerName.JUDGE)
    return outcome.finding if isinstance(outcome, Scored) and isinstance(outcome.finding, JudgeVerdict) else None


def _instrument_path(ending: Ending) -> str | None:
    judged = _judged(ending)
    return None if judged is None else judged.source.value
