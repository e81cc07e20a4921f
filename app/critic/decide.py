"""Adopt a critic or not: by rule, from counts."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.critic.figures import AxisEffect, ChallengeRate, Effect, Listed, Outcome
from app.critic.model import Adopt
from app.runs.statistics.multiple import holm
from app.runs.statistics.paired import PairedCounts, mcnemar

MAX_LISTED = 20


class Ids:
    """Counts ids and remembers the first few."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[str] = []

    def add(self, example_id: str) -> None:
        self.count += 1
        if len(self._first) < MAX_LISTED:
            self._first.append(example_id)

    def listed(self) -> Listed:
        return Listed(count=self.count, ids=tuple(self._first))


class Pairs:
    """Rows by whether they were right before and after."""

    def __init__(self) -> None:
        self.both_right = self.both_wrong = 0
        self.corrected, self.broke = Ids(), Ids()

    def add(self, example_id: str, *, before: bool, after: bool) -> None:
        if before == after:
            self.both_right += before
            self.both_wrong += not before
        else:
            (self.corrected if after else self.broke).add(example_id)

    @property
    def counts(self) -> PairedCounts:
        return PairedCounts(self.both_right, self.corrected.count, self.broke.count, self.both_wrong)


def effects(pairs: Mapping[str, Pairs], alpha: float, open_axes: Container[str]) -> tuple[AxisEffect, ...]:
    """What was shown on each axis. Only axes on which something could change are tests that luck could pass."""
    tests = {axis: mcnemar(each.corrected.count, each.broke.count).exact for axis, each in pairs.items()}
    family = [axis for axis in pairs if axis in open_axes]
    adjusted = tests | dict(zip(family, holm([tests[axis] for axis in family]), strict=True))
    return tuple(_effect(axis, each, tests[axis], adjusted[axis], alpha) for axis, each in pairs.items())


def _effect(axis: str, pairs: Pairs, p: float, adjusted: float, alpha: float) -> AxisEffect:
    counts = pairs.counts
    return AxisEffect(
        axis=axis,
        n=counts.n,
        corrected=pairs.corrected.listed(),
        broke=pairs.broke.listed(),
        accuracy_before=(counts.both_right + counts.broke) / counts.n if counts.n else None,
        accuracy_after=(counts.both_right + counts.corrected) / counts.n if counts.n else None,
        p_exact=p,
        p_adjusted=adjusted,
        effect=_shown(counts, p, adjusted, alpha),
    )


def _shown(counts: PairedCounts, p: float, adjusted: float, alpha: float) -> Effect:
    if counts.broke > counts.corrected and p < alpha:
        return "worse"
    return "better" if counts.corrected > counts.broke and adjusted < alpha else "no_difference_shown"


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the outcome depends on. `control` None = there is none. Shares are in 0..1, of all rows."""

    axes: Sequence[AxisEffect]
    control: Sequence[AxisEffect] | None
    admitted: ChallengeRate
    unreviewed: float
    finished: bool = True


def decide(facts: Facts, adopt: Adopt) -> tuple[Outcome, tuple[str, ...]]:
    """The outcome and its reasons, in this order: a significant harm on any axis, of the run or of its control,
    declines; whatever keeps the figures from saying anything is inconclusive; a significant benefit adopts.
    """
    harms = [_sentence(axis, "harm") for axis in facts.axes if axis.effect == "worse"]
    harms += [_sentence(axis, "harm on the control") for axis in facts.control or () if axis.effect == "worse"]
    if harms:
        return "DECLINE", tuple(harms)
    doubts = list(_doubts(facts, adopt))
    gains = [_sentence(axis, "benefit") for axis in facts.axes if axis.effect == "better"]
    if not gains:
        doubts.append("no axis shows a benefit that is more than chance")
    return ("INCONCLUSIVE", tuple(doubts)) if doubts else ("ADOPT", tuple(gains))


def _doubts(facts: Facts, adopt: Adopt) -> Iterable[str]:
    if not facts.finished:
        yield "the run has not come to its end"
    if facts.unreviewed > adopt.max_unreviewed:
        yield (
            f"{facts.unreviewed:.1%} of the rows failed, were salvaged or were not reviewed; "
            f"at most {adopt.max_unreviewed:.1%} may be"
        )
    if facts.admitted.red_flag:
        yield (
            f"the challenge rate {facts.admitted.rate or 0:.1%} is above {facts.admitted.red_flag_above:.1%}, "
            f"{adopt.red_flag:g} times what was declared"
        )
    if adopt.control and not any(axis.n for axis in facts.control or ()):
        yield "no second dataset has shown that it does no harm"


def _sentence(axis: AxisEffect, what: str) -> str:
    return (
        f"{axis.axis}: {what}, {axis.corrected.count} corrected and {axis.broke.count} broke "
        f"(McNemar p = {axis.p_exact:.2g})"
    )


def challenge_rate(challenges: int, rows: int, expected: float, adopt: Adopt) -> ChallengeRate:
    """The rate and its flag; comparing counts keeps a rate of exactly twice the expectation below it."""
    above = min(1.0, expected * adopt.red_flag)
    return ChallengeRate(
        challenges=challenges,
        rows=rows,
        rate=challenges / rows if rows else None,
        expected=expected,
        red_flag_above=above,
        red_flag=challenges > above * rows + 1e-9,
    )
