"""Regressions: how far a run may fall behind its baseline."""

from __future__ import annotations

from collections.abc import Iterator

from app.gates.fall import Fall, fall_of
from app.gates.floors import MAX_EACH, part_name
from app.gates.model import RuleResult, SliceName, Status
from app.gates.policy import EACH, Policy, Proof, Regression
from app.runs.figures import Interval
from app.runs.pairing import Outcomes, Pairing
from app.runs.statistics.multiple import holm
from layers.profile import SystemProfile


def hold_regressions(policy: Policy, pairing: Pairing | None, profile: SystemProfile) -> Iterator[RuleResult]:
    """One result for each regression, label and value. Without a baseline each is missing."""
    for rule in policy.regressions:
        if pairing is None:
            named = f"the baseline {policy.baseline} that the policy names was never set"
            yield _missing(rule, None, None, named if policy.baseline else "there is no baseline to compare with")
            continue
        parts = list(_parts(rule, policy, pairing, profile))
        falls = [fall_of(outcomes, pairing, policy.alpha, len(parts)) for _, _, outcomes in parts]
        adjusted = iter(holm([fall.p_value for fall in falls if fall is not None]))
        for (label, place, _), fall in zip(parts, falls, strict=True):
            if fall is None:
                yield _missing(rule, label, place, "no pair of examples could be compared")
            else:
                yield _hold(rule, policy, (label, place), fall, next(adjusted))


def _parts(
    rule: Regression, policy: Policy, pairing: Pairing, profile: SystemProfile
) -> Iterator[tuple[str | None, SliceName | None, Outcomes]]:
    if rule.slice is not None:
        path = next(one for one in pairing.slices if one.path == rule.slice.path)
        chosen = [
            (key[1], outcomes)
            for key, outcomes in path.most_frequent(lambda outcomes: outcomes.size, len(path.values))
            if rule.slice.each or (key[1] == rule.slice.value and key[0] == type(rule.slice.value).__name__)
        ]
        for value, outcomes in chosen[:MAX_EACH]:
            yield None, SliceName(path=path.path, value=value), outcomes
        if not chosen:
            yield None, None, Outcomes()
    elif rule.label == EACH:
        ordered = sorted(pairing.labels.items(), key=lambda item: (-item[1].size, item[0]))
        for label, outcomes in ordered[:MAX_EACH]:
            yield label, None, outcomes
        if not ordered:
            yield None, None, Outcomes()
    elif rule.label is not None:
        label = profile.fold(rule.label)
        yield label, None, pairing.labels.get(label, Outcomes())
    elif rule.axis is not None:
        yield None, None, pairing.axes.get(rule.axis, Outcomes())
    elif (rule.labels or policy.labels) == "binary":
        yield None, None, pairing.binary or Outcomes()
    else:
        yield None, None, pairing.strict


def _hold(
    rule: Regression, policy: Policy, part: tuple[str | None, SliceName | None], fall: Fall, p_value: float
) -> RuleResult:
    label, place = part
    real = p_value < policy.alpha and fall.difference < 0
    status, needed, reason = judge_fall(
        fall, rule.tolerated, rule.min_n or policy.min_n, rule.proof or policy.proof, real=real
    )
    if rule.severity == "warn" and status is not Status.PASS:
        status, reason = Status.WARN, f"{reason}; only a warning by its severity"
    return RuleResult(
        name=_name(rule, label, place),
        metric=_metric(rule),
        label=label,
        slice=place,
        status=status,
        observed=fall.difference,
        interval=Interval(low=fall.low, high=fall.high),
        threshold=-rule.tolerated,
        n=fall.n,
        n_needed=needed,
        reason=f"{reason} (p {'< 0.0001' if p_value < 0.0001 else f'= {p_value:.4f}'})",
    )


def judge_fall(fall: Fall, tolerated: float, min_n: int, proof: Proof, *, real: bool) -> tuple[Status, int | None, str]:
    """Status, pairs needed, reason. "Real" (not chance) and "larger than tolerated" are asked apart.

    Surely larger than tolerated blocks; so does a real fall that is larger by the best estimate. Passing takes an
    interval above the tolerance; a real fall within it warns.
    """
    larger = fall.difference < -tolerated
    if fall.sure < -tolerated:
        return Status.BLOCK, None, "the fall is larger than tolerated: the whole interval lies beyond the tolerance"
    if real and larger:
        return Status.BLOCK, None, "the fall is real, and by the best estimate larger than tolerated"
    if fall.n < min_n:
        return Status.INCONCLUSIVE, min_n, f"{fall.n} pairs; the policy asks for at least {min_n}"
    if fall.low >= -tolerated:
        if real:
            return Status.WARN, None, "the fall is real, and within the tolerance"
        return Status.PASS, None, "no fall larger than tolerated: the whole interval lies within the tolerance"
    if proof == "interval":
        if fall.exactly(tolerated):
            return Status.INCONCLUSIVE, None, "the fall is exactly what is tolerated: no number of pairs would tell"
        what = "is larger than tolerated by the best estimate, and may be chance" if larger else "may be larger"
        return Status.INCONCLUSIVE, fall.needed(tolerated), f"the fall {what}: there are too few pairs to tell"
    return _by_estimate(fall, tolerated, real=real)


def _by_estimate(fall: Fall, tolerated: float, *, real: bool) -> tuple[Status, int | None, str]:
    if fall.difference < -tolerated:
        return Status.WARN, fall.needed(tolerated), "larger than tolerated by the best estimate; may be chance"
    if real:
        return Status.WARN, None, "the fall is real, and by the best estimate within the tolerance"
    return Status.PASS, None, "by the best estimate no fall larger than tolerated"


def _missing(rule: Regression, label: str | None, place: SliceName | None, reason: str) -> RuleResult:
    label = label if label is not None or rule.label == EACH else rule.label
    if place is None and rule.slice is not None and not rule.slice.each:
        place = SliceName(path=rule.slice.path, value=rule.slice.value)
    return RuleResult(
        name=_name(rule, label, place),
        metric=_metric(rule),
        label=label,
        slice=place,
        status=Status.WARN if rule.severity == "warn" else Status.MISSING,
        threshold=-rule.tolerated,
        n=0,
        reason=reason,
    )


def _metric(rule: Regression) -> str:
    return "recall_difference" if rule.label is not None else "accuracy_difference"


def _name(rule: Regression, label: str | None, place: SliceName | None) -> str:
    if rule.axis is not None and rule.name is None:
        return f"regression on axis {rule.axis}"
    name = rule.name or ("regression (binary)" if rule.labels == "binary" else "regression")
    return name + part_name(rule, label, place)
