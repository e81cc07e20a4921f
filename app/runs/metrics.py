"""From counts to figures: everything a report says is derived from how often which label met which.

Counts are all that is needed, so that a database can group a million records and nothing is held in memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.runs.figures import (
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
from app.runs.statistics import agreement, proportion
from app.runs.tally import Tally

MAX_MATRIX = 200
"""Labels that a confusion matrix shows; a report must not grow with the square of what a system invents."""

NO_PREDICTED = "the label was never predicted"
NO_EXPECTED = "no scored example has this label"
NO_EITHER = "the label was neither expected nor predicted among the scored examples"
NO_SCORED = "no example was scored"
NO_EXAMPLES = "there are no examples"


def wilson(successes: int, n: int, *, level: float = 0.95) -> Interval | None:
    """The Wilson score interval of a proportion; None when `n` is 0."""
    if n == 0:
        return None
    low, high = proportion.wilson(successes, n, level=level)
    return Interval(low=low, high=high)


def score(tally: Tally, order: Iterable[str] = ()) -> Scores:
    """The figures of one tally. Labels stand in `order` first (a profile's, harmless to severe), then by name.

    Precision TP/(TP+FP), recall TP/(TP+FN), F1 2TP/(2TP+FP+FN) (van Rijsbergen, "Information Retrieval", 1979, ch. 7).
    Macro averages are plain means and weighted ones means by support, each over the labels where the figure is defined;
    what is undefined is null and listed in `undefined` with its reason.
    """
    labels = labels_of(tally, order)
    rows = _LabelCounts.all(tally, labels)
    per_label = tuple(row.metrics() for row in rows)
    n_scored, correct = tally.n_scored, sum(row.tp for row in rows)
    agreed, gaps = _agreement(tally, labels)
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
        **agreed,
        confusion=_confusion(tally, labels),
        undefined=(*_undefined(tally, rows), *gaps),
    )


@dataclass(frozen=True, slots=True)
class _LabelCounts:
    label: str
    tp: int
    expected: int
    predicted: int

    @classmethod
    def all(cls, tally: Tally, labels: Iterable[str]) -> list[_LabelCounts]:
        expected: Counter[str] = Counter()
        predicted: Counter[str] = Counter()
        for (one, other), n in tally.scored.items():
            expected[one] += n
            predicted[other] += n
        return [cls(name, tally.scored.get((name, name), 0), expected[name], predicted[name]) for name in labels]

    def metrics(self) -> LabelMetrics:
        return LabelMetrics(
            label=self.label,
            precision=_ratio(self.tp, self.predicted),
            recall=_ratio(self.tp, self.expected),
            f1=_ratio(2 * self.tp, self.predicted + self.expected),  # 2TP + FP + FN
            support=self.expected,
            n_predicted=self.predicted,
        )

    def intervals(self) -> LabelIntervals:
        return LabelIntervals(
            label=self.label, precision=wilson(self.tp, self.predicted), recall=wilson(self.tp, self.expected)
        )


def labels_of(tally: Tally, order: Iterable[str] = ()) -> list[str]:
    """Every label that occurs: those of `order` first, then by name."""
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
    shown = labels if len(labels) <= MAX_MATRIX else _most_frequent(tally, labels)
    matrix = tuple(tuple(tally.scored.get((row, column), 0) for column in shown) for row in shown)
    return Confusion(labels=tuple(shown), matrix=matrix, n_omitted=len(labels) - len(shown))


def _most_frequent(tally: Tally, labels: list[str]) -> list[str]:
    seen: Counter[str] = Counter()
    for pair, n in tally.scored.items():
        for label in set(pair):
            seen[label] += n
    kept = set(sorted(labels, key=lambda label: -seen[label])[:MAX_MATRIX])
    return [label for label in labels if label in kept]


def matrix_of(tally: Tally, labels: Sequence[str]) -> agreement.Matrix:
    """The confusion counts as an array: rows expected, columns predicted, in the order of `labels`."""
    place = {label: index for index, label in enumerate(labels)}
    matrix = np.zeros((len(labels), len(labels)))
    for (expected, predicted), n in tally.scored.items():
        matrix[place[expected], place[predicted]] = n
    return matrix


_AGREEMENT: Mapping[str, Callable[[agreement.Matrix], float]] = {
    "balanced_accuracy": agreement.balanced_accuracy,
    "matthews": agreement.matthews_correlation,
    "kappa": agreement.cohen_kappa,
}


def _agreement(tally: Tally, labels: list[str]) -> tuple[dict[str, float | None], list[Undefined]]:
    figures: dict[str, float | None] = dict.fromkeys(_AGREEMENT)
    if len(labels) > MAX_MATRIX:
        reason = f"there are more than {MAX_MATRIX} labels"
        return figures, [Undefined(metric=name, reason=reason) for name in figures]
    matrix, gaps = matrix_of(tally, labels), []
    for name, figure in _AGREEMENT.items():
        try:
            figures[name] = figure(matrix)
        except agreement.Undefined as exc:
            gaps.append(Undefined(metric=name, reason=str(exc)))
    return figures, gaps


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
