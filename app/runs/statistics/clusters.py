"""Examples that come in groups: how much they know together, and drawing whole groups a million examples large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import stdtrit

from app.runs.statistics.bootstrap import BLOCK, RESAMPLES, Counts
from app.runs.statistics.proportion import normal_quantile

Integers = NDArray[np.int64]

DRAWS = 100_000_000
"""Draws that one report may take; beyond some 50,000 different clusters there are fewer resamples than usual."""

FEWEST = 200
"""Resamples that there are in any case."""


@dataclass(frozen=True)
class Clusters:
    """Clusters by what they hold: `patterns[p]` are the counts per cell of `sizes[p]` equal clusters, shape (P, cells).

    Equal clusters are kept once, because drawing C clusters with replacement is drawing how often each pattern comes.
    """

    patterns: csr_array
    sizes: Integers

    @property
    def count(self) -> int:
        """How many clusters there are."""
        return int(self.sizes.sum())


def find_clusters(names: Integers, cells: Integers, n_cells: int) -> Clusters:
    """Group observations by cluster. `names[i]` is observation i's cluster, `cells[i]` in 0..n_cells-1 what it shows.

    Needs at least one observation.
    """
    order = np.argsort(names, kind="stable")
    names, cells = names[order], cells[order]
    starts = np.flatnonzero(np.concatenate(([True], names[1:] != names[:-1])))
    lengths = np.diff(np.append(starts, len(names)))
    # Two clusters are equal when the sums of their cells' random marks are: independent of order, 64 bits.
    marks = np.random.default_rng(0).integers(0, 2**64, size=n_cells, dtype=np.uint64)
    sums = np.add.reduceat(marks[cells], starts)
    _, first, sizes = np.unique(sums, return_index=True, return_counts=True)
    kept = lengths[first]
    rows = np.repeat(np.arange(len(first)), kept)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(kept) - kept, kept)
    columns = cells[np.repeat(starts[first], kept) + within]
    patterns = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(first), n_cells))
    return Clusters(patterns, sizes.astype(np.int64))


def resamples_for(clusters: Clusters) -> int:
    """How many resamples are drawn of these clusters."""
    return max(FEWEST, min(RESAMPLES, DRAWS // len(clusters.sizes)))


def resample_clusters(clusters: Clusters, k: int, *, resamples: int, seed: int = 0) -> Counts:
    """Confusion matrices of shape (resamples, k, k), each of as many clusters drawn with replacement.

    As `bootstrap.resample`, in the memory of the patterns; a cell is expected * k + predicted.
    """
    rng = np.random.default_rng(seed)
    patterns, count = len(clusters.sizes), clusters.count
    block = max(1, BLOCK // patterns)
    shares = clusters.sizes / count
    drawn = [
        rng.multinomial(count, shares, size=min(block, resamples - start)).astype(np.float64) @ clusters.patterns
        for start in range(0, resamples, block)
    ]
    return np.concatenate(drawn).reshape(resamples, k, k)


@dataclass(frozen=True, slots=True)
class Sums:
    """Per cluster: how many observations, and the sum of a figure over them."""

    n: Integers
    total: Counts


def sum_by_cluster(names: Integers, values: Counts) -> Sums:
    """Sizes and sums of `values` by cluster."""
    _, inverse = np.unique(names, return_inverse=True)
    total: Counts = np.bincount(inverse, weights=values).astype(np.float64)
    return Sums(np.bincount(inverse).astype(np.int64), total)


def variance_of_mean(sums: Sums) -> float | None:
    """The variance of the mean over all observations when whole clusters were drawn; None for a single cluster.

    The linearised ratio estimator (Cochran, Sampling Techniques (1977), section 9A.2), with C / (C - 1).
    """
    count, n = len(sums.n), int(sums.n.sum())
    if count < 2:
        return None
    residual = sums.total - sums.total.sum() / n * sums.n
    return float((residual**2).sum()) / n**2 * count / (count - 1)


def effective_size(sums: Sums, *, level: float = 0.95) -> float:
    """As how many independent trials these clustered ones count, at least 1 and at most their number.

    n over the design effect (Kish, Survey Sampling (1965), section 5.4), for few clusters reduced by (z / t)^2 (Korn
    and Graubard, Survey Methodology 24 (1998) 193). `sums.total` counts successes. With a share of 0 or 1 there is no
    variance to compare, and observations of one cluster count as copies of each other.
    """
    n = int(sums.n.sum())
    share = float(sums.total.sum()) / n
    variance = variance_of_mean(sums)
    if variance is None:
        return 1.0
    independent = share * (1 - share) / n
    effect = variance / independent if independent > 0 else float((sums.n**2).sum()) / n
    t = float(stdtrit(len(sums.n) - 1, 0.5 + level / 2))
    return max(1.0, min(float(n), n / max(1.0, effect) * (normal_quantile(level) / t) ** 2))
