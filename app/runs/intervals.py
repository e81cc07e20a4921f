"""Intervals of figures that have no formula: percentiles over drawn confusion matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from app.runs.figures import AverageIntervals, Clustered, Interval, Resampling, Scores
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


@dataclass(frozen=True)
class Observations:
    """Scored examples one by one, for when they are not independent: arrays of equal length.

    `names` tell which belong together; `expected` and `predicted` are indexes into `labels`, which are all different.
    """

    unit: Literal["repeats", "group"]
    names: Integers
    expected: Integers
    predicted: Integers
    labels: Sequence[str]

    def collapsed(self, collapse: Callable[[str], str]) -> Observations:
        """The same examples with every label replaced by what `collapse` makes of it."""
        return self.coded([collapse(label) for label in self.labels], None)

    def coded(self, labels: Sequence[str], order: Sequence[str] | None) -> Observations:
        """The same examples with label i called `labels[i]`, as indexes into `order`, which holds every one of them."""
        order = list(dict.fromkeys(labels)) if order is None else order
        place = {label: index for index, label in enumerate(order)}
        codes = np.array([place[label] for label in labels], dtype=np.int64)
        return Observations(self.unit, self.names, codes[self.expected], codes[self.predicted], order)


def with_resampled(scores: Scores, tally: Tally, order: Sequence[str], seen: Observations | None = None) -> Scores:
    """`scores` with the intervals that need resampling. `seen` = the examples, where they come in clusters.

    Unchanged, with no word on resampling, when nothing was scored or there are more than `MAX_LABELS` labels.
    """
    labels = labels_of(tally, order)
    if not scores.n_scored or len(labels) > MAX_LABELS:
        return scores
    if seen is None:
        draws = bootstrap.resample_cells(matrix_of(tally, labels), seed=SEED)
        note = Resampling(unit="example", n_units=scores.n_scored, resamples=RESAMPLES, seed=SEED)
        return _filled(scores, draws, note, None)
    seen = seen.coded(seen.labels, labels)
    clusters = find_clusters(seen.names, seen.expected * len(labels) + seen.predicted, len(labels) ** 2)
    number = resamples_for(clusters)
    draws = resample_clusters(clusters, len(labels), resamples=number, seed=SEED)
    note = Resampling(unit=seen.unit, n_units=clusters.count, resamples=number, seed=SEED)
    return _filled(scores, draws, note, clustered_accuracy(seen))


def clustered_accuracy(seen: Observations, *, level: float = 0.95) -> Clustered:
    """Wilson's interval of accuracy at the size that the clustered examples are worth."""
    right = (seen.expected == seen.predicted).astype(np.float64)
    size = effective_size(sum_by_cluster(seen.names, right), level=level)
    low, high = wilson_of_share(float(right.mean()), size, level=level)
    return Clustered(interval=Interval(low=low, high=high), design_effect=len(right) / size, effective_n=size)


def _filled(scores: Scores, draws: Counts, note: Resampling, clustered: Clustered | None) -> Scores:
    def interval(value: float | None, statistic: Statistic) -> Interval | None:
        return None if value is None else of(value, statistic(draws))

    def of(value: float | None, values: Counts) -> Interval | None:
        found = None if value is None else percentiles(values)
        return None if found is None else Interval(low=found[0], high=found[1])

    def averages(kind: Literal["macro", "weighted"]) -> AverageIntervals:
        made = bootstrap.macro if kind == "macro" else bootstrap.weighted
        figures = getattr(scores, kind)
        return AverageIntervals(
            precision=interval(figures.precision, made(bootstrap.precisions)),
            recall=interval(figures.recall, made(bootstrap.recalls)),
            f1=interval(figures.f1, made(bootstrap.f1s)),
        )

    rows = zip(scores.intervals.per_label, scores.per_label, strict=True)
    f1s = bootstrap.f1s(draws).T
    update = {
        "per_label": tuple(
            row.model_copy(update={"f1": of(figures.f1, values)})
            for values, (row, figures) in zip(f1s, rows, strict=True)
        ),
        "accuracy_clustered": clustered,
        "macro": averages("macro"),
        "weighted": averages("weighted"),
        "balanced_accuracy": interval(scores.balanced_accuracy, bootstrap.balanced_accuracy),
        "matthews": interval(scores.matthews, bootstrap.matthews),
        "kappa": interval(scores.kappa, bootstrap.kappa),
        "resampling": note,
    }
    return scores.model_copy(update={"intervals": scores.intervals.model_copy(update=update)})
