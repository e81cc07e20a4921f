"""HTTP metrics for every request, and a server span for those that are kept."""

from __future__ import annotations

import random
import time

from opentelemetry.trace import SpanKind
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.telemetry.metrics import Metrics
from app.telemetry.place import Place, current
from app.telemetry.setup import Telemetry
from app.telemetry.traces import SAMPLING_RATIO, Step, emit, is_wanted, parse_traceparent

_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_PROBES = frozenset({"/livez", "/readyz"})
BATCH = "/evaluate/batch"
"""Each evaluation of a batch is a trace of its own, linked to the request: one trace would be too large to show."""

EVENTS = "/runs/{id}/events"
"""The route of the event streams: its series exist before anybody listens."""


class HttpTelemetry:
    """Wraps the application. Spans are made after the answer, and only for requests worth keeping."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry, metrics: Metrics) -> None:
        self._app = app
        self._telemetry = telemetry
        self._metrics = metrics
        self._active = 0
        self._streams: dict[str, int] = {EVENTS: 0}
        metrics.stream_events.begin((EVENTS,))
        metrics.http_active.show(lambda: [(self._active, {})])
        metrics.streams.show(lambda: [(n, {"route": route}) for route, n in self._streams.copy().items()])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request and measure it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(self, scope, send)
        token = current.set(exchange.place)
        self._active += 1
        try:
            await self._app(scope, receive, exchange.send)
        finally:
            self._active -= 1
            current.reset(token)
            self._done(exchange)

    def stream(self, route: str, change: int) -> None:
        """An event stream was opened or has ended."""
        if change > 0:
            self._active -= 1
        else:
            self._active += 1  # `__call__` is about to take it away
        self._streams[route] = self._streams.get(route, 0) + change

    def event(self, route: str) -> None:
        """A piece went out on an event stream."""
        self._metrics.stream_events.add(route)

    def _done(self, exchange: _Exchange) -> None:
        ended_ns = time.time_ns()
        seconds = (ended_ns - exchange.started_ns) / 1e9
        status, place = exchange.status, exchange.place
        if exchange.streaming:
            self.stream(exchange.route, -1)
        ratio = self._ratio(exchange, seconds * 1000)
        kept = place.kept or ratio >= 1 or (ratio > 0 and random.random() < ratio)
        values = exchange.values()
        if not exchange.streaming:
            series = self._metrics.http_requests.at(*values.values())
            series.record(seconds, place.ref() if kept else None)
        if kept:
            name = f"{values['http.request.method']} {values['http.route']}"
            error = str(status) if status >= 500 else None
            values[SAMPLING_RATIO] = 1.0 if place.kept else ratio
            emit(self._telemetry, place, Step(name, exchange.started_ns, ended_ns, values, error, SpanKind.SERVER))

    def _ratio(self, exchange: _Exchange, elapsed_ms: float) -> float:
        """The chance of being kept where nothing within was: an evaluation has decided for itself already."""
        settings = self._telemetry.settings
        path = exchange.scope["path"]
        if settings.requests == "all" and not path.startswith("/evaluate"):
            return 0.0  # the instrumentation around this has a span for it
        if exchange.status >= 500 or is_wanted(exchange.place):
            return 1.0
        if path in _PROBES:
            return 0.0
        if elapsed_ms >= settings.slow_ms and not exchange.streaming:
            return 1.0
        return 0.0 if path == "/evaluate" else settings.trace_ratio


class _Exchange:
    """One request and what is seen of its answer."""

    __slots__ = ("_owner", "_send", "place", "scope", "started_ns", "status", "streaming")

    def __init__(self, owner: HttpTelemetry, scope: Scope, send: Send) -> None:
        self._owner = owner
        self._send = send
        self.scope = scope
        self.started_ns = time.time_ns()
        self.status = 500
        self.streaming = False
        self.place = _place_of(scope)

    @property
    def route(self) -> str:
        return getattr(self.scope.get("route"), "path", "unknown")

    async def send(self, message: Message) -> None:
        """Pass the message on and note what it says."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if (b"content-type", b"text/event-stream") in _plain(message):
                self.streaming = True
                self._owner.stream(self.route, 1)
        elif self.streaming and message.get("body"):
            self._owner.event(self.route)
        await self._send(message)

    def values(self) -> dict[str, str | int | float]:
        """The attributes of the request, for its metric and its span."""
        method = self.scope["method"]
        return {
            "http.request.method": method if method in _METHODS else "_OTHER",
            "http.route": self.route,
            "http.response.status_code": self.status,
        }


def _plain(message: Message) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value.partition(b";")[0].strip()) for name, value in message.get("headers", ())]


def _place_of(scope: Scope) -> Place:
    parent = None
    for name, value in scope["headers"]:
        if name == b"traceparent":
            parent = parse_traceparent(value.decode("latin-1"))
            break
    return Place(parent, splits=scope["path"] == BATCH)
