"""The budget of one remote for all processes that share a store: slots in memory, turns from a common account."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import anyio

from adapters.book import HOLD, Book
from adapters.limits import SHORTEST_SLEEP, Lane, LimiterSnapshot, LocalLimiter, OverBudget, count_in
from layers.ports import Clock

T = TypeVar("T")

TELL_SECONDS = 1.0
"""How often what a remote says about its own count is passed on at most."""

log = logging.getLogger(__name__)


class States(Protocol):
    """Where the account is kept. `change(name, fn)` puts what `fn(state, now)` returns first in the state's place."""

    async def change(self, name: str, change: Callable[[dict[str, Any], float], tuple[dict[str, Any], T]]) -> T: ...


@dataclass(slots=True)
class _Stock:
    turns: int = 0
    until: float = -math.inf


class SharedLimiter:
    """`Limiter` for one process of several. At most `slots` calls are under way here, and all processes together send
    at most `rate_per_minute` in any minute, less `evaluate_share` of it for runs.

    Turns are fetched in small blocks that last a second. A remote without a known limit costs nothing: the account is
    only asked once it, or a 429, has named one. While the account can't be reached, nobody is let through.
    """

    def __init__(
        self,
        name: str,
        states: States,
        *,
        slots: int,
        rate_per_minute: float | None = None,
        evaluate_share: float = 0.2,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.name = name
        self._states = states
        self._per_minute = rate_per_minute
        self._share = evaluate_share
        self._clock = clock
        self._sleep = sleep
        self._slots = LocalLimiter(name, slots=slots, evaluate_share=evaluate_share, clock=clock, sleep=sleep)
        self._limited = rate_per_minute is not None
        self._book = Book(rate_per_minute, evaluate_share)
        self._offset = 0.0
        self._stock: dict[Lane, _Stock] = {"evaluate": _Stock(), "run": _Stock()}
        self._doors: dict[Lane, asyncio.Lock] = {"evaluate": asyncio.Lock(), "run": asyncio.Lock()}
        self._waiting: dict[Lane, int] = {"evaluate": 0, "run": 0}
        self._closed_until: dict[Lane, float] = {"evaluate": -math.inf, "run": -math.inf}
        self._told_at = -math.inf
        self._tasks: set[asyncio.Task[None]] = set()

    def take_now(self, lane: Lane) -> bool:
        return not self._limited and self._slots.take_now(lane)

    async def acquire(self, lane: Lane, deadline: float | None, confirm: Callable[[], None]) -> None:
        await self._slots.acquire(lane, deadline, confirm)
        if not self._limited:
            return
        self._waiting[lane] += 1
        try:
            async with asyncio.timeout(None if deadline is None else max(deadline - self._clock(), 0.0)):
                await self._turn(lane, deadline, confirm)
        except TimeoutError:
            self._slots.release(lane)
            raise self._too_late(self._closed_until[lane] - self._clock()) from None
        except BaseException:
            self._slots.release(lane)
            raise
        finally:
            self._waiting[lane] -= 1

    def release(self, lane: Lane) -> None:
        self._slots.release(lane)

    def learn(self, status: int, headers: Mapping[str, str], retry_after: float | None) -> None:
        told, remaining = count_in(headers, "x-ratelimit-limit"), count_in(headers, "x-ratelimit-remaining")
        now = self._clock()
        if status == 429:
            for lane in self._closed_until:
                self._closed_until[lane] = max(self._closed_until[lane], now + (retry_after or 0.0))
                self._stock[lane].turns = 0
            self._pass_on(lambda book, at: book.throttled(at, retry_after, told))
        elif self._limited and (told or remaining is not None) and now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            self._pass_on(lambda book, at: book.heard(at, told, remaining))

    def outlook(self, lane: Lane, n: int) -> float:
        now = self._clock()
        known = self._book.outlook(lane, n, now + self._offset) if self._limited else 0.0
        return max(known, self._closed_until[lane] - now, 0.0) if n > 0 else 0.0

    def snapshot(self) -> LimiterSnapshot:
        now = self._clock()
        slots = self._slots.snapshot()
        limit = self._book.limit(now + self._offset)
        free = self._book.free(now + self._offset) if limit is not None else 0
        paused = max(0.0, *(until - now for until in self._closed_until.values()))
        waiting = slots.waiting + sum(self._waiting.values())
        return LimiterSnapshot(slots.slots, slots.in_use, waiting, limit, (limit or 0) - free, paused)

    # --- turns --------------------------------------------------------------------------------------------------------

    async def _turn(self, lane: Lane, deadline: float | None, confirm: Callable[[], None]) -> None:
        """Take one turn from the stock, or fetch more; first come, first served."""
        self._refuse_if_late(lane, deadline)
        waited = self._doors[lane].locked()
        async with self._doors[lane]:
            while (stock := self._stock[lane]).turns < 1 or self._clock() >= stock.until:
                self._refuse_if_late(lane, deadline)
                if (wait := self._closed_until[lane] - self._clock()) > 0:
                    waited = True
                    await self._sleep(max(wait, SHORTEST_SLEEP))
                else:
                    await self._fetch(lane)
            if waited:
                confirm()
            stock.turns -= 1

    async def _fetch(self, lane: Lane) -> None:
        began, wanted = self._clock(), max(1, self._waiting[lane])
        turns, wait = await self._change(lambda book, now: book.take(lane, wanted, now))
        if turns:
            self._stock[lane] = _Stock(turns, began + HOLD)
        else:
            self._closed_until[lane] = self._clock() + max(wait, SHORTEST_SLEEP)

    def _refuse_if_late(self, lane: Lane, deadline: float | None) -> None:
        if deadline is not None and self._closed_until[lane] > deadline:
            raise self._too_late(self._closed_until[lane] - self._clock())

    def _too_late(self, wait: float) -> OverBudget:
        if wait <= 0:
            return OverBudget(self.name, "busy", "its turn did not come before the deadline")
        message = f"its turn comes in {wait:.1f} s, after the deadline"
        return OverBudget(self.name, "rate_limited", message, retry_after=wait)

    # --- the account --------------------------------------------------------------------------------------------------

    async def _change(self, act: Callable[[Book, float], T]) -> T:
        def change(state: dict[str, Any], now: float) -> tuple[dict[str, Any], tuple[dict[str, Any], T, float]]:
            book = Book(self._per_minute, self._share, state)
            result = act(book, now)
            new = book.state()
            return new, (new, result, now)

        try:
            state, result, moment = await self._states.change(self.name, change)
        except Exception as exc:
            raise OverBudget(self.name, "busy", "the shared budget can't be reached", retry_after=1.0) from exc
        self._book = Book(self._per_minute, self._share, state)
        self._offset = moment - self._clock()
        self._limited = self._book.limit(moment) is not None
        return result

    def _pass_on(self, act: Callable[[Book, float], None]) -> None:
        task = asyncio.get_running_loop().create_task(self._quietly(act))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _quietly(self, act: Callable[[Book, float], None]) -> None:
        try:
            await self._change(act)
        except OverBudget as exc:
            log.warning("what %s said about its limit could not be passed on: %s", self.name, exc.message)
