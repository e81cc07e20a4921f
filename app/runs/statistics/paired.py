"""Two raters of the same items: is the difference real, how large is it, what could have been seen at this size."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.optimize import brentq
from scipy.special import bdtr, ndtri
from scipy.stats import binom

from app.runs.statistics.proportion import wilson_of_share


@dataclass(frozen=True, slots=True)
class PairedCounts:
    """How n items came out under a baseline (first) and a candidate (second): counts >= 0.

    `corrected`: wrong before, right now. `broke`: right before, wrong now.
    """

    both_right: int
    corrected: int
    broke: int
    both_wrong: int

    @property
    def n(self) -> int:
        """Number of pairs."""
        return self.both_right + self.corrected + self.broke + self.both_wrong

    @property
    def discordant(self) -> int:
        """Pairs that changed."""
        return self.corrected + self.broke


@dataclass(frozen=True, slots=True)
class McNemar:
    """Two-sided p-values of "as many corrected as broke"; both are 1 when nothing changed."""

    exact: float
    mid: float


def mcnemar(corrected: int, broke: int) -> McNemar:
    """Exact conditional McNemar test and its mid-p version.

    The exact p is the two-sided binomial test of min(corrected, broke) out of their sum at 1/2 (McNemar 1947). The
    mid-p subtracts half of the observed point's probability on each side (Fagerland, Lydersen and Laake 2013, BMC
    Medical Research Methodology 13:91): less conservative, and not guaranteed to hold its level.
    """
    n, k = corrected + broke, min(corrected, broke)
    if n == 0:
        return McNemar(1.0, 1.0)
    point = float(binom.pmf(k, n, 0.5))
    if corrected == broke:
        return McNemar(1.0, 1.0 - 0.5 * point)
    exact = min(1.0, 2.0 * float(bdtr(k, n, 0.5)))
    return McNemar(exact, max(0.0, exact - point))


def paired_difference(counts: PairedCounts, *, level: float = 0.95) -> tuple[float, float, float]:
    """Accuracy of the candidate minus that of the baseline, and its interval, each in -1..1.

    Newcombe's square-and-add interval for paired proportions (Statistics in Medicine 17 (1998), method 10): Wilson
    intervals of the two accuracies, combined with the pairs' correlation. Raises `ValueError` for n = 0.
    """
    if counts.n == 0:
        raise ValueError("no pairs")
    cells = (counts.both_right, counts.corrected, counts.broke, counts.both_wrong)
    return _square_and_add(cells, level)


def paired_difference_at(counts: PairedCounts, n: float, *, level: float = 0.95) -> tuple[float, float, float]:
    """The same for `n` > 0 pairs that come out in the shares of these."""
    factor = n / counts.n
    cells = (counts.both_right, counts.corrected, counts.broke, counts.both_wrong)
    return _square_and_add(tuple(cell * factor for cell in cells), level)


def _square_and_add(cells: tuple[float, ...], level: float) -> tuple[float, float, float]:
    both_right, corrected, broke, both_wrong = cells
    n = both_right + corrected + broke + both_wrong
    p_after, p_before = (both_right + corrected) / n, (both_right + broke) / n
    low_a, high_a = wilson_of_share(min(1.0, p_after), n, level=level)
    low_b, high_b = wilson_of_share(min(1.0, p_before), n, level=level)
    phi = _correlation(cells)
    down = _combined(p_after - low_a, high_b - p_before, phi)
    up = _combined(high_a - p_after, p_before - low_b, phi)
    difference = (corrected - broke) / n
    return difference, max(-1.0, difference - down), min(1.0, difference + up)


def _combined(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, one * one - 2.0 * phi * one * other + other * other))


def _correlation(cells: tuple[float, ...]) -> float:
    """Phi of the fourfold table with Newcombe's continuity correction (no correlation beyond what the data force)."""
    a, b, c, d = cells
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    if margins == 0:
        return 0.0
    cross = a * d - b * c
    if cross > 0:
        cross = max(cross - sum(cells) / 2, 0.0)
    return cross / math.sqrt(margins)


def minimum_detectable_difference(
    n: int, discordant_share: float, *, alpha: float = 0.05, power: float = 0.8
) -> float | None:
    """The smallest accuracy difference that McNemar's test finds with `power` among `n` pairs, in 0..1.

    `discordant_share` is the share of pairs that change, in 0..1. Solves Connor's sample size formula (Biometrics 43
    (1987) 207-211) for the difference. None when even a change of every discordant pair to one side would be missed.
    """
    if n <= 0 or discordant_share <= 0:
        return None
    z_alpha, z_beta = float(ndtri(1 - alpha / 2)), float(ndtri(power))

    def excess(difference: float) -> float:
        spread = math.sqrt(max(0.0, discordant_share - difference**2))
        return math.sqrt(n) * difference - z_alpha * math.sqrt(discordant_share) - z_beta * spread

    largest = min(discordant_share, math.sqrt(discordant_share))
    if excess(largest) < 0:
        return None
    return float(brentq(excess, 0.0, largest))


def pairs_needed(difference: float, discordant_share: float, *, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """How many pairs McNemar's test needs to find `difference` with `power` (Connor 1987); None when it never can."""
    size = abs(difference)
    if size == 0 or size > discordant_share:
        return None
    z_alpha, z_beta = float(ndtri(1 - alpha / 2)), float(ndtri(power))
    root = z_alpha * math.sqrt(discordant_share) + z_beta * math.sqrt(max(0.0, discordant_share - size**2))
    return math.ceil((root / size) ** 2)
