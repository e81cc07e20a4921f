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
    values = statistic(draws)
    defined = values[np.isfinite(values)]
    if len(defined) < len(values) / 2:
        return None
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(defined, [tail, 1.0 - tail])
    return float(low), float(high)


# --- statistics over a stack of confusion matrices ------------------------------------------------------------------


def f1_of(index: int) -> Statistic:
    """F1 of the label at `index`; undefined where it is neither expected nor predicted."""

    def statistic(stack: Counts) -> Counts:
        hits = stack[:, index, index]
        total = stack[:, index, :].sum(axis=1) + stack[:, :, index].sum(axis=1)
        return _divide(2.0 * hits, total)

    return statistic


def macro_f1(stack: Counts) -> Counts:
    """Mean F1 over the labels for which it is defined."""
    hits = np.diagonal(stack, axis1=1, axis2=2)
    per_label = _divide(2.0 * hits, stack.sum(axis=2) + stack.sum(axis=1))
    defined = np.isfinite(per_label)
    return _divide(np.where(defined, per_label, 0.0).sum(axis=1), defined.sum(axis=1).astype(np.float64))


def kappa(stack: Counts) -> Counts:
    """Cohen's kappa; undefined where chance agreement is 1."""
    n = stack.sum(axis=(1, 2))
    chance = _divide((stack.sum(axis=2) * stack.sum(axis=1)).sum(axis=1), n**2)
    observed = _divide(np.trace(stack, axis1=1, axis2=2), n)
    return _divide(observed - chance, 1.0 - chance)


def _divide(top: Counts, bottom: Counts) -> Counts:
    quotient: Counts = np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom != 0)
    return quotient
