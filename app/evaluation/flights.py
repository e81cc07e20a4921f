"""One evaluation of the same content at a time, and a bound on how many there are at once."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Generic, TypeVar

import anyio

from app.errors import Overloaded

T = TypeVar("T")


class Gate:
    """Admits at most `limit` at once. On one event loop nothing interleaves between two awaits, so it needs no lock."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inside = 0
        self._queue: deque[anyio.Event] = deque()

    @asynccontextmanager
    async def patiently(self) -> AsyncIterator[None]:
        """Enter when there is room."""
        while self._inside >= self._limit:
            turn = anyio.Event()
            self._queue.append(turn)
            try:
                await turn.wait()
            except BaseException:
                self._give_up(turn)
                raise
        with self._enter():
            yield

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Enter, or raise `Overloaded`."""
        if self._inside >= self._limit:
            raise Overloaded(f"{self._limit} evaluations are in flight", retry_after=1.0)
        with self._enter():
            yield

    @contextmanager
    def _enter(self) -> Iterator[None]:
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._call_next()

    def _give_up(self, turn: anyio.Event) -> None:
        if turn.is_set():
            self._call_next()  # the turn was this one's and must not be lost
        else:
            self._queue.remove(turn)

    def _call_next(self) -> None:
        if self._queue and self._inside < self._limit:
            self._queue.popleft().set()


class Flights(Generic[T]):
    """Equal work that is asked for at the same time is done once.

    Who comes first does it, the others wait for the result. If the first one is cancelled or fails, the next one does
    it: nobody suffers from another caller's end.
    """

    def __init__(self) -> None:
        self._under_way: dict[bytes, _Flight[T]] = {}

    async def fly(self, key: bytes, work: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """The result, and whether it was another caller's."""
        while (flight := self._under_way.get(key)) is not None:
            await flight.landed()
            if flight.results:
                return flight.results[0], True
        flight = self._under_way[key] = _Flight()
        try:
            result = await work()
            flight.results.append(result)
            return result, False
        finally:
            del self._under_way[key]
            flight.land()


class _Flight(Generic[T]):
    """Work under way. The event is made only when somebody waits, as nobody mostly does."""

    __slots__ = ("_event", "results")

    def __init__(self) -> None:
        self.results: list[T] = []
        self._event: anyio.Event | None = None

    async def landed(self) -> None:
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()

    def land(self) -> None:
        if self._event is not None:
            self._event.set()
