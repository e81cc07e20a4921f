"""What a critic may do to another model's labels: pure rules that admit or discard a challenge and end every row."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Literal, TypeAlias

from pydantic import Field

from layers.model import Label, Value

VERSION = "1"

MAX_GAP = 1_000
"""Characters of a stated evidence gap."""
MIN_GAP = 10
"""Letters and digits that a gap needs to say anything; "none", "n/a" and "..." have fewer."""

Signal: TypeAlias = bool | int | float | str
Signals: TypeAlias = Mapping[str, Signal]
Labels: TypeAlias = Mapping[str, str]
"""A label for each axis."""
Comparison: TypeAlias = Literal["eq", "ne", "lt", "le", "gt", "ge", "in", "not_in"]


class State(StrEnum):
    """How a row can end, and no other way.

    `accepted`: the critic had nothing to say. `fixed`: a challenge was admitted, the classifier was asked once more,
    and the critic accepted its second answer, which stands. `contested`: it did not, and the first answer stands.
    `fail_closed`: what the critic said was no admissible challenge, so nothing moved. `salvaged`: the classifier's
    answer could not be read, and the declared sentinel stands in for it.
    """

    ACCEPTED = "accepted"
    FIXED = "fixed"
    CONTESTED = "contested"
    FAIL_CLOSED = "fail_closed"
    SALVAGED = "salvaged"


class Discard(StrEnum):
    """Why the gate threw a review away."""

    NO_AXIS = "no_axis"
    NO_SUCH_RULE = "no_such_rule"
    NO_GAP = "no_gap"
    AXIS_CLOSED = "axis_closed"
    NOT_NOW = "condition_not_met"
    VOID = "void"
    NOT_REVIEWED = "not_reviewed"


class Condition(Value):
    """One comparison on a signal of triage. A signal that was not noted never holds, whatever the comparison."""

    signal: str = Field(min_length=1, max_length=128)
    op: Comparison
    value: Signal | tuple[Signal, ...]

    def holds(self, signals: Signals) -> bool:
        """Whether it holds. Values of different kinds are neither equal nor ordered, and so hold for nothing."""
        noted = signals.get(self.signal)
        if noted is None:
            return False
        if self.op in {"in", "not_in"}:
            among = isinstance(self.value, tuple) and any(_same(noted, one) for one in self.value)
            return among == (self.op == "in")
        if isinstance(self.value, tuple):
            return False
        if self.op in {"eq", "ne"}:
            return _comparable(noted, self.value) and _same(noted, self.value) == (self.op == "eq")
        return _ordered(self.op, noted, self.value)


def _comparable(one: Signal, other: Signal) -> bool:
    kinds = [bool if isinstance(each, bool) else str if isinstance(each, str) else float for each in (one, other)]
    return kinds[0] is kinds[1]


def _same(one: Signal, other: Signal) -> bool:
    return _comparable(one, other) and one == other


def _ordered(op: str, one: Signal, other: Signal) -> bool:
    if isinstance(one, str | bool) or isinstance(other, str | bool):
        return False
    return {"lt": one < other, "le": one <= other, "gt": one > other, "ge": one >= other}[op]


class Restraint(Value):
    """Where a challenge is possible at all: on these axes, in rows where every condition holds. No axes = nowhere."""

    axes: tuple[Label, ...]
    only_when: tuple[Condition, ...] = ()

    def holds(self, signals: Signals) -> bool:
        """Whether a row with these signals may be challenged."""
        return all(condition.holds(signals) for condition in self.only_when)


class Review(Value):
    """What the critic said: a proposal that decides nothing. It has no place for a label of its own.

    `void` is the reason why a reply is no review; of a challenge any of the three parts can be missing.
    """

    decision: Literal["accept", "challenge", "void"]
    axis: str | None = None
    rule: str | None = None
    gap: str | None = None
    void: str | None = None


ACCEPT = Review(decision="accept")


class Ruling(Value):
    """What the gate made of a review. `challenge`: there was one; `admitted`: it earned the row's only bounce."""

    challenge: bool
    admitted: bool
    discarded: Discard | None = None


def gate(review: Review, rules: Collection[str], restraint: Restraint, signals: Signals) -> Ruling:
    """Admit a challenge, or say why it moves nothing.

    `rules` are the ids of the rubric that the classifier works by. Admitted are only challenges that name an axis
    which is open, cite one of those rules, and state what evidence the answer overlooked.
    """
    match review.decision:
        case "accept":
            return Ruling(challenge=False, admitted=False)
        case "void":
            reason = Discard.NOT_REVIEWED if review.void in NOT_REVIEWED else Discard.VOID
            return Ruling(challenge=False, admitted=False, discarded=reason)
        case "challenge":
            why = _fault(review, rules, restraint, signals)
            return Ruling(challenge=True, admitted=why is None, discarded=why)


NOT_REVIEWED = frozenset({"unavailable", "not_configured"})
"""Reasons of a void review that say that no critic looked."""


def _fault(review: Review, rules: Collection[str], restraint: Restraint, signals: Signals) -> Discard | None:
    if not review.axis:
        return Discard.NO_AXIS
    if review.axis not in restraint.axes:
        return Discard.AXIS_CLOSED
    if not review.rule or review.rule not in rules:
        return Discard.NO_SUCH_RULE
    if not says_something(review.gap):
        return Discard.NO_GAP
    return None if restraint.holds(signals) else Discard.NOT_NOW


def says_something(gap: str | None) -> bool:
    """Whether an evidence gap is stated: enough letters and digits to be more than a placeholder, and no essay."""
    return gap is not None and len(gap) <= MAX_GAP and sum(char.isalnum() for char in gap) >= MIN_GAP


class Ending(Value):
    """How a row ended and the labels that stand. `moved` names the axis whose label is another one than before."""

    state: State
    labels: dict[str, str]
    moved: str | None = None


def conclude(
    first: Labels,
    *,
    salvaged: Collection[str] = (),
    review: Review | None = None,
    ruling: Ruling | None = None,
    second: Labels | None = None,
    second_review: Review | None = None,
) -> Ending:
    """The one rule by which rows end; replaying a row's audit trail uses it again.

    `first` are the classifier's labels, sentinels on the `salvaged` axes. `second` is what it answered after the
    bounce, None where that could not be read. Of it only the challenged axis can count. Without a review, or
    without a ruling on it, nothing moves.
    """
    before = dict(first)
    if salvaged:
        return Ending(state=State.SALVAGED, labels=before)
    if review is None or ruling is None or ruling.discarded is not None:
        return Ending(state=State.FAIL_CLOSED, labels=before)
    if not ruling.admitted or review.axis is None:
        return Ending(state=State.ACCEPTED, labels=before)
    accepted = second_review is not None and second_review.decision == "accept"
    if not accepted or second is None or review.axis not in second:
        return Ending(state=State.CONTESTED, labels=before)
    moved = review.axis if second[review.axis] != before.get(review.axis) else None
    return Ending(state=State.FIXED, labels={**before, review.axis: second[review.axis]}, moved=moved)
