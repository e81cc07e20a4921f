"""HTTP metrics for every request, and a server span for those evaluations that are kept."""

from __future__ import annotations

import time

from opentelemetry.trace import SpanKind
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.telemetry import logs
from app.telemetry.metrics import Metrics
from app.telemetry.setup import Telemetry
from app.telemetry.traces import Root, Step, current, emit, is_sampled, parse_traceparent

_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
EVALUATE = "/evaluate"


class HttpTelemetry:
    """Wraps the application. Everything but `/evaluate` gets its spans from the FastAPI instrumentation."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry, metrics: Metrics) -> None:
        self._app = app
        self._telemetry = telemetry
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request and measure it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_ns = time.time_ns()
        status = 500

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        root = _root_of(scope) if scope["path"].startswith(EVALUATE) else None
        token = current.set(root)
        log_token = logs.trace_id.set(_shown(root))
        try:
            await self._app(scope, receive, watch)
        finally:
            current.reset(token)
            logs.trace_id.reset(log_token)
            self._done(scope, status, root, started_ns, time.time_ns())

    def _done(self, scope: Scope, status: int, root: Root | None, started_ns: int, ended_ns: int) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        values = {
            "http.request.method": method,
            "http.route": getattr(scope.get("route"), "path", "unknown"),
            "http.response.status_code": status,
        }
        self._metrics.http_requests.record((ended_ns - started_ns) / 1e9, values)
        if root is None or not (root.worth_keeping or status >= 500):
            return
        error = str(status) if status >= 500 else None
        name = f"{method} {values['http.route']}"
        top = Step(name, started_ns, ended_ns, values, error, SpanKind.SERVER, steps=tuple(root.steps))
        emit(self._telemetry, root, top)


def _root_of(scope: Scope) -> Root:
    parent = None
    for name, value in scope["headers"]:
        if name == b"traceparent":
            parent = parse_traceparent(value.decode("latin-1"))
            break
    return Root(parent=parent, worth_keeping=is_sampled(parent))


def _shown(root: Root | None) -> str | None:
    return f"{root.parent.trace_id:032x}" if root is not None and root.parent is not None else None
