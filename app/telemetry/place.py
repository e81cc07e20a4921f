"""Where what happens now belongs: a trace, and the span that will stand there once the work is done."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

_ids = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class SpanRef:
    """One span by its ids, ours or a caller's. `sampled`: its maker keeps it."""

    trace_id: int
    span_id: int
    sampled: bool = True


class Place:
    """A span to be. Its ids are drawn only when somebody needs them: most work leaves no trace.

    `parent` is the span above it, `link` one of another trace that caused this. `splits`: what happens inside gets
    traces of its own. `kept` says that something beneath was kept, so that this span is needed too.
    """

    __slots__ = ("_span_id", "_trace_id", "kept", "link", "parent", "splits")

    def __init__(
        self,
        parent: Place | SpanRef | None = None,
        *,
        link: Place | SpanRef | None = None,
        splits: bool = False,
        trace_id: int | None = None,
    ) -> None:
        self.parent = parent
        self.link = link
        self.splits = splits
        self.kept = False
        self._trace_id = trace_id
        self._span_id = 0

    @property
    def trace_id(self) -> int:
        """The trace this belongs to."""
        if self._trace_id is None:
            self._trace_id = self.parent.trace_id if self.parent else _ids.getrandbits(128) or 1
        return self._trace_id

    @property
    def span_id(self) -> int:
        """The id that the span will have."""
        if not self._span_id:
            self._span_id = _ids.getrandbits(64) or 1
        return self._span_id

    def ref(self) -> SpanRef:
        """Both ids."""
        return SpanRef(self.trace_id, self.span_id)

    def beneath(self) -> Place:
        """The place of a piece of work within this one."""
        return Place(link=self) if self.splits else Place(self)

    def keep(self) -> None:
        """Something here is kept."""
        self.kept = True
        above = self.link or self.parent
        if isinstance(above, Place):
            above.kept = True


current: ContextVar[Place | None] = ContextVar("telemetry_place", default=None)


@contextmanager
def placed(place: Place) -> Iterator[Place]:
    """Make `place` what outgoing calls and log lines belong to, for the block."""
    token = current.set(place)
    try:
        yield place
    finally:
        current.reset(token)


def trace_id_now() -> str | None:
    """The trace that the current work belongs to, as 32 hex digits; None outside of any."""
    place = current.get()
    return None if place is None else f"{place.trace_id:032x}"
