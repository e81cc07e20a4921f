"""How far a run falls behind its baseline in the worst case, how sure that is, and how many pairs would tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from app.runs.comparison import contrast, grouped_difference
from app.runs.contrasts import Contrast, WorstCase
from app.runs.pairing import Outcomes, Pairing
from app.runs.statistics.paired import PairedCounts, mcnemar, paired_difference_at

MOST_PAIRS = 10**9
"""More than anybody will ever ask; beyond it there is no telling."""


@dataclass(frozen=True)
class Fall:
    """What a comparison says of falling behind, in the worst case: difference, interval, and how likely it is chance.

    `sure` is the interval's upper end at a level that holds for all parts of a rule together. `needed(tolerated)` is
    how many pairs, coming out in the same shares, would settle it; None = no number would.
    """

    difference: float
    low: float
    high: float
    sure: float
    n: int
    p_value: float
    needed: Callable[[float], int | None]

    def exactly(self, tolerated: float) -> bool:
        """Whether the fall is what is tolerated, no more and no less."""
        return math.isclose(self.difference, -tolerated, abs_tol=1e-12)


@dataclass(frozen=True)
class _Worst:
    """The worst case with its interval; `below` and `above` are how far groups alone make the ends lie."""

    case: WorstCase
    counts: PairedCounts
    below: float
    above: float
    p_value: float

    def ends(self, n: float, alpha: float) -> tuple[float, float]:
        """The interval that `n` pairs in the same shares would have; what groups add goes with 1 / sqrt(n)."""
        difference, low, high = paired_difference_at(self.counts, n, level=1 - alpha)
        narrower = math.sqrt(self.case.n / n)
        return (
            max(-1.0, min(low, difference - self.below * narrower)),
            min(1.0, max(high, difference + self.above * narrower)),
        )


def fall_of(outcomes: Outcomes, pairing: Pairing, alpha: float, n_parts: int) -> Fall | None:
    """None when no pair of these could be compared. `n_parts`: of so many parts of one rule this is one."""
    found = _worst(outcomes, pairing, alpha)
    if found is None:
        return None
    low, high = found.ends(found.case.n, alpha)
    # One of many parts may look sure by chance: what blocks is held to Bonferroni's level.
    strict = _worst(outcomes, pairing, alpha / n_parts) if n_parts > 1 else None
    sure = strict.ends(found.case.n, alpha / n_parts)[1] if strict else high

    def needed(tolerated: float) -> int | None:
        if math.isclose(found.case.difference, -tolerated, abs_tol=1e-12):
            return None
        if found.case.difference > -tolerated:
            return _smallest(found.case.n, lambda n: found.ends(n, alpha)[0] >= -tolerated)
        return _smallest(found.case.n, lambda n: _blocks(strict or found, n, tolerated, alpha / n_parts))

    return Fall(found.case.difference, low, high, sure, found.case.n, found.p_value, needed)


def _blocks(worst: _Worst, n: int, tolerated: float, alpha: float) -> bool:
    """Whether so many pairs would show that the fall is larger than tolerated, or that it is real."""
    if worst.ends(n, alpha)[1] < -tolerated:
        return True
    factor = n / worst.case.n
    real = mcnemar(math.ceil(worst.case.corrected * factor), math.floor(worst.case.broke * factor)).exact < alpha
    return real and worst.case.difference + worst.above * math.sqrt(1 / factor) < 0


def _smallest(n: int, settled: Callable[[int], bool]) -> int | None:
    """The smallest number of pairs above `n` that settles it, when more always do."""
    below, enough = n, 2 * n
    while not settled(enough):
        if enough > MOST_PAIRS:
            return None
        below, enough = enough, 2 * enough
    while enough - below > 1:
        middle = (below + enough) // 2
        below, enough = (below, middle) if settled(middle) else (middle, enough)
    return enough


def _worst(outcomes: Outcomes, pairing: Pairing, alpha: float) -> _Worst | None:
    grouped = grouped_difference(pairing, alpha) if outcomes is pairing.strict else None
    made = contrast(outcomes, alpha, grouped=grouped)
    case = made.worst_case
    if case is None:
        return None
    p_value = max(mcnemar(case.corrected, case.broke).exact, grouped.p_value if grouped else 0.0)
    return _Worst(case, _counts(outcomes, case), *_by_groups(made), p_value)


def _counts(outcomes: Outcomes, case: WorstCase) -> PairedCounts:
    """The fourfold table of the worst case."""
    both_right = sum(n for (before, after), n in outcomes.grid.items() if before is not False and after is True)
    return PairedCounts(both_right, case.corrected, case.broke, case.n - both_right - case.corrected - case.broke)


def _by_groups(made: Contrast) -> tuple[float, float]:
    """How far below and above the difference its ends lie when examples come in groups."""
    if made.grouped is None or made.difference is None:
        return 0.0, 0.0
    return made.difference - made.grouped.interval.low, made.grouped.interval.high - made.difference
