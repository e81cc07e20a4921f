"""Traces made after the fact: time stamps are kept while working, spans are created only for what is worth keeping."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags

from app.telemetry.setup import Telemetry
from app.telemetry.values import attributes

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_ids = random.SystemRandom()


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


@dataclass(slots=True)
class Root:
    """The trace of one request, or of one piece of accepted work. Ids are drawn only when somebody needs them."""

    parent: SpanContext | None = None
    worth_keeping: bool = False
    steps: list[Step] = field(default_factory=list)
    _ids: tuple[int, int] | None = None

    def ids(self) -> tuple[int, int]:
        """(trace id, id of the root's own span)."""
        if self._ids is None:
            trace_id = self.parent.trace_id if self.parent else _ids.getrandbits(128) or 1
            self._ids = (trace_id, _ids.getrandbits(64) or 1)
        return self._ids


current: ContextVar[Root | None] = ContextVar("current_root", default=None)


@contextmanager
def rooted(root: Root) -> Iterator[Root]:
    """Make `root` what outgoing calls and log lines belong to, for the block."""
    token = current.set(root)
    try:
        yield root
    finally:
        current.reset(token)


def propagate(headers: dict[str, str]) -> None:
    """Tell a remote which trace its work belongs to. A call is only made for what is kept, hence the sampled flag."""
    root = current.get()
    if root is not None:
        trace_id, span_id = root.ids()
        headers["traceparent"] = f"00-{trace_id:032x}-{span_id:016x}-01"


def parse_traceparent(value: str | None) -> SpanContext | None:
    """The caller's span of a W3C `traceparent` header; None when there is none, or it breaks the format."""
    match = _TRACEPARENT.fullmatch(value.strip().lower()) if value else None
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
        return None
    trace_id, span_id = int(match[2], 16), int(match[3], 16)
    if not trace_id or not span_id:
        return None
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(int(match[4], 16)))


def is_sampled(parent: SpanContext | None) -> bool:
    """Whether the caller keeps its part of the trace."""
    return parent is not None and parent.trace_flags.sampled


def emit(telemetry: Telemetry, root: Root, top: Step) -> None:
    """Create the spans of `top` and what lies beneath it."""
    context = trace.set_span_in_context(NonRecordingSpan(root.parent)) if root.parent else Context()
    token = telemetry.ids.preset.set(root.ids())
    try:
        span = _start(telemetry, top, context)
    finally:
        telemetry.ids.preset.reset(token)
    _finish(telemetry, span, top)


def _start(telemetry: Telemetry, step: Step, context: Context) -> Span:
    return telemetry.tracer.start_span(
        step.name, context=context, kind=step.kind, attributes=attributes(step.values), start_time=step.started_ns
    )


def _finish(telemetry: Telemetry, span: Span, step: Step) -> None:
    inner = trace.set_span_in_context(span)
    for below in step.steps:
        _finish(telemetry, _start(telemetry, below, inner), below)
    for name, values in step.events:
        span.add_event(name, attributes(values), timestamp=step.ended_ns)
    if step.error is not None:
        span.set_attribute("error.type", step.error)
        span.set_status(StatusCode.ERROR)
    span.end(step.ended_ns)
