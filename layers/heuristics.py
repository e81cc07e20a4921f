"""The free checks: confidence, label, narrative and self-contradiction, read from the profile alone."""

from __future__ import annotations

import math
from typing import Any

from layers.json_pointer import MISSING, resolve
from layers.model import EvalPrediction, Flag, HeuristicResult
from layers.ports import LayerInput
from layers.profile import Condition, ContradictionRule, SystemProfile

VERSION = "1"

NOTHING_SEEN = HeuristicResult(flagged=False)

CONFIDENCE_MISSING = 0.5
SATURATED = 0.3
NARRATIVE_MISSING = 0.5
UNKNOWN_LABEL = 0.9
LABEL_MISMATCH = 0.9


async def heuristics(item: LayerInput) -> HeuristicResult:
    """The layer: `check` on the prediction and its profile."""
    return check(item.prediction, item.profile)


def check(prediction: EvalPrediction, profile: SystemProfile) -> HeuristicResult:
    """Every flag that the profile's rules raise.

    Flags point into the prediction (`/confidence`, `/label`, `/raw_output/...`). A low confidence weighs as much as it
    lacks to certainty (1 - confidence); the other built-in severities are the constants of this module.
    """
    flags: list[Flag] = []
    _check_label(prediction, profile, flags)
    if profile.confidence_means == "certainty":
        _check_certainty(prediction, profile, flags)
    for rule in profile.contradictions:
        _check_contradiction(rule, prediction.raw_output, flags)
    if not flags:
        return NOTHING_SEEN
    return HeuristicResult(flagged=True, flags=tuple(flags), suspicion_score=max(flag.severity for flag in flags))


def _check_label(prediction: EvalPrediction, profile: SystemProfile, flags: list[Flag]) -> None:
    label = prediction.label
    if profile.labels and not _among(label, profile.labels, profile):
        reason = f"{label!r} is not a label of {profile.name}"
        flags.append(Flag(rule="unknown_label", reason=reason, severity=UNKNOWN_LABEL, pointer="/label"))
    if profile.label_pointer is None:
        return
    said = resolve(prediction.raw_output, profile.label_pointer)
    if isinstance(said, str) and said != label and not _same_label(said, label, profile):
        reason = f"the payload says {said[:100]!r}, the prediction {label!r}"
        pointer = "/raw_output" + profile.label_pointer
        flags.append(Flag(rule="label_mismatch", reason=reason, severity=LABEL_MISMATCH, pointer=pointer))


def _same_label(said: str, label: str, profile: SystemProfile) -> bool:
    return profile.fold(said) == profile.fold(label) or (profile.binary is not None and profile.collapse(said) == label)


def _among(label: str, labels: tuple[str, ...] | frozenset[str], profile: SystemProfile) -> bool:
    return label in labels or (profile.fold_case and profile.fold(label) in {profile.fold(known) for known in labels})


def _check_certainty(prediction: EvalPrediction, profile: SystemProfile, flags: list[Flag]) -> None:
    if _confidence_is_missing(prediction, profile):
        reason = "no confidence was given: nothing says how sure the answer is"
        flags.append(Flag(rule="confidence_missing", reason=reason, severity=CONFIDENCE_MISSING, pointer="/confidence"))
        return
    confidence, limits = prediction.confidence, profile.thresholds
    if confidence < limits.low_confidence:
        reason = f"confidence {confidence:g} is below {limits.low_confidence:g}"
        flags.append(Flag(rule="low_confidence", reason=reason, severity=1 - confidence, pointer="/confidence"))
    if confidence >= limits.saturation:
        reason = f"confidence {confidence:g} is at or above {limits.saturation:g}: too sure to be informative"
        flags.append(Flag(rule="confidence_saturation", reason=reason, severity=SATURATED, pointer="/confidence"))
    if confidence < limits.elevated_floor and _among(prediction.label, profile.elevated, profile):
        reason = f"{prediction.label!r} with confidence {confidence:g}, below {limits.elevated_floor:g}"
        flags.append(
            Flag(rule="elevated_label_low_confidence", reason=reason, severity=1 - confidence, pointer="/confidence")
        )
    if confidence >= limits.narrative_confidence and profile.narrative_pointer is not None:
        _check_narrative(prediction, profile.narrative_pointer, flags)


def _confidence_is_missing(prediction: EvalPrediction, profile: SystemProfile) -> bool:
    if prediction.metadata.get("confidence_missing") is True:
        return True
    return profile.confidence_pointer is not None and resolve(prediction.raw_output, profile.confidence_pointer) is None


def _check_narrative(prediction: EvalPrediction, pointer: str, flags: list[Flag]) -> None:
    narrative = resolve(prediction.raw_output, pointer)
    if not isinstance(narrative, str) or not narrative.strip():
        reason = f"confidence {prediction.confidence:g} without a narrative that says why"
        flags.append(
            Flag(rule="missing_narrative", reason=reason, severity=NARRATIVE_MISSING, pointer="/raw_output" + pointer)
        )


def _check_contradiction(rule: ContradictionRule, raw_output: Any, flags: list[Flag]) -> None:
    if all(condition_holds(condition, raw_output) for condition in rule.when):
        pointer = "/raw_output" + rule.when[0].pointer
        flags.append(Flag(rule=rule.name, reason=rule.reason, severity=rule.severity, pointer=pointer))


def condition_holds(condition: Condition, document: Any) -> bool:
    """Whether the comparison holds for the field that it names; a missing field never does.

    Types are never converted: a boolean is no number, a number written as text equals no number, and order is
    defined between numbers only.
    """
    found = resolve(document, condition.pointer)
    if found is MISSING:
        return False
    match condition.op:
        case "eq":
            return _equal(found, condition.value)
        case "ne":
            return not _equal(found, condition.value)
        case "in":
            return _is_one_of(found, condition.value)
        case "not_in":
            return not _is_one_of(found, condition.value)
        case "not_finite":
            return not _is_finite(found)
        case "lt" | "le" | "gt" | "ge":
            return _ordered(found, condition.op, condition.value)


def _equal(found: Any, value: Any) -> bool:
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    return bool(found == value)


def _is_one_of(found: Any, values: Any) -> bool:
    return any(_equal(found, value) for value in (values if isinstance(values, tuple) else (values,)))


def _ordered(found: Any, op: str, value: Any) -> bool:
    if not (_is_number(found) and _is_number(value)):
        return False
    if op == "lt":
        return bool(found < value)
    if op == "le":
        return bool(found <= value)
    if op == "gt":
        return bool(found > value)
    return bool(found >= value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    if isinstance(value, str):
        try:
            return math.isfinite(float(value))
        except ValueError:
            return False
    if isinstance(value, float):
        return math.isfinite(value)
    return _is_number(value)
