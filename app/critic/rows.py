"""One row of a run as a report reads it, derived from its events by the rules that ended it in the first place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from app.critic.events import (
    BounceEvent,
    Event,
    FailedEvent,
    Header,
    LabelEvent,
    ReviewEvent,
    RowEvent,
    TriageEvent,
    VerdictEvent,
)
from layers.critic import Discard, Labels, Review, Ruling, Signals, State, conclude, gate

E = TypeVar("E", TriageEvent, LabelEvent, ReviewEvent, BounceEvent, VerdictEvent)


class AuditError(ValueError):
    """The trail does not tell what it claims to tell. The message says where."""


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one row. `before` and `after` are labels by axis; a failed row has neither.

    `state` is None for a row that failed, and for one that was classified without a critic.
    """

    example_id: str
    repeat: int
    attempt: int
    expected: Labels
    clusters: tuple[str, ...]
    before: Labels | None = None
    after: Labels | None = None
    state: State | None = None
    triage_void: str | None = None
    salvaged: bool = False
    challenged: str | None = None
    """The axis that a challenge named, admitted or not; empty where it named none."""
    admitted: bool = False
    discarded: Discard | None = None
    moved: str | None = None
    calls: int = 0
    failed: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Which question of the run this is."""
        return self.example_id, self.repeat


@dataclass(frozen=True, slots=True)
class _Trail:
    """The events of one row by what they are; None = there was no such event."""

    triage: TriageEvent | None
    first: LabelEvent | None
    review: ReviewEvent | None
    bounce: BounceEvent | None
    second: LabelEvent | None
    second_review: ReviewEvent | None
    verdict: VerdictEvent | None

    @property
    def signals(self) -> Signals:
        return {} if self.triage is None else self.triage.signals

    @property
    def calls(self) -> int:
        asked = (self.triage, self.first, self.review, self.second, self.second_review)
        return sum(event is not None for event in asked)

    @property
    def is_whole(self) -> bool:
        """Whether each event is there that the others call for."""
        judged = self.review is not None or bool(self.first and self.first.salvaged)
        rebounded = (self.bounce is None) == (self.second is None) and (
            self.second_review is None or self.second is not None
        )
        numbered = all(event is None or event.pass_ == 1 for event in (self.first, self.review)) and all(
            event is None or event.pass_ == 2 for event in (self.second, self.second_review)
        )
        return self.first is not None and self.verdict is not None and judged and rebounded and numbered


def read_row(events: Sequence[Event], header: Header) -> Row:
    """The row, with ruling and ending decided anew. Raises `AuditError` where the events say otherwise."""
    head = events[0] if events else None
    if not isinstance(head, RowEvent):
        raise AuditError("it does not begin with a row event")
    ids = {(event.example_id, event.repeat, event.attempt) for event in events}
    if len(ids) != 1 or [event.seq for event in events] != list(range(len(events))):
        raise AuditError("its events are not those of one attempt, in order")
    base = Row(head.example_id, head.repeat, head.attempt, dict(head.expected), head.clusters)
    if len(events) == 2 and isinstance(failed := events[1], FailedEvent):
        return replace(base, failed=failed.kind)
    trail, rest = _trail(list(events[1:]))
    if rest or trail.first is None:
        raise AuditError(f"the events {', '.join(event.event for event in events)} make no row")
    _check_labels(trail, header)
    classified = replace(
        base,
        before=trail.first.labels,
        after=trail.first.labels,
        triage_void=None if trail.triage is None else trail.triage.void,
        salvaged=bool(trail.first.salvaged),
        calls=trail.calls,
    )
    return classified if header.pipeline == "offline" else _judged(classified, trail, trail.first, header)


def _trail(events: list[Event]) -> tuple[_Trail, list[Event]]:
    """Events in the one order there is, and those that are left over."""

    def take(kind: type[E]) -> E | None:
        if events and isinstance(event := events[0], kind):
            del events[0]
            return event
        return None

    trail = _Trail(
        triage=take(TriageEvent),
        first=take(LabelEvent),
        review=take(ReviewEvent),
        bounce=take(BounceEvent),
        second=take(LabelEvent),
        second_review=take(ReviewEvent),
        verdict=take(VerdictEvent),
    )
    return trail, events


def _judged(base: Row, trail: _Trail, first: LabelEvent, header: Header) -> Row:
    verdict, second = trail.verdict, trail.second
    if verdict is None or not trail.is_whole:
        raise AuditError("events are missing, or there are more than a row can have")
    review, ruling = _ruled(trail, header)
    if (trail.bounce is not None) != (ruling is not None and ruling.admitted):
        raise AuditError("a bounce follows exactly an admitted challenge")
    ending = conclude(
        first.labels,
        salvaged=first.salvaged,
        review=review,
        ruling=ruling,
        second=None if second is None or second.salvaged or not second.labels else second.labels,
        second_review=None if trail.second_review is None else _review(trail.second_review),
    )
    stated = (verdict.state, verdict.labels, verdict.moved, verdict.calls)
    if stated != (ending.state, ending.labels, ending.moved, trail.calls):
        raise AuditError("its verdict does not follow from its events")
    return replace(
        base,
        after=ending.labels,
        state=ending.state,
        challenged=review.axis or "" if review is not None and ruling is not None and ruling.challenge else None,
        admitted=ruling is not None and ruling.admitted,
        discarded=ruling.discarded if ruling is not None else None,
        moved=ending.moved,
    )


def _ruled(trail: _Trail, header: Header) -> tuple[Review | None, Ruling | None]:
    """The first review and what the gate makes of it, which must be what the trail says."""
    event, bounce = trail.review, trail.bounce
    if event is None:
        return None, None
    review, plan = _review(event), header.plan
    ruling = gate(review, plan.rules, plan.critic, trail.signals)
    if (event.challenge, event.admitted, event.discarded) != (ruling.challenge, ruling.admitted, ruling.discarded):
        raise AuditError("the gate would have ruled otherwise on its review")
    if bounce is not None and (bounce.axis, bounce.rule) != (review.axis, review.rule):
        raise AuditError("its bounce is not about its challenge")
    return review, ruling


def _check_labels(trail: _Trail, header: Header) -> None:
    axes = header.plan.axes
    for answer in (trail.first, trail.second):
        if answer is None or (answer is trail.second and not answer.labels):
            continue
        if set(answer.labels) != set(axes):
            raise AuditError("an answer does not have one label for each axis")
        for name, label in answer.labels.items():
            fine = label == axes[name].sentinel if name in answer.salvaged else label in axes[name].labels
            if not fine:
                raise AuditError(f"the label {label[:80]!r} is none of the axis {name}")


def _review(event: ReviewEvent) -> Review:
    return Review(decision=event.decision, axis=event.axis, rule=event.rule, gap=event.gap, void=event.void)
