"""Intervals of figures that have no formula, by resampling clusters of examples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2_000
BLOCK = 4_000_000
"""Cells held at once while resampling clusters, which bounds memory to about 32 MB."""

Counts = NDArray[np.float64]
Statistic = Callable[[Counts], Counts]
"""From confusion matrices of shape (B, K, K) to B values; NaN where a resample leaves the figure undefined."""


def resample(clusters: Counts, *, resamples: int = RESAMPLES, seed: int = 0) -> Counts:
    """`resamples` confusion matrices, shape (B, K, K), each of as many clusters drawn with replacement.

    `clusters` has shape (C, K, K): the confusion counts of each cluster. Clusters and not examples are drawn, since
    examples of one group are not independent (Davison and Hinkley, Bootstrap Methods (1997), section 3.8). With one
    example a cluster, use `resample_cells`.
    """
    rng = np.random.default_rng(seed)
    count, k, _ = clusters.shape
    flat = clusters.reshape(count, k * k)
    block = max(1, BLOCK // count)
    weights = (
        rng.multinomial(count, np.full(count, 1.0 / count), size=min(block, resamples - start))
        for start in range(0, resamples, block)
    )
    return np.concatenate([drawn @ flat for drawn in weights]).reshape(resamples, k, k)


def resample_cells(matrix: Counts, *, resamples: int = RESAMPLES, seed: int = 0) -> Counts:
    """As `resample` where every example is a cluster of its own: one multinomial over the cells, whatever n is."""
    n = int(matrix.sum())
    drawn = np.random.default_rng(seed).multinomial(n, (matrix / n).ravel(), size=resamples)
    return drawn.reshape(resamples, *matrix.shape).astype(np.float64)


def percentile_interval(draws: Counts, statistic: Statistic, *, level: float = 0.95) -> tuple[float, float] | None:
    """The central interval of `statistic` over the draws (Efron's percentile interval).

    Draws that leave the figure undefined are left out; None when they are more than half.
    """
    return percentiles(statistic(draws), level=level)


def percentiles(values: Counts, *, level: float = 0.95) -> tuple[float, float] | None:
    """The same of the figure's values over the draws."""
    defined = values[np.isfinite(values)]
    if len(defined) < len(values) / 2:
        return None
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(defined, [tail, 1.0 - tail])
    return float(low), float(high)


# --- statistics over a stack of confusion matrices ------------------------------------------------------------------


def precisions(stack: Counts) -> Counts:
    """Precision of each label, shape (B, K); NaN where it was never predicted."""
    return _divide(_hits(stack), stack.sum(axis=1))


def recalls(stack: Counts) -> Counts:
    """Recall of each label, shape (B, K); NaN where it was never expected."""
    return _divide(_hits(stack), stack.sum(axis=2))


def f1s(stack: Counts) -> Counts:
    """F1 of each label, shape (B, K); NaN where it is neither expected nor predicted."""
    return _divide(2.0 * _hits(stack), stack.sum(axis=2) + stack.sum(axis=1))


def f1_of(index: int) -> Statistic:
    """F1 of the label at `index`."""
    return lambda stack: f1s(stack)[:, index]


def macro(per_label: Statistic) -> Statistic:
    """Mean of a per-label figure over the labels for which it is defined."""

    def statistic(stack: Counts) -> Counts:
        return _mean(per_label(stack), np.ones(stack.shape[:2]))

    return statistic


def weighted(per_label: Statistic) -> Statistic:
    """Mean of a per-label figure, weighted by support, over the labels for which it is defined."""

    def statistic(stack: Counts) -> Counts:
        return _mean(per_label(stack), stack.sum(axis=2))

    return statistic


macro_f1: Statistic = macro(f1s)
balanced_accuracy: Statistic = macro(recalls)


def accuracy(stack: Counts) -> Counts:
    """Share of the matrix that lies on its diagonal."""
    return _divide(_hits(stack).sum(axis=1), stack.sum(axis=(1, 2)))


def kappa(stack: Counts) -> Counts:
    """Cohen's kappa; undefined where chance agreement is 1."""
    n = stack.sum(axis=(1, 2))
    chance = _divide((stack.sum(axis=2) * stack.sum(axis=1)).sum(axis=1), n**2)
    return _divide(accuracy(stack) - chance, 1.0 - chance)


def matthews(stack: Counts) -> Counts:
    """Matthews' coefficient; undefined where all are expected, or predicted, to have one label."""
    n = stack.sum(axis=(1, 2))
    expected, predicted = stack.sum(axis=2), stack.sum(axis=1)
    cover = _hits(stack).sum(axis=1) * n - (expected * predicted).sum(axis=1)
    spread = (n**2 - (expected**2).sum(axis=1)) * (n**2 - (predicted**2).sum(axis=1))
    return _divide(cover, np.sqrt(spread))


def _hits(stack: Counts) -> Counts:
    return np.diagonal(stack, axis1=1, axis2=2)


def _mean(values: Counts, weights: Counts) -> Counts:
    weights = np.where(np.isfinite(values), weights, 0.0)
    return _divide((np.nan_to_num(values) * weights).sum(axis=1), weights.sum(axis=1))


def _divide(top: Counts, bottom: Counts) -> Counts:
    quotient: Counts = np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom != 0)
    return quotient
