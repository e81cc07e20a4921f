"""What the transport's tests share: a clock that is set, a server that is played, a client that is put together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import httpx

from adapters.breaker import CircuitBreaker
from adapters.http import JsonClient
from adapters.limits import LocalLimiter

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Monotonic seconds that only move when told to, or when somebody sleeps on them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.now)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        wakes = self.now + seconds
        await anyio.lowlevel.checkpoint()
        self.now = max(self.now, wakes)


@dataclass
class Rig:
    """A client over a fake transport, with all its parts within reach."""

    handler: Callable[[httpx.Request], Any]
    clock: FakeClock = field(default_factory=FakeClock)
    options: dict[str, Any] = field(default_factory=dict)
    slots: int = 4
    rate: float | None = None
    requests: list[httpx.Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.breaker = CircuitBreaker("remote", minimum_calls=3, clock=self.clock, wall=self.clock.wall)
        self.limiter = LocalLimiter(
            "remote", slots=self.slots, rate_per_minute=self.rate, clock=self.clock, sleep=self.clock.sleep
        )
        self.http = httpx.AsyncClient(transport=httpx.MockTransport(self._handle), trust_env=False)
        given = {"timeout": 20.0, "max_response_bytes": 10_000, "clock": self.clock, "wall": self.clock.wall}
        self.client = JsonClient(
            "remote", self.http, self.breaker, limiter=self.limiter, sleep=self.clock.sleep, **{**given, **self.options}
        )

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.handler(request)
        return await answer if isinstance(answer, Awaitable) else answer

    async def get(self, **options: Any) -> Any:
        return await self.client.call("GET", "http://remote/x", read=lambda reply: reply.json(), **options)


def replies(*answers: httpx.Response | Exception) -> Callable[[httpx.Request], httpx.Response]:
    """A handler that gives one answer after another; the last one for ever."""
    left = list(answers)

    def handle(_request: httpx.Request) -> httpx.Response:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    return handle


Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serve(play: Play) -> AsyncIterator[int]:
    """A real server on loopback that reads each request's head and then does what `play` says. Yields its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await reader.readuntil(b"\r\n\r\n")
            await play(reader, writer)
        writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(converse(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
