"""A figure as a gate reads it: the worst that the unscored examples allow, and how sure it is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.gates.policy import Metric
from app.runs.intervals import MAX_LABELS, SEED, Observations, clustered_accuracy
from app.runs.metrics import labels_of, matrix_of
from app.runs.statistics import bootstrap
from app.runs.statistics.bootstrap import Counts, Statistic
from app.runs.statistics.clusters import effective_size, sum_by_cluster
from app.runs.statistics.proportion import trials_needed, trials_to_narrow, wilson_of_share
from app.runs.tally import Tally

UNSCORED = "\0unscored"
"""A label that no prediction can have, in whose column failed examples are counted as wrong."""


@dataclass(frozen=True)
class Part:
    """The examples that a figure is taken over. `effect` > 1 is the design effect of examples that come in groups."""

    tally: Tally
    order: Sequence[str]
    effect: float = 1.0
    observations: Observations | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure in the worst case, its interval, and over how many examples, `n_scored` of them scored.

    `needed(threshold)` is how many examples would put the interval on one side of a threshold.
    """

    observed: float
    low: float
    high: float
    n: int
    n_scored: int
    needed: Callable[[float], int | None]


class Unmeasurable(Exception):
    """There is no such figure; the message says why."""


def measure(part: Part, metric: Metric, label: str | None, *, level: float) -> Measure:
    """One figure of one part. `label` is given for precision, recall and f1, as it is compared.

    Every failed example counts as wrong: as a miss of its label; for the precision and F1 of another label as a false
    alarm. Intervals are Wilson's for proportions and percentiles of resamples, moved down by the same loss, for the
    rest. Raises `Unmeasurable`.
    """
    if not part.tally.n_scored:
        raise Unmeasurable("no example was scored")
    if metric in {"accuracy", "precision", "recall"}:
        return _proportion(part, *_shares(part.tally, metric, label), _effect(part, metric, label), level)
    return _resampled(part, metric, label, level)


def _shares(tally: Tally, metric: Metric, label: str | None) -> tuple[int, int, int]:
    """Right ones, all that count in the worst case, and how many of these are scored."""
    scored, failed = tally.scored.items(), tally.failed.items()
    if metric == "accuracy":
        right = sum(n for (expected, predicted), n in scored if expected == predicted)
        return right, tally.n_scored + tally.n_failed, tally.n_scored
    right = tally.scored.get((label or "", label or ""), 0)
    if metric == "recall":
        known = sum(n for (expected, _), n in scored if expected == label)
        return right, known + sum(n for (expected, _), n in failed if expected == label), known
    known = sum(n for (_, predicted), n in scored if predicted == label)
    if not known:
        raise Unmeasurable("the label was never predicted")
    return right, known + sum(n for (expected, _), n in failed if expected != label), known


def _proportion(part: Part, right: int, n: int, n_scored: int, effect: float, level: float) -> Measure:
    if not n:
        raise Unmeasurable("no example has this label")
    share = right / n
    low, high = wilson_of_share(share, n / effect, level=level)

    def needed(threshold: float) -> int | None:
        trials = trials_needed(share, threshold, level=level) if 0 < threshold < 1 else None
        return None if trials is None else math.ceil(trials * effect)

    return Measure(share, low, high, n, n_scored, needed)


def _effect(part: Part, metric: Metric, label: str | None) -> float:
    seen = part.observations
    if seen is None or label is None or label not in seen.labels:
        return part.effect
    code = list(seen.labels).index(label)
    chosen = (seen.expected if metric == "recall" else seen.predicted) == code
    if not chosen.any():
        return part.effect
    right = (seen.expected == seen.predicted)[chosen].astype(np.float64)
    return len(right) / effective_size(sum_by_cluster(seen.names[chosen], right))


_STATISTICS: dict[str, Statistic] = {
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
_LOWEST = {"matthews": -1.0, "kappa": -1.0}


def _resampled(part: Part, metric: Metric, label: str | None, level: float) -> Measure:
    labels = labels_of(part.tally, part.order)
    if len(labels) > MAX_LABELS:
        raise Unmeasurable(f"there are more than {MAX_LABELS} labels")
    if label is not None and label not in labels:
        raise Unmeasurable("no example has this label")
    statistic = _STATISTICS[metric] if label is None else bootstrap.f1_of(labels.index(label))
    matrix = matrix_of(part.tally, labels)
    seen = _one(statistic, matrix)
    found = bootstrap.percentile_interval(bootstrap.resample_cells(matrix, seed=SEED), statistic, level=level)
    if seen is None or found is None:
        raise Unmeasurable("the figure does not exist for these labels")
    worst = _worst(part.tally, labels, statistic, label)
    lowest, widen, loss = _LOWEST.get(metric, 0.0), math.sqrt(part.effect), seen - worst
    low = max(lowest, seen - widen * (seen - found[0]) - loss)
    high = min(1.0, seen + widen * (found[1] - seen) - loss)
    n = part.tally.n_scored + part.tally.n_failed

    def needed(threshold: float) -> int | None:
        gap = abs(worst - threshold)
        half = worst - low if worst >= threshold else high - worst
        return trials_to_narrow(n, half, gap)

    return Measure(worst, low, high, n, part.tally.n_scored, needed)


def _worst(tally: Tally, labels: Sequence[str], statistic: Statistic, label: str | None) -> float:
    """The figure with each failed example where it hurts: a false alarm of `label`, or a label of its own."""
    if not tally.n_failed:
        return _one(statistic, matrix_of(tally, labels)) or 0.0
    counts = Counter(tally.scored)
    for (expected, _), n in tally.failed.items():
        counts[expected, UNSCORED if label is None or expected == label else label] += n
    full = matrix_of(Tally(tally.n_total, counts), [*labels, UNSCORED])
    return _one(statistic, full) or 0.0


def _one(statistic: Statistic, matrix: Counts) -> float | None:
    value = float(statistic(matrix[None])[0])
    return value if math.isfinite(value) else None


def effect_of(seen: Observations | None) -> float:
    """The design effect of accuracy over grouped examples, at least 1."""
    return 1.0 if seen is None or not len(seen.names) else max(1.0, clustered_accuracy(seen).design_effect)
