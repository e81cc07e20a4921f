"""From counts to figures: everything a report says is derived from how often which label met which.

Counts are all that is needed, so that a database can group a million records and nothing is held in memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from app.runs.model import (
    AccuracyBounds,
    Averages,
    Confusion,
    Interval,
    Intervals,
    LabelIntervals,
    LabelMetrics,
    Scores,
    Undefined,
)

Z_95 = 1.959963984540054
"""The 97.5 % quantile of the standard normal distribution."""

NO_PREDICTED = "the label was never predicted"
NO_EXPECTED = "no scored example has this label"
NO_EITHER = "the label was neither expected nor predicted among the scored examples"
NO_SCORED = "no example was scored"
NO_EXAMPLES = "there are no examples"

Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class Tally:
    """What is counted: `scored[expected, predicted]`, `failed[expected, kind]`, and all examples there are.

    `n_total` may exceed both together: the rest has no record yet and counts as unscored.
    """

    n_total: int
    scored: Mapping[Pair, int] = field(default_factory=dict)
    failed: Mapping[Pair, int] = field(default_factory=dict)

    @property
    def n_scored(self) -> int:
        return sum(self.scored.values())

    @property
    def n_failed(self) -> int:
        return sum(self.failed.values())

    def collapsed(self, collapse: Callable[[str], str]) -> Tally:
        """The same counts with every label replaced by what `collapse` makes of it."""
        scored: Counter[Pair] = Counter()
        failed: Counter[Pair] = Counter()
        for (expected, predicted), n in self.scored.items():
            scored[collapse(expected), collapse(predicted)] += n
        for (expected, kind), n in self.failed.items():
            failed[collapse(expected), kind] += n
        return Tally(self.n_total, scored, failed)


def wilson(successes: int, n: int, z: float = Z_95) -> Interval | None:
    """The Wilson score interval of a proportion; None when `n` is 0.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927),
    209-212; without continuity correction.
    """
    if n == 0:
        return None
    p = successes / n
    denominator = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / denominator
    half = z / denominator * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    # At the ends the formula gives exactly 0 and 1; floating point must not move them.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return Interval(low=low, high=high)


def score(tally: Tally, order: Iterable[str] = ()) -> Scores:
    """The figures of one tally. Labels stand in `order` first (a profile's, harmless to severe), then by name.

    Precision TP/(TP+FP), recall TP/(TP+FN), F1 2TP/(2TP+FP+FN) (van Rijsbergen, "Information Retrieval", 1979, ch. 7).
    Macro averages are plain means and weighted ones means by support, each over the labels where the figure is defined;
    what is undefined is null and listed in `undefined` with its reason.
    """
    labels = _labels(tally, order)
    rows = [_LabelCounts.of(tally, label) for label in labels]
    per_label = tuple(row.metrics() for row in rows)
    n_scored, correct = tally.n_scored, sum(row.tp for row in rows)
    return Scores(
        total=tally.n_total,
        correct=correct,
        accuracy=_ratio(correct, n_scored),
        per_label=per_label,
        n_scored=n_scored,
        n_failed=tally.n_failed,
        accuracy_bounds=_bounds(correct, n_scored, tally.n_total),
        intervals=Intervals(accuracy=wilson(correct, n_scored), per_label=tuple(row.intervals() for row in rows)),
        macro=_average(per_label, weighted=False),
        weighted=_average(per_label, weighted=True),
        confusion=_confusion(tally, labels),
        undefined=tuple(_undefined(tally, rows)),
    )


@dataclass(frozen=True, slots=True)
class _LabelCounts:
    label: str
    tp: int
    expected: int
    predicted: int

    @classmethod
    def of(cls, tally: Tally, label: str) -> _LabelCounts:
        scored = tally.scored.items()
        return cls(
            label,
            tp=tally.scored.get((label, label), 0),
            expected=sum(n for (expected, _), n in scored if expected == label),
            predicted=sum(n for (_, predicted), n in scored if predicted == label),
        )

    def metrics(self) -> LabelMetrics:
        return LabelMetrics(
            label=self.label,
            precision=_ratio(self.tp, self.predicted),
            recall=_ratio(self.tp, self.expected),
            f1=_ratio(2 * self.tp, self.predicted + self.expected),  # 2TP + FP + FN
            support=self.expected,
        )

    def intervals(self) -> LabelIntervals:
        return LabelIntervals(
            label=self.label, precision=wilson(self.tp, self.predicted), recall=wilson(self.tp, self.expected)
        )


def _labels(tally: Tally, order: Iterable[str]) -> list[str]:
    seen = {label for pair in tally.scored for label in pair} | {expected for expected, _ in tally.failed}
    first = [label for label in order if label in seen]
    return first + sorted(seen - set(first))


def _ratio(numerator: int, denominator: int) -> float | None:
    return numerator / denominator if denominator else None


def _bounds(correct: int, n_scored: int, n_total: int) -> AccuracyBounds:
    return AccuracyBounds(worst=_ratio(correct, n_total), best=_ratio(correct + n_total - n_scored, n_total))


def _average(rows: Iterable[LabelMetrics], *, weighted: bool) -> Averages:
    kept = list(rows)

    def mean(values: Iterable[tuple[float | None, int]]) -> float | None:
        defined = [(value, support if weighted else 1) for value, support in values if value is not None]
        weight = sum(w for _, w in defined)
        return math.fsum(value * w for value, w in defined) / weight if weight else None

    return Averages(
        precision=mean((row.precision, row.support) for row in kept),
        recall=mean((row.recall, row.support) for row in kept),
        f1=mean((row.f1, row.support) for row in kept),
    )


def _confusion(tally: Tally, labels: list[str]) -> Confusion:
    matrix = tuple(tuple(tally.scored.get((row, column), 0) for column in labels) for row in labels)
    return Confusion(labels=tuple(labels), matrix=matrix)


def _undefined(tally: Tally, rows: Iterable[_LabelCounts]) -> Iterable[Undefined]:
    if tally.n_scored == 0:
        names = (
            "accuracy",
            *(f"{kind}.{name}" for kind in ("macro", "weighted") for name in ("precision", "recall", "f1")),
        )
        yield from (Undefined(metric=name, reason=NO_SCORED) for name in names)
    elif not any(row.predicted and row.expected for row in rows):
        yield Undefined(metric="weighted.precision", reason="no label was both expected and predicted")
    if tally.n_total == 0:
        yield from (Undefined(metric=f"accuracy_bounds.{end}", reason=NO_EXAMPLES) for end in ("worst", "best"))
    for row in rows:
        if not row.predicted:
            yield Undefined(metric="precision", label=row.label, reason=NO_PREDICTED)
        if not row.expected:
            yield Undefined(metric="recall", label=row.label, reason=NO_EXPECTED)
        if not row.predicted and not row.expected:
            yield Undefined(metric="f1", label=row.label, reason=NO_EITHER)
