"""The budget of one remote: how many calls may be under way, how many a minute, and a share kept for `/evaluate`."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import anyio

from adapters.rate import AdaptiveRate, Window
from layers.errors import DependencyUnavailable
from layers.ports import Clock

Lane = Literal["evaluate", "run"]

SHORTEST_SLEEP = 0.001
"""Seconds. A shorter one may not move the clock, because of rounding, and would be slept again and again."""


class OverBudget(DependencyUnavailable):
    """Our own budget refused or delayed the call, so that it says nothing about the remote's health.

    `kind` is `rate_limited` (its turn comes after the deadline; `retry_after` says when), `busy` (no free slot in
    time), or `timeout` (no time left at all, or after the wait for its turn less than the wait itself took).
    """

    retryable = False
    counts = False


@dataclass(frozen=True, slots=True)
class LimiterSnapshot:
    """`limit` is the rate in force (requests a window, None = unlimited), `used` what was sent in the last window."""

    slots: int
    in_use: int
    waiting: int
    limit: int | None
    used: int
    paused_for: float


class Limiter(Protocol):
    """A remote's budget. One process keeps it in memory; many may keep it in their store behind the same shape."""

    def take_now(self, lane: Lane) -> bool:
        """Take a slot and a turn if both are there; False = it has to be waited for."""
        ...

    async def acquire(self, lane: Lane, deadline: float | None, confirm: Callable[[], None]) -> None:
        """Wait for a slot and a turn. `confirm` is called after a wait, before anything is spent; it may raise.

        Raises `OverBudget` when the turn would come after `deadline` (seconds on the limiter's clock).
        """

    def release(self, lane: Lane) -> None:
        """Give the slot back. The turn is spent."""

    def learn(self, status: int, headers: Mapping[str, str], retry_after: float | None) -> None:
        """What the remote said about its own limits. Header names are lower-case or case-insensitive."""

    def outlook(self, lane: Lane, n: int) -> float:
        """Seconds until the rate may have let `n` more requests of this lane through, if no others come between."""
        ...


@dataclass(slots=True, eq=False)
class _Waiter:
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class LocalLimiter:
    """The budget of one process.

    At most `slots` calls are under way. At most `rate_per_minute` requests are sent within any 60 seconds, as a
    burst or spread out; None = no limit. Lane `run` gets neither the last `evaluate_share` of the slots nor of the
    rate (but always one of each), and lane `evaluate` goes first. Within a lane, first come, first served.

    A 429 stops everybody for its `Retry-After` and takes a fifth off the rate, which comes back slowly.
    `X-RateLimit-Limit` caps the rate, `X-RateLimit-Remaining` what may still be sent, for as long as they say so.

    No locks: nothing here awaits between looking and taking, and a budget belongs to one event loop. A cancelled
    waiter has taken nothing yet.
    """

    def __init__(
        self,
        name: str,
        *,
        slots: int,
        rate_per_minute: float | None = None,
        evaluate_share: float = 0.2,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.name = name
        self._slots = slots
        self._share = evaluate_share
        self._rate = AdaptiveRate(rate_per_minute)
        self._clock = clock
        self._sleep = sleep
        self._in_use: dict[Lane, int] = {"evaluate": 0, "run": 0}
        self._sent = Window(self._rate.window)
        self._sent_by_runs = Window(self._rate.window)
        self._waiting: dict[Lane, deque[_Waiter]] = {"evaluate": deque(), "run": deque()}
        self._paused_until = -math.inf

    def take_now(self, lane: Lane) -> bool:
        now = self._clock()
        queue = self._waiting[lane]
        if queue or not self._is_first(lane) or not self._has_slot(lane) or self._turn(lane, 0, now) > now:
            return False
        self._take(lane, now)
        return True

    async def acquire(self, lane: Lane, deadline: float | None, confirm: Callable[[], None]) -> None:
        if self.take_now(lane):
            return
        now = self._clock()
        queue = self._waiting[lane]
        waiter = _Waiter()
        queue.append(waiter)
        try:
            async with asyncio.timeout(None if deadline is None else max(deadline - now, 0.0)):
                await self._wait(waiter, lane, deadline, confirm)
        except TimeoutError:
            raise OverBudget(self.name, "busy", "no free slot before the deadline") from None
        finally:
            queue.remove(waiter)
            self._wake()

    def release(self, lane: Lane) -> None:
        self._in_use[lane] -= 1
        self._wake()

    def learn(self, status: int, headers: Mapping[str, str], retry_after: float | None) -> None:
        now = self._clock()
        throttled = status == 429
        self._rate.told(count_in(headers, "x-ratelimit-limit"), throttled=throttled)
        if throttled:
            if now >= self._paused_until:
                self._rate.back_down(now)
            self._paused_until = max(self._paused_until, now + (retry_after or 0.0))
            return
        limit, remaining = self._rate.limit(now), count_in(headers, "x-ratelimit-remaining")
        if limit is not None and remaining is not None:
            self._sent.forget_old(now)  # others spend the same budget: what is missing was theirs
            for _ in range(limit - len(self._sent) - remaining):
                self._sent.add(now)

    def outlook(self, lane: Lane, n: int) -> float:
        now = self._clock()
        return max(0.0, self._turn(lane, n - 1, now) - now) if n > 0 else 0.0

    def snapshot(self) -> LimiterSnapshot:
        now = self._clock()
        self._sent.forget_old(now)
        return LimiterSnapshot(
            slots=self._slots,
            in_use=sum(self._in_use.values()),
            waiting=sum(map(len, self._waiting.values())),
            limit=self._rate.limit(now),
            used=len(self._sent),
            paused_for=max(0.0, self._paused_until - now),
        )

    # --- waiting ----------------------------------------------------------------------------------------------------

    async def _wait(self, waiter: _Waiter, lane: Lane, deadline: float | None, confirm: Callable[[], None]) -> None:
        queue = self._waiting[lane]
        while True:
            now = self._clock()
            turn = self._turn(lane, queue.index(waiter), now)
            if deadline is not None and turn > deadline:
                message = f"its turn comes in {turn - now:.1f} s, after the deadline"
                raise OverBudget(self.name, "rate_limited", message, retry_after=turn - now)
            if queue[0] is not waiter or not self._is_first(lane) or not self._has_slot(lane):
                waiter.changed.clear()
                await waiter.changed.wait()
            elif turn > now:
                await self._sleep(max(turn - now, SHORTEST_SLEEP))
            else:
                confirm()
                self._take(lane, now)
                return

    def _is_first(self, lane: Lane) -> bool:
        return lane == "evaluate" or not self._waiting["evaluate"]

    def _has_slot(self, lane: Lane) -> bool:
        total = self._in_use["evaluate"] + self._in_use["run"]
        return total < self._slots and (
            lane == "evaluate" or self._in_use["run"] < less_share(self._slots, self._share)
        )

    def _turn(self, lane: Lane, ahead: int, now: float) -> float:
        """When the rate allows one more request of this lane, after `ahead` others of it."""
        limit = self._rate.limit(now)
        if limit is None:
            return max(now, self._paused_until)
        before = ahead + (len(self._waiting["evaluate"]) if lane == "run" else 0)
        turn = max(now, self._paused_until, self._sent.free_at(limit, before, now))
        if lane == "run":
            turn = max(turn, self._sent_by_runs.free_at(less_share(limit, self._share), ahead, now))
        return turn

    def _take(self, lane: Lane, now: float) -> None:
        self._in_use[lane] += 1
        if self._rate.limit(now) is not None:
            self._sent.add(now)
            if lane == "run":
                self._sent_by_runs.add(now)

    def _wake(self) -> None:
        for queue in self._waiting.values():
            if queue:
                queue[0].changed.set()


def less_share(whole: int, share: float) -> int:
    """What is left to runs of `whole`, at least 1."""
    return max(1, whole - math.ceil(whole * share - 1e-9))


def count_in(headers: Mapping[str, str], name: str) -> int | None:
    """The count in a header; None = there is none that can be read."""
    text = headers.get(name, "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
