"""The worst that unscored examples can do to a figure of the confusion matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.gates.policy import Metric
from app.runs.metrics import matrix_of
from app.runs.statistics import bootstrap, worst_case
from app.runs.statistics.bootstrap import Counts, Statistic
from app.runs.tally import Tally

NOWHERE = "\0nowhere"
"""What an unscored example is taken for in a run that knows one label: a miss of it."""

STATISTICS: Mapping[str, Statistic] = {
    "balanced_accuracy": bootstrap.balanced_accuracy,
    "matthews": bootstrap.matthews,
    "kappa": bootstrap.kappa,
    "macro.precision": bootstrap.macro(bootstrap.precisions),
    "macro.recall": bootstrap.macro(bootstrap.recalls),
    "macro.f1": bootstrap.macro(bootstrap.f1s),
    "weighted.precision": bootstrap.weighted(bootstrap.precisions),
    "weighted.recall": bootstrap.weighted(bootstrap.recalls),
    "weighted.f1": bootstrap.weighted(bootstrap.f1s),
}


@dataclass(frozen=True)
class Worst:
    """A figure and the counts that make it worst: `assigned[i, j]` of the failed that expect i are taken for j.

    `matrix` holds scored and assigned examples over `labels`. The figure is `statistic` of it; `bound` is lower where
    it is not known that no other assignment does worse. `lowest` is what the figure can be at least.
    """

    statistic: Statistic
    labels: Sequence[str]
    matrix: Counts
    assigned: Counts
    label: int | None = None
    bound: float = math.inf
    lowest: float = 0.0


def worst_of(tally: Tally, labels: Sequence[str], metric: Metric, label: str | None) -> Worst:
    """Every failed example with the one of the run's own `labels` that hurts the figure most.

    Exact over all assignments but for `matthews` with very many of them, where `bound` holds instead. A label that the
    run does not have is never assumed: it would add one with an F1 of 0 to every average.
    """
    index = None if label is None else list(labels).index(label)
    statistic = STATISTICS[metric] if index is None else bootstrap.f1_of(index)
    lowest = -1.0 if metric in {"matthews", "kappa"} else 0.0
    if len(labels) == 1:
        labels = [*labels, NOWHERE]
    matrix = matrix_of(Tally(tally.n_total, tally.scored), labels)
    failed = np.zeros(len(labels))
    for (expected, _), n in tally.failed.items():
        failed[list(labels).index(expected)] += n
    assigned, bound = _assigned(matrix, failed, metric, index)
    return Worst(
        statistic, labels, matrix + assigned, assigned, None if label is None else index, bound=bound, lowest=lowest
    )


def _assigned(matrix: Counts, failed: Counts, metric: Metric, label: int | None) -> tuple[Counts, float]:
    if not failed.any():
        return np.zeros_like(matrix), math.inf
    if label is not None:
        return worst_case.miss(matrix, failed, label), math.inf
    match metric:
        case "macro.f1" | "weighted.f1":
            average: worst_case.Average = "macro" if metric == "macro.f1" else "weighted"
            return worst_case.spread_f1(matrix, failed, average), math.inf
        case "macro.precision" | "weighted.precision":
            average = "macro" if metric == "macro.precision" else "weighted"
            return worst_case.spread_precision(matrix, failed, average), math.inf
        case "kappa":
            return worst_case.lower_kappa(matrix, failed), math.inf
        case "matthews":
            return worst_case.lower_matthews(matrix, failed)
        case _:
            return worst_case.miss(matrix, failed), math.inf
