"""Traces made after the fact: time stamps are kept while working, spans are created only for what is worth keeping."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags

from app.telemetry.place import Place, SpanRef, current, placed
from app.telemetry.setup import Telemetry
from app.telemetry.values import attributes

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
SAMPLING_RATIO = "arbiter.sampling.ratio"
"""The chance with which a span like this one is kept: a count over spans weighs each by 1 / ratio."""

NOWHERE = Context()


@dataclass(frozen=True, slots=True)
class Step:
    """One finished piece of work; times are nanoseconds since 1970. `error` is our cause when it failed."""

    name: str
    started_ns: int
    ended_ns: int
    values: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    kind: SpanKind = SpanKind.INTERNAL
    events: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    steps: tuple[Step, ...] = ()


def propagate(headers: dict[str, str]) -> None:
    """Tell a remote which trace its work belongs to. Calls are made for what is kept, hence the sampled flag."""
    place = current.get()
    if place is not None:
        headers["traceparent"] = written(place.ref())


def written(span: SpanRef) -> str:
    """A span as W3C's `traceparent` writes it."""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.sampled:02x}"


def caller_now() -> str | None:
    """The `traceparent` of whoever asked for the work at hand, in this process or before it was accepted.

    What a batch asks for is kept on its own merits, so there it says that the caller keeps nothing.
    """
    above: Place | SpanRef | None = current.get()
    sampled = True
    while isinstance(above, Place):
        sampled = sampled and not above.splits
        above = above.parent or above.link
    return None if above is None else written(replace(above, sampled=above.sampled and sampled))


def parse_traceparent(value: str | None) -> SpanRef | None:
    """The caller's span of a W3C `traceparent` header; None when there is none, or it breaks the format."""
    match = _TRACEPARENT.fullmatch(value.strip().lower()) if value else None
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
        return None
    trace_id, span_id = int(match[2], 16), int(match[3], 16)
    if not trace_id or not span_id:
        return None
    return SpanRef(trace_id, span_id, sampled=bool(int(match[4], 16) & TraceFlags.SAMPLED))


def is_wanted(place: Place) -> bool:
    """Whether a caller, near or far, keeps the trace of this place."""
    above = place.parent
    while isinstance(above, Place):
        place, above = above, above.parent
    if above is None and isinstance(place.link, SpanRef):  # it was accepted from there
        above = place.link
    return above is not None and above.sampled


def emit(telemetry: Telemetry, place: Place, top: Step) -> None:
    """Create the span of `place`, which `top` was, and those of what lies beneath it."""
    above = place.parent
    ref = above.ref() if isinstance(above, Place) else above
    inside = NOWHERE
    if ref is not None:
        inside = trace.set_span_in_context(NonRecordingSpan(_context(ref, remote=ref is above)), NOWHERE)
    links = [Link(_linked(place.link))] if place.link else None
    token = telemetry.ids.preset.set((place.trace_id, place.span_id))
    try:
        span = _start(telemetry, top, inside, links)
    finally:
        telemetry.ids.preset.reset(token)
    _finish(telemetry, span, top)


@contextmanager
def spanned(
    telemetry: Telemetry, place: Place, name: str, values: Mapping[str, Any], *, always: bool
) -> Iterator[Place]:
    """The block is what the span of `place` stands for. It is made if `always`, if the block fails, or if something
    within was kept."""
    started_ns, error = time.time_ns(), None
    try:
        with placed(place):
            yield place
    except Exception as exc:
        error = type(exc).__name__
        raise
    finally:
        if always or error is not None or place.kept:
            emit(telemetry, place, Step(name, started_ns, time.time_ns(), {**values, SAMPLING_RATIO: 1.0}, error))


def _linked(to: Place | SpanRef) -> SpanContext:
    return _context(to.ref()) if isinstance(to, Place) else _context(to, remote=True)


def _context(ref: SpanRef, *, remote: bool = False) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if ref.sampled else TraceFlags.DEFAULT)
    return SpanContext(ref.trace_id, ref.span_id, is_remote=remote, trace_flags=flags)


def _start(telemetry: Telemetry, step: Step, context: Context, links: list[Link] | None = None) -> Span:
    return telemetry.tracer.start_span(
        step.name,
        context=context,
        kind=step.kind,
        attributes=attributes(step.values),
        links=links,
        start_time=step.started_ns,
    )


def _finish(telemetry: Telemetry, span: Span, step: Step) -> None:
    inner = trace.set_span_in_context(span, NOWHERE)
    for below in step.steps:
        _finish(telemetry, _start(telemetry, below, inner), below)
    for name, values in step.events:
        span.add_event(name, attributes(values), timestamp=step.ended_ns)
    if step.error is not None:
        span.set_attribute("error.type", step.error)
        span.set_status(StatusCode.ERROR)
    span.end(step.ended_ns)
