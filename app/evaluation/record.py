"""The stored answer: built once as canonical bytes, and read back where layers must run again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from app.evaluation.item import Item
from app.evaluation.model import LayerReport, OnlineScoringResult
from app.evaluation.plan import Plan
from app.evaluation.verdict import Verdict, fell_back
from layers.canonical import canonical_bytes
from layers.model import (
    Cause,
    Failed,
    Finding,
    InstrumentPath,
    JsonObject,
    JudgeVerdict,
    LayerName,
    Outcome,
    Scored,
    Skipped,
    SkipReason,
)
from layers.provenance import Recorder, Stage, StageRecord

FINDING_FIELD: Mapping[LayerName, str] = {
    LayerName.HEURISTICS: "heuristic_result",
    LayerName.NARRATIVE_GROUNDING: "narrative_grounding_result",
    LayerName.DISAGREEMENT: "disagreement_result",
    LayerName.CONSISTENCY: "consistency_result",
    LayerName.JUDGE: "judge_verdict",
}

ERASED = "erased"
"""What stands where a text was."""

_LOG_INDEX = b'"log_index":null,"narrative_grounding_result":'
_ROOT = b'"provenance_root":null,"replayed":'
_REPLAYED = b'"replayed":false,"revision":'


def build_record(item: Item, outcomes: Mapping[LayerName, Outcome], plan: Plan, verdict: Verdict) -> JsonObject:
    """Everything on the answer that the evaluation itself decided; every key is a string."""
    record: JsonObject = {
        "prediction_id": item.prediction.id,
        "system": item.system,
        "label": item.prediction.label,
        "disposition": verdict.disposition,
        "decision": verdict.decision,
        "degraded": verdict.degraded,
        "suspicion_score": verdict.suspicion_score,
        "escalated": plan.escalate,
        "escalation_reasons": plan.reasons,
        "inclusion_probability": plan.inclusion_probability,
        "layers": {name: _report(outcome) for name, outcome in outcomes.items()},
        "instrument_path": verdict.instrument_path,
        "assurance": verdict.assurance,
        "compliance": None,
        "erased": False,
    }
    for name, field in FINDING_FIELD.items():
        outcome = outcomes[name]
        finding = None if isinstance(outcome, Skipped) else outcome.finding
        record[field] = None if finding is None else finding.model_dump(mode="json")
    return record


def _report(outcome: Outcome) -> dict[str, Any]:
    reason: SkipReason | None = None
    cause: dict[str, Any] | None = None
    match outcome:
        case Scored(finding=JudgeVerdict(source=InstrumentPath.HEURISTICS_FALLBACK) as verdict):
            cause = _why_nobody_judged(verdict).model_dump(mode="json")
        case Scored():
            pass
        case Skipped():
            reason = outcome.reason
        case Failed():
            cause = outcome.cause.model_dump(mode="json")
    return {
        "status": outcome.status,
        "reason": reason,
        "cause": cause,
        "elapsed_ms": outcome.elapsed_ms,
        "version": outcome.version,
    }


def _why_nobody_judged(verdict: JudgeVerdict) -> Cause:
    """The commonest error among the judges that failed, or else among those passed over, and what became of each."""
    failed = [each for each in verdict.attempts if each.outcome == "failed"] or list(verdict.attempts)
    kinds = Counter(each.error_type or "unknown" for each in failed)
    said = ", ".join(f"{each.source.value} {each.error_type or 'unknown'}" for each in verdict.attempts)
    kind = kinds.most_common(1)[0][0] if kinds else "unknown"  # the first of those as common
    return Cause(kind=kind, message=f"no judge answered: {said or 'none was tried'}")


def without_unwritable(outcomes: Mapping[LayerName, Outcome]) -> dict[LayerName, Outcome]:
    """The outcomes with those failed whose finding can't be written down as JSON."""
    return {name: outcome if _is_writable(outcome) else _unwritable(outcome) for name, outcome in outcomes.items()}


def _is_writable(outcome: Outcome) -> bool:
    try:
        canonical_bytes(outcome.model_dump(mode="json"))
    except ValueError:
        return False
    return True


def _unwritable(outcome: Outcome) -> Failed:
    cause = Cause(kind="malformed", message="what it found can't be written down: a number or a text is not valid")
    return Failed(cause=cause, elapsed_ms=outcome.elapsed_ms, version=outcome.version)


def with_log_index(record: bytes, index: int) -> bytes:
    """The canonical record once its place in the log is known. Strings in it can't hold an unescaped quote."""
    return record.replace(_LOG_INDEX, _LOG_INDEX.replace(b"null", b"%d" % index), 1)


def with_root(record: bytes, root: str) -> bytes:
    """The canonical record once its provenance is closed."""
    return record.replace(_ROOT, _ROOT.replace(b"null", b'"%s"' % root.encode()), 1)


def as_replayed(record: bytes) -> bytes:
    """The stored record as it is answered the second time."""
    return record.replace(_REPLAYED, _REPLAYED.replace(b"false", b"true"), 1)


def without_content(record: JsonObject) -> bytes:
    """The canonical record once its content is erased: how it was decided and what proves it, not what was said."""
    layers = {
        name: report | {"cause": report["cause"] and report["cause"] | {"message": ERASED}}
        for name, report in record["layers"].items()
    }
    gone = dict.fromkeys((*FINDING_FIELD.values(), "suspicion_score"))
    return canonical_bytes(record | gone | {"label": ERASED, "layers": layers, "erased": True})


def known_outcomes(result: OnlineScoringResult) -> dict[LayerName, Outcome]:
    """The outcomes of a stored answer that still hold; those of layers that must run again are left out.

    Run again: what failed, what met an open circuit, a judge chain that fell back, and what was not selected, since
    that is planned anew.
    """
    outcomes: dict[LayerName, Outcome] = {}
    for name, report in result.layers.items():
        outcome = _outcome(report, getattr(result, FINDING_FIELD[name]))
        if outcome is not None:
            outcomes[name] = outcome
    if fell_back(outcomes):
        del outcomes[LayerName.JUDGE]
    return outcomes


def _outcome(report: LayerReport, finding: Finding | None) -> Outcome | None:
    if report.status == "scored" and finding is not None:
        return Scored(finding=finding, elapsed_ms=report.elapsed_ms, version=report.version)
    again = {None, SkipReason.CIRCUIT_OPEN, SkipReason.NOT_SELECTED}
    if report.status == "skipped" and report.reason is not None and report.reason not in again:
        return Skipped(reason=report.reason, elapsed_ms=report.elapsed_ms, version=report.version)
    return None


def must_run_again(result: OnlineScoringResult) -> bool:
    """Whether a repeat has something to mend: a failure or an open circuit, not what is merely not configured."""
    if not result.degraded:
        return False
    known = known_outcomes(result)
    return any(
        name not in known and report.reason is not SkipReason.NOT_SELECTED for name, report in result.layers.items()
    )


_CARRIED = frozenset(
    {
        Stage.RETRIEVAL_PLAN,
        Stage.POLICY_CHUNKS,
        Stage.NEIGHBORS,
        Stage.PROMPT,
        Stage.MODEL_OUTPUT,
        Stage.VERIFICATION,
    }
)
"""Stages of which a next revision keeps what layers noted that need not run again."""


def carry_over(
    recorder: Recorder, stages: Sequence[StageRecord], known: Mapping[LayerName, Outcome], *, revision: int
) -> None:
    """Note again what the layers whose outcomes are `known` noted for `revision`; each note says where it is from."""
    for stage in stages:
        if stage.name not in _CARRIED or stage.payload is None:
            continue
        for note in json.loads(stage.payload):
            if note.get("layer") in known:
                recorder.note(stage.name, {"from_revision": revision, **note})
