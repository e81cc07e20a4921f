"""Intervals of figures that have no formula: percentiles over drawn confusion matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from app.runs.figures import (
    AverageIntervals,
    Clustered,
    Interval,
    LabelMetrics,
    Resampling,
    Scores,
    Undefined,
)
from app.runs.metrics import labels_of, matrix_of
from app.runs.statistics import bootstrap
from app.runs.statistics.bootstrap import RESAMPLES, Counts, Statistic, percentiles
from app.runs.statistics.clusters import (
    Integers,
    effective_size,
    find_clusters,
    resample_clusters,
    resamples_for,
    sum_by_cluster,
)
from app.runs.statistics.proportion import wilson_of_share
from app.runs.tally import Tally

MAX_LABELS = 40
"""Labels up to which figures are resampled: 2,000 matrices of 40 by 40 are 26 MB."""

SEED = 20_261
"""Fixed, so that the same records always give the same report."""


MIN_CARRYING = 10
"""Examples with a label below which its F1 has no interval: resampling them draws the same few again and again."""

SAME = "every resample gives the same value: too few differing examples to say"
TOO_FEW = f"fewer than {MIN_CARRYING} scored examples carry the label: too few to say"
MOSTLY_UNDEFINED = "most resamples leave the figure undefined: too few examples to say"


@dataclass(frozen=True)
class Observations:
    """Answers one by one, for when they are not independent: arrays of equal length.

    `names` tell which belong together; `expected` and `predicted` are indexes into `labels`, which are all different;
    `predicted` is -1 where the example failed. `examples` tell which answer the same example, None = no two do.
    """

    unit: Literal["repeats", "group"]
    names: Integers
    expected: Integers
    predicted: Integers
    labels: Sequence[str]
    examples: Integers | None = None

    def scored(self) -> Observations | None:
        """Those that were scored; None when there are none."""
        kept = self.predicted >= 0
        if kept.all():
            return self
        return self.chosen(kept) if kept.any() else None

    def chosen(self, kept: NDArray[np.bool_]) -> Observations:
        """Those for which `kept` is true."""
        examples = None if self.examples is None else self.examples[kept]
        return replace(
            self,
            names=self.names[kept],
            expected=self.expected[kept],
            predicted=self.predicted[kept],
            examples=examples,
        )

    def filled(self, assigned: Counts) -> Observations:
        """With failed ones predicted as `assigned` says: `[i, j]` of those that expect i get j, in order of name."""
        predicted = self.predicted.copy()
        for row, counts in enumerate(assigned.astype(int)):
            places = np.flatnonzero((self.predicted < 0) & (self.expected == row))
            places = places[np.argsort(self.names[places], kind="stable")]
            predicted[places] = np.repeat(np.arange(len(counts)), counts)
        return replace(self, predicted=predicted)

    def collapsed(self, collapse: Callable[[str], str]) -> Observations:
        """The same examples with every label replaced by what `collapse` makes of it."""
        return self.coded([collapse(label) for label in self.labels], None)

    def coded(self, labels: Sequence[str], order: Sequence[str] | None) -> Observations:
        """The same examples with label i called `labels[i]`, as indexes into `order`, which holds every one of them."""
        order = list(dict.fromkeys(labels)) if order is None else order
        place = {label: index for index, label in enumerate(order)}
        codes = np.array([place[label] for label in labels], dtype=np.int64)
        predicted = np.where(self.predicted < 0, -1, codes[self.predicted])
        return replace(self, expected=codes[self.expected], predicted=predicted, labels=order)


def with_resampled(scores: Scores, tally: Tally, order: Sequence[str], seen: Observations | None = None) -> Scores:
    """`scores` with the intervals that need resampling. `seen` = the examples, where they come in clusters.

    Unchanged, with no word on resampling, when nothing was scored or there are more than `MAX_LABELS` labels.
    """
    labels = labels_of(tally, order)
    if not scores.n_scored or len(labels) > MAX_LABELS:
        return scores
    matrix = matrix_of(tally, labels)
    seen = None if seen is None else seen.scored()
    seen = None if seen is None else seen.coded(seen.labels, labels)
    draws, note = draw(matrix, seen)
    return _filled(scores, draws, carrying(matrix, seen), note, None if seen is None else clustered_accuracy(seen))


def draw(matrix: Counts, seen: Observations | None) -> tuple[Counts, Resampling]:
    """Resampled confusion matrices, and how they were made. Reports and gates draw alike.

    `seen` are the observations that `matrix` counts, where they come in clusters, as indexes into its labels.
    """
    if seen is None:
        note = Resampling(unit="example", n_units=int(matrix.sum()), resamples=RESAMPLES, seed=SEED)
        return bootstrap.resample_cells(matrix, seed=SEED), note
    k = len(matrix)
    clusters = find_clusters(seen.names, seen.expected * k + seen.predicted, k * k)
    number = resamples_for(clusters)
    note = Resampling(unit=seen.unit, n_units=clusters.count, resamples=number, seed=SEED)
    return resample_clusters(clusters, k, resamples=number, seed=SEED), note


def carrying(matrix: Counts, seen: Observations | None) -> Counts:
    """How many examples have each label, expected or predicted; an example that was asked several times is one."""
    if seen is None or seen.unit != "repeats":
        carriers: Counts = matrix.sum(axis=0) + matrix.sum(axis=1) - matrix.diagonal()
        return carriers
    pairs = np.concatenate([np.stack([seen.names, codes]) for codes in (seen.expected, seen.predicted)], axis=1)
    return np.bincount(np.unique(pairs, axis=1)[1], minlength=len(matrix)).astype(np.float64)


def clustered_accuracy(seen: Observations, *, level: float = 0.95) -> Clustered:
    """Wilson's interval of accuracy at the size that the clustered examples are worth. Failed ones are not right."""
    right = (seen.expected == seen.predicted).astype(np.float64)
    size = effective_size(sum_by_cluster(seen.names, right), level=level)
    low, high = wilson_of_share(float(right.mean()), size, level=level)
    return Clustered(interval=Interval(low=low, high=high), design_effect=len(right) / size, effective_n=size)


def _filled(scores: Scores, draws: Counts, carriers: Counts, note: Resampling, clustered: Clustered | None) -> Scores:
    """`carriers` counts for each label the examples that have it, expected or predicted."""
    gaps: list[Undefined] = []

    def either(found: Interval | str, metric: str, label: str | None) -> Interval | None:
        if isinstance(found, Interval):
            return found
        gaps.append(Undefined(metric=f"{metric}_interval", label=label, reason=found))
        return None

    def interval(metric: str, value: float | None, statistic: Statistic) -> Interval | None:
        if value is None:
            return None
        return either(ends_of(statistic(draws)), metric, None)

    def of_label(figures: LabelMetrics, values: Counts, n: float) -> Interval | None:
        if figures.f1 is None:
            return None
        return either(TOO_FEW if n < MIN_CARRYING else ends_of(values), "f1", figures.label)

    def averages(kind: Literal["macro", "weighted"]) -> AverageIntervals:
        made = bootstrap.macro if kind == "macro" else bootstrap.weighted
        figures = getattr(scores, kind)
        return AverageIntervals(
            precision=interval(f"{kind}.precision", figures.precision, made(bootstrap.precisions)),
            recall=interval(f"{kind}.recall", figures.recall, made(bootstrap.recalls)),
            f1=interval(f"{kind}.f1", figures.f1, made(bootstrap.f1s)),
        )

    rows = zip(scores.intervals.per_label, scores.per_label, strict=True)
    f1s = bootstrap.f1s(draws).T
    update = {
        "per_label": tuple(
            row.model_copy(update={"f1": of_label(figures, values, n)})
            for values, n, (row, figures) in zip(f1s, carriers, rows, strict=True)
        ),
        "accuracy_clustered": clustered,
        "macro": averages("macro"),
        "weighted": averages("weighted"),
        "balanced_accuracy": interval("balanced_accuracy", scores.balanced_accuracy, bootstrap.balanced_accuracy),
        "matthews": interval("matthews", scores.matthews, bootstrap.matthews),
        "kappa": interval("kappa", scores.kappa, bootstrap.kappa),
        "resampling": note,
    }
    intervals = scores.intervals.model_copy(update=update)
    return scores.model_copy(update={"intervals": intervals, "undefined": (*scores.undefined, *gaps)})


def ends_of(values: Counts, *, level: float = 0.95) -> Interval | str:
    """The interval of a figure's values over the draws, or why there is none."""
    found = percentiles(values, level=level)
    if found is None:
        return MOSTLY_UNDEFINED
    low, high = found
    return SAME if high - low < 1e-12 else Interval(low=low, high=high)
