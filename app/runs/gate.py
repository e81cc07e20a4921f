"""Holds askers back while a system is down or throttled, and lets one of them try."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio

from layers.ports import Clock

FIRST_DELAY = 1.0
LONGEST_DELAY = 60.0
"""Seconds between two tries when nobody said how long to wait: doubled from the first to the longest."""

SHORTEST_DELAY = 0.05
"""A breaker may say 0; asking it in a loop would only burn the processor."""


class Stopped(Exception):
    """The run is to stop: nobody is asked any more."""


class Gate:
    """Open, held, or stopped; for tasks of one event loop, so it needs no lock.

    While held, one caller at a time waits out the delay and goes through as the probe. Everyone else waits for what it
    learns. Late answers of calls that were on their way before change nothing.
    """

    def __init__(self, *, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self._stop_listeners: dict[Callable[[], None], None] = {}
        self._until = 0.0
        self._delay = FIRST_DELAY
        self._probing = False
        self._opened: anyio.Event | None = None
        self._stop = anyio.Event()
        self.stopped = False

    @contextmanager
    def listening(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` whenever the gate was held or released, for as long as the block lasts."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    @contextmanager
    def on_stop(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` when the gate is stopped, if that is while the block lasts."""
        self._stop_listeners[listener] = None
        try:
            yield
        finally:
            del self._stop_listeners[listener]

    @property
    def held(self) -> bool:
        """Whether the system is being waited for."""
        return self._opened is not None

    def stop(self) -> None:
        """Turn everyone away, those who wait included. Final."""
        self.stopped = True
        self._stop.set()
        if self._opened is not None:
            self._opened.set()
        for listener in tuple(self._stop_listeners):
            listener()

    async def enter(self) -> bool:
        """Wait until the system may be asked. True = as the probe, who must `hold` or `release` afterwards.

        Raises `Stopped`.
        """
        while not self.stopped:
            if self._opened is None:
                return False
            if self._probing:
                await self._opened.wait()
                continue
            self._probing = True
            try:
                await self._wait_out()
            except BaseException:
                self._probing = False
                raise
            return True
        raise Stopped

    async def _wait_out(self) -> None:
        with anyio.move_on_after(max(SHORTEST_DELAY, self._until - self._clock())):
            await self._stop.wait()
        if self.stopped:
            raise Stopped

    def hold(self, retry_after: float | None, *, probe: bool) -> None:
        """The system can't be asked for `retry_after` seconds (None = unknown)."""
        if self._opened is not None and not probe:
            return
        if retry_after is None:
            retry_after = self._delay
            self._delay = min(LONGEST_DELAY, 2 * self._delay)
        self._until = self._clock() + retry_after
        self._probing = False
        if self._opened is None:
            self._opened = anyio.Event()
        self._tell()

    def release(self, *, probe: bool) -> None:
        """The system answered."""
        if not probe or self._opened is None:
            return
        self._opened.set()
        self._opened = None
        self._probing = False
        self._delay = FIRST_DELAY
        self._tell()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()
