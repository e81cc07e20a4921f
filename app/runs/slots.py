"""So many at a time, the earliest first."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


class Slots:
    """A semaphore that serves the lowest rank first, so that an earlier chunk ends before a later one.

    For tasks of one event loop: nothing happens between looking and taking.
    """

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._waiting: list[tuple[int, int, anyio.Event]] = []
        self._count = itertools.count()

    @asynccontextmanager
    async def hold(self, rank: int) -> AsyncIterator[None]:
        """Hold one slot for the length of the block."""
        await self._acquire(rank)
        try:
            yield
        finally:
            self._release()

    @property
    def too_many(self) -> bool:
        """Whether more are held than there should be by now: whoever can, gives one back."""
        return self._free < 0

    def resize(self, size: int) -> None:
        """From now on so many. Of more that are held, each goes as it is given back."""
        self._free += size - self._size
        self._size = size
        while self._free > 0 and self._waiting:
            self._free -= 1
            heapq.heappop(self._waiting)[2].set()

    def wanted_before(self, rank: int) -> bool:
        """Whether somebody of a lower rank is waiting."""
        return bool(self._waiting) and self._waiting[0][0] < rank

    async def _acquire(self, rank: int) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn = anyio.Event()
        heapq.heappush(self._waiting, entry := (rank, next(self._count), turn))
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():  # it was given the slot and is cancelled in the same moment
                self._release()
            else:
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)
            raise

    def _release(self) -> None:
        if self._waiting and not self.too_many:
            heapq.heappop(self._waiting)[2].set()
        else:
            self._free += 1
