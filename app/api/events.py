"""`/runs/{id}/events`: how a run goes on, as Server-Sent Events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from app.api.body import header
from app.api.negotiation import negotiate
from app.api.operation import Answer, Content, Header, Operation, services_of
from app.api.query import path_id
from app.errors import NotAcceptable, NotFound, Overloaded, Unavailable
from app.runs.event_store import RunEvent

EVENT_STREAM = "text/event-stream"
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
_OPENING = b"retry: 2000\n\n"
_HEARTBEAT = b": still here\n\n"


class _EventStream(StreamingResponse):
    """A stream that lets go of what it listens to, however it ends."""

    def __init__(self, events: AsyncIterator[RunEvent | None], held: AsyncExitStack) -> None:
        super().__init__(_written(events), headers=_HEADERS, media_type=EVENT_STREAM)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                await self._held.aclose()


async def get_events(request: Request) -> Response:
    """The run's events, as they come."""
    negotiate(request.scope, (EVENT_STREAM,))
    events, run_id = services_of(request).events, path_id(request, "run")
    if events is None:
        raise Unavailable("this service tells no events")
    given = header(request.scope, b"last-event-id")
    last_id = None if given is None else given.decode("latin-1").strip()
    if await events.is_over(run_id, last_id):
        return Response(status_code=204)  # which tells a browser not to come again
    if request.method == "HEAD":
        return Response(headers=_HEADERS, media_type=EVENT_STREAM)
    async with AsyncExitStack() as stack:
        stream = await stack.enter_async_context(events.listen(run_id, last_id))
        return _EventStream(stream, stack.pop_all())


async def _written(events: AsyncIterator[RunEvent | None]) -> AsyncIterator[bytes]:
    yield _OPENING
    async for event in events:
        if event is None:
            yield _HEARTBEAT
        else:
            yield b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), event.data)


OPERATIONS = (
    Operation(
        "GET",
        "/runs/{id}/events",
        get_events,
        "Follow a run",
        needs="read",
        tag="runs",
        description=(
            "Server-Sent Events: `status` (the whole run) when its status changes, `progress` (its counts) in between, "
            "`end` (the whole run) when it has ended; then the stream ends. Ids are the same for everybody: after a "
            "break a browser sends the last one as `Last-Event-ID` and gets exactly what it missed, or one `resync` "
            "(the whole run) when that is too long ago. A comment every 15 seconds shows that the connection lives."
        ),
        headers=(Header("Last-Event-ID", "The id of the last event that was received"),),
        answers={
            200: Answer("The events", {EVENT_STREAM: Content({"type": "string"})}),
            204: Answer("The run has ended, and all of it was received"),
        },
        refuses=(NotFound, NotAcceptable, Overloaded, Unavailable),
    ),
)
