"""Floors: figures that must not lie too low."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from app.gates.checks import Asked
from app.gates.measures import Measure, Part, Unmeasurable, effect_of
from app.gates.model import RuleResult, SliceName, Status, slice_value
from app.gates.policy import EACH, OF_LABEL, Floor, Metric, Policy, Proof, Reading, Rule
from app.gates.resampled import measure_resampled
from app.gates.shares import measure_share
from app.runs.analysis import Breakdown
from app.runs.figures import Interval
from app.runs.metrics import labels_of
from app.runs.tally import Tally
from layers.profile import SystemProfile

_OF_ONE: Mapping[Metric, Metric] = {
    "balanced_accuracy": "recall",
    "macro.precision": "precision",
    "macro.recall": "recall",
    "macro.f1": "f1",
    "weighted.precision": "precision",
    "weighted.recall": "recall",
    "weighted.f1": "f1",
}
"""What an average over the labels is where there is one label."""

MAX_EACH = 50
"""Parts that a rule for each label or each value looks at, the most frequent first."""


@dataclass(frozen=True)
class Measured:
    """A run, counted."""

    tally: Tally
    breakdown: Breakdown
    profile: SystemProfile
    wholes: dict[Reading, Part] = field(default_factory=dict)
    """The run in either reading of its labels, once it was needed."""

    def whole(self, reading: Reading) -> Part:
        """The whole run, its labels read strictly or collapsed, in a report's order."""
        if reading not in self.wholes:
            self.wholes[reading] = self.part(self.tally, reading, effect_of(self.breakdown.observations), whole=True)
        return self.wholes[reading]

    def part(self, tally: Tally, reading: Reading, effect: float, *, whole: bool = False) -> Part:
        """Some of its examples."""
        seen = self.breakdown.observations if whole else None
        asked, rule = self.breakdown.asked, self.profile.binary
        if reading == "strict" or rule is None:
            order = [self.profile.fold(label) for label in self.profile.labels]
            return Part(tally, order, effect, seen, asked)
        seen = None if seen is None else seen.collapsed(self.profile.collapse)
        return Part(tally.collapsed(self.profile.collapse), [rule.negative, rule.positive], effect, seen, asked)

    @property
    def n_scored(self) -> int:
        """Examples with at least one answer that was scored."""
        return self.whole("strict").n_scored

    @property
    def asked(self) -> Asked:
        """How many examples there are, and of how many there are records."""
        times, seen = self.breakdown.asked, self.breakdown.observations
        total, n = self.tally.n_total // times, self.whole("strict").n
        if seen is None or seen.examples is None:
            return Asked(total, n, n, times)
        _, counts = np.unique(seen.examples, return_counts=True)
        return Asked(total, n, int((counts >= times).sum()), times)


def measure(part: Part, metric: Metric, label: str | None, *, level: float) -> Measure:
    """One figure of one part. `label` is given for precision, recall and f1, as it is compared.

    Every failed example counts as wrong in the way that hurts the figure most. Intervals are Wilson's for proportions,
    and percentiles of resamples, as in reports, for the rest. Raises `Unmeasurable`.
    """
    if not part.tally.n_scored:
        raise Unmeasurable("no example was scored")
    labels = labels_of(part.tally, part.order)
    if len(labels) == 1 and metric in _OF_ONE:
        metric, label = _OF_ONE[metric], labels[0]
    if metric in {"accuracy", "precision", "recall"}:
        return measure_share(part, metric, label, level=level)
    return measure_resampled(part, metric, label, level=level)


def hold_floors(policy: Policy, run: Measured) -> Iterator[RuleResult]:
    """One result for each floor, label and value."""
    for floor in policy.floors:
        reading = floor.labels or policy.labels
        floor = floor.model_copy(update={"labels": reading})
        if reading == "binary" and run.profile.binary is None:
            yield _missing(floor, floor.label, None, "the system has no binary labels", run.n_scored)
            continue
        for place, part in _parts(floor, run):
            if isinstance(part, str):
                yield _missing(floor, floor.label, place, part, 0)
                continue
            for label in _labels(floor, part, run.profile):
                yield _hold(floor, policy, part, label, place)


def _parts(floor: Floor, run: Measured) -> Iterator[tuple[SliceName | None, Part | str]]:
    reading = floor.labels or "strict"
    if floor.slice is None:
        yield None, run.whole(reading)
        return
    path = next(one for one in run.breakdown.slices if one.path == floor.slice.path)
    chosen = [
        (key[1], counts)
        for key, counts in path.most_frequent(lambda counts: counts.n, len(path.values))
        if floor.slice.each or (key[1] == floor.slice.value and key[0] == type(floor.slice.value).__name__)
    ]
    if not chosen:
        place = None if floor.slice.each else SliceName(path=path.path, value=floor.slice.value)
        nothing = "no example has a value there" if floor.slice.each else "no example has this value"
        yield place, path.reason or nothing
    effect = effect_of(run.breakdown.observations) if chosen else 1.0
    for value, counts in chosen[:MAX_EACH]:
        yield SliceName(path=path.path, value=value), run.part(counts.tally(), reading, effect)


def _labels(floor: Floor, part: Part, profile: SystemProfile) -> list[str | None]:
    if floor.metric not in OF_LABEL:
        return [None]
    if floor.label != EACH:
        label = floor.label or ""
        return [label if floor.labels == "binary" else profile.fold(label)]
    support: dict[str, int] = {}
    for counts in (part.tally.scored, part.tally.failed):
        for (expected, _), n in counts.items():
            support[expected] = support.get(expected, 0) + n
    ordered = sorted(support, key=lambda label: (-support[label], label))
    return list(ordered[:MAX_EACH]) or [None]


def _hold(floor: Floor, policy: Policy, part: Part, label: str | None, place: SliceName | None) -> RuleResult:
    try:
        found = measure(part, floor.metric, label, level=1 - policy.alpha)
    except Unmeasurable as exc:
        return _missing(floor, label, place, str(exc), part.n_scored)
    min_n = floor.min_n or policy.min_n
    status, needed, reason = judge_floor(found, floor.min, min_n, floor.proof or policy.proof)
    reason += f" ({found.note})" if found.note else ""
    if floor.severity == "warn" and status is not Status.PASS:
        status, reason = Status.WARN, f"{reason}; only a warning by its severity"
    return RuleResult(
        name=_name(floor, label, place),
        metric=floor.metric,
        label=label,
        slice=place,
        status=status,
        observed=found.observed,
        interval=Interval(low=found.low, high=found.high),
        threshold=floor.min,
        n=found.n,
        n_needed=needed,
        reason=reason,
    )


def judge_floor(found: Measure, floor: float, min_n: int, proof: Proof) -> tuple[Status, int | None, str]:
    """Status, examples needed, reason. What is surely below blocks however few examples there are."""
    if found.high < floor:
        return Status.BLOCK, None, "the whole interval lies below the floor"
    if found.n_scored < min_n:
        return Status.INCONCLUSIVE, min_n, f"{found.n_scored} scored examples; the policy asks for at least {min_n}"
    if found.low >= floor:
        return Status.PASS, None, "the whole interval lies at or above the floor"
    if proof == "interval":
        if math.isclose(found.observed, floor, abs_tol=1e-12):
            return Status.INCONCLUSIVE, None, "the figure is exactly the floor: no number of examples would tell"
        needed = found.needed(floor)
        return Status.INCONCLUSIVE, needed, "the interval holds the floor: there are too few examples to tell"
    if found.observed >= floor:
        return Status.WARN, found.needed(floor), "at or above the floor by the best estimate, which may be chance"
    return Status.BLOCK, None, "below the floor by the best estimate"


def _missing(floor: Floor, label: str | None, place: SliceName | None, reason: str, n: int) -> RuleResult:
    """`n`: over so many scored examples there is no such figure."""
    return RuleResult(
        name=_name(floor, label, place),
        metric=floor.metric,
        label=label,
        slice=place,
        status=Status.WARN if floor.severity == "warn" else Status.MISSING,
        threshold=floor.min,
        n=n,
        reason=reason,
    )


def _name(floor: Floor, label: str | None, place: SliceName | None) -> str:
    """The rule's own name, or what it is; with its label and value where it stands for several."""
    name = floor.name or f"floor {floor.metric}"
    if floor.labels == "binary" and floor.name is None:
        name += " (binary)"
    return name + part_name(floor, label, place)


def part_name(rule: Rule, label: str | None, place: SliceName | None) -> str:
    """How a part is called after a rule's name; one that stands for several, and has found none, says so."""
    text = ""
    if rule.label == EACH:
        text = " of each label" if label is None else f" of {label}"
    elif rule.name is None and label is not None:
        text = f" of {label}"
    if place is not None:
        return f"{text} where {place.path} is {slice_value(place.value)}"
    return text if rule.slice is None else f"{text} for each {rule.slice.path}"
