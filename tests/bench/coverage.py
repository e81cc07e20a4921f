"""`uv run python -m tests.bench.coverage`: how often each interval holds the truth, as tables in docs/statistics.md."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import stdtrit
from scipy.stats import binom, multinomial

from app.runs.statistics import bootstrap
from app.runs.statistics.bootstrap import Counts, Statistic, percentiles
from app.runs.statistics.clusters import effective_size, sum_by_cluster, variance_of_mean
from app.runs.statistics.paired import PairedCounts, paired_difference
from app.runs.statistics.proportion import wilson, wilson_of_share

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "statistics.md"
BEGIN, END = "<!-- coverage: begin -->", "<!-- coverage: end -->"
LEVEL = 0.95

SIZES = (10, 20, 50, 100, 200, 500, 1_000)
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""The fixed grid; shares above 1/2 mirror those below."""

FINE = 0.0005
"""The step of the search for dips."""


# --- Wilson: exact, by adding up every outcome ------------------------------------------------------------------------


def wilson_ends(n: int) -> tuple[Counts, Counts]:
    """Both ends for every number of successes."""
    ends = np.array([wilson(k, n, level=LEVEL) for k in range(n + 1)])
    return ends[:, 0], ends[:, 1]


def wilson_coverage(n: int, p: float) -> float:
    """The probability that the interval from n trials holds p."""
    low, high = wilson_ends(n)
    return float(binom.pmf(np.arange(n + 1), n, p)[(low <= p) & (p <= high)].sum())


def wilson_dip(n: int) -> tuple[float, float]:
    """The worst coverage over a fine grid of shares up to 1/2, closer still where few successes come, and where."""
    low, high = wilson_ends(n)
    shares = np.union1d(np.arange(1, round(0.5 / FINE) + 1) * FINE, np.arange(1, min(500, 50 * n)) * 0.01 / n)
    holds = (low[:, None] <= shares) & (shares <= high[:, None])
    cover = (binom.pmf(np.arange(n + 1)[:, None], n, shares) * holds).sum(axis=0)
    worst = int(cover.argmin())
    return float(cover[worst]), float(shares[worst])


# --- Newcombe's paired interval: exact --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs:
    """Probabilities of a pair: right in both, corrected, broke, wrong in both."""

    name: str
    shares: tuple[float, float, float, float]


PAIRS = (
    Pairs("both 0.9, few change", (0.88, 0.02, 0.02, 0.08)),
    Pairs("both 0.8, many change", (0.70, 0.10, 0.10, 0.10)),
    Pairs("falls by 0.05", (0.83, 0.02, 0.07, 0.08)),
    Pairs("falls by 0.2", (0.60, 0.05, 0.25, 0.10)),
    Pairs("hardly anything changes", (0.945, 0.005, 0.005, 0.045)),
)


def paired_coverage(n: int, pairs: Pairs) -> float:
    """The probability that the interval from n pairs holds the true difference, over every possible table."""
    truth = pairs.shares[1] - pairs.shares[2]
    tables = np.array(list(_tables(n)))
    weights = multinomial.pmf(tables, n, pairs.shares)
    likely = weights > 1e-9
    covered = 0.0
    for table, weight in zip(tables[likely], weights[likely], strict=True):
        _, low, high = paired_difference(PairedCounts(*map(int, table)), level=LEVEL)
        covered += float(weight) if low <= truth <= high else 0.0
    return covered / float(weights[likely].sum())


def _tables(n: int) -> Iterator[tuple[int, int, int, int]]:
    for a in range(n + 1):
        for b in range(n + 1 - a):
            for c in range(n + 1 - a - b):
                yield a, b, c, n - a - b - c


# --- the bootstrap: by simulation -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """A figure and a true confusion matrix of probabilities."""

    name: str
    statistic: Statistic
    matrix: Sequence[Sequence[float]]


TWO = ((0.45, 0.05), (0.10, 0.40))
RARE = ((0.88, 0.02), (0.03, 0.07))
THREE = ((0.30, 0.03, 0.02), (0.05, 0.25, 0.05), (0.02, 0.03, 0.25))
FIGURES = (
    Figure("F1, balanced", bootstrap.f1_of(1), TWO),
    Figure("F1, label of 10 %", bootstrap.f1_of(1), RARE),
    Figure("macro F1, 3 labels", bootstrap.macro_f1, THREE),
    Figure("kappa, 3 labels", bootstrap.kappa, THREE),
    Figure("kappa, label of 10 %", bootstrap.kappa, RARE),
    Figure("Matthews, label of 10 %", bootstrap.matthews, RARE),
)


def bootstrap_coverage(figure: Figure, n: int, *, runs: int, resamples: int, seed: int) -> float:
    """In how many of `runs` simulated runs of n examples the percentile interval holds the true figure."""
    rng = np.random.default_rng(seed)
    truth = np.array(figure.matrix)
    k = len(truth)
    value = float(figure.statistic(truth[None])[0])
    data = rng.multinomial(n, truth.ravel(), size=runs)
    covered = 0
    for block in np.array_split(data, max(1, runs // 50)):
        draws = rng.multinomial(n, (block / n)[:, None, :], size=(len(block), resamples)).astype(np.float64)
        values = figure.statistic(draws.reshape(-1, k, k)).reshape(len(block), resamples)
        covered += sum(_holds(one, value) for one in values)
    return covered / runs


def _holds(values: Counts, truth: float) -> bool:
    ends = percentiles(values, level=LEVEL)
    return ends is not None and ends[0] <= truth <= ends[1]


# --- clusters: by simulation ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Groups:
    """`count` groups of `size` examples; `likeness` is the correlation of two examples of one group."""

    count: int
    size: int
    likeness: float
    share: float = 0.85

    @property
    def name(self) -> str:
        return f"{self.count} groups of {self.size}, correlation {self.likeness}"

    def draw(self, rng: np.random.Generator) -> Counts:
        """Right answers of each group (beta-binomial)."""
        spread = (1 - self.likeness) / self.likeness
        shares = rng.beta(self.share * spread, (1 - self.share) * spread, size=self.count)
        return rng.binomial(self.size, shares).astype(np.float64)


GROUPS = (
    Groups(10, 20, 0.1),
    Groups(20, 20, 0.1),
    Groups(50, 20, 0.1),
    Groups(20, 50, 0.3),
    Groups(50, 10, 0.3),
    Groups(200, 5, 0.3),
    Groups(200, 5, 0.3, share=0.97),
)


@dataclass(frozen=True)
class ClusterCoverage:
    """How often three intervals of accuracy hold the truth: blind to groups, at the effective size, resampled."""

    blind: float
    effective: float
    resampled: float


def cluster_coverage(groups: Groups, *, runs: int, resamples: int, seed: int) -> ClusterCoverage:
    rng = np.random.default_rng(seed)
    n, hits = groups.count * groups.size, np.zeros(3)
    names = np.repeat(np.arange(groups.count), groups.size)
    for _ in range(runs):
        right = groups.draw(rng)
        share = float(right.sum()) / n
        flat = (np.tile(np.arange(groups.size), (groups.count, 1)) < right[:, None]).ravel().astype(np.float64)
        weights = rng.multinomial(groups.count, np.full(groups.count, 1 / groups.count), size=resamples)
        ends = (
            wilson_of_share(share, n, level=LEVEL),
            wilson_of_share(share, effective_size(sum_by_cluster(names, flat)), level=LEVEL),
            percentiles(weights @ right / n, level=LEVEL),
        )
        hits += [one is not None and one[0] <= groups.share <= one[1] for one in ends]
    return ClusterCoverage(*(float(one) for one in hits / runs))


def grouped_difference_coverage(groups: Groups, *, runs: int, seed: int) -> float:
    """How often Student's interval over groups holds a true difference of 0, both sides sharing the groups' shares."""
    rng = np.random.default_rng(seed)
    hits = 0
    names = np.repeat(np.arange(groups.count), groups.size)
    reach = float(stdtrit(groups.count - 1, 0.5 + LEVEL / 2))
    for _ in range(runs):
        change = groups.draw(rng) - groups.draw(rng)
        flat = np.repeat(change / groups.size, groups.size)
        variance = variance_of_mean(sum_by_cluster(names, flat))
        hits += variance is not None and abs(float(flat.mean())) <= reach * math.sqrt(variance)
    return hits / runs


# --- the tables -------------------------------------------------------------------------------------------------------


def wilson_table() -> list[str]:
    lines = ["| n | " + " | ".join(f"p = {p}" for p in SHARES) + " | worst of all p | at p |"]
    lines.append("|---:" * (len(SHARES) + 3) + "|")
    for n in SIZES:
        cover = " | ".join(f"{wilson_coverage(n, p):.3f}" for p in SHARES)
        dip, where = wilson_dip(n)
        lines.append(f"| {n:,} | {cover} | {dip:.3f} | {where:.5f} |")
    return lines


def paired_table(sizes: Sequence[int] = (20, 50, 100)) -> list[str]:
    lines = ["| pairs that | " + " | ".join(f"n = {n}" for n in sizes) + " |", "|---" + "|---:" * len(sizes) + "|"]
    for pairs in PAIRS:
        lines.append(f"| {pairs.name} | " + " | ".join(f"{paired_coverage(n, pairs):.3f}" for n in sizes) + " |")
    return lines


def bootstrap_table(sizes: Sequence[int] = (50, 100, 200, 500, 1_000), *, runs: int = 2_000) -> list[str]:
    lines = ["| figure | " + " | ".join(f"n = {n:,}" for n in sizes) + " |", "|---" + "|---:" * len(sizes) + "|"]
    for number, figure in enumerate(FIGURES):
        cover = [bootstrap_coverage(figure, n, runs=runs, resamples=1_000, seed=100 * number + n) for n in sizes]
        lines.append(f"| {figure.name} | " + " | ".join(f"{one:.3f}" for one in cover) + " |")
    return lines


def cluster_table(*, runs: int = 2_000) -> list[str]:
    lines = ["| groups | accuracy | blind Wilson | Wilson at the effective size | resampled groups | difference, t |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for number, groups in enumerate(GROUPS):
        one = cluster_coverage(groups, runs=runs, resamples=1_000, seed=number)
        difference = grouped_difference_coverage(groups, runs=runs, seed=1_000 + number)
        cover = " | ".join(f"{each:.3f}" for each in (one.blind, one.effective, one.resampled, difference))
        lines.append(f"| {groups.name} | {groups.share} | {cover} |")
    return lines


def tables() -> str:
    """All of them, as they stand in the document."""
    parts = [
        ("Wilson, exact", wilson_table()),
        ("Newcombe's interval of a paired difference, exact", paired_table()),
        ("Percentile bootstrap, 2,000 simulated runs of 1,000 resamples (standard error 0.005)", bootstrap_table()),
        ("Examples in groups, 2,000 simulated runs (standard error 0.005)", cluster_table()),
    ]
    return "\n\n".join(f"**{title}**\n\n" + "\n".join(lines) for title, lines in parts)


def main() -> None:
    """Put the tables into the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}", encoding="utf-8", newline="\n")
    print(f"wrote {DOCUMENT}")


if __name__ == "__main__":
    main()
