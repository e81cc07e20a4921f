"""The budget in any order of arrivals, cancellations and time passing, on virtual time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.limits import Lane, LocalLimiter, OverBudget


@dataclass
class VirtualTime:
    """Sleepers wake in the order of their time, once every task is blocked."""

    now: float = 0.0
    sleepers: list[tuple[float, int, anyio.Event]] = field(default_factory=list)
    ticket: Iterator[int] = field(default_factory=itertools.count)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        event = anyio.Event()
        heapq.heappush(self.sleepers, (self.now + seconds, next(self.ticket), event))
        await event.wait()

    async def run(self) -> None:
        while True:
            for _ in range(12):  # longer than any chain of tasks waking one another at one time
                await anyio.lowlevel.checkpoint()
            if not self.sleepers:
                return
            self.now, _, event = heapq.heappop(self.sleepers)
            event.set()


@dataclass(frozen=True, eq=False)
class Caller:
    lane: Lane
    arrives: float
    holds: float
    cancelled_after: float | None
    patience: float | None


CALLERS = st.lists(
    st.builds(
        Caller,
        lane=st.sampled_from(["evaluate", "run"]),
        arrives=st.integers(0, 200).map(float),
        holds=st.sampled_from([0.0, 0.5, 5.0, 40.0]),
        cancelled_after=st.none() | st.sampled_from([0.0, 1.0, 30.0]),
        patience=st.none() | st.sampled_from([1000.0, 70.0]),
    ),
    max_size=30,
)


@given(callers=CALLERS, slots=st.integers(1, 6), rate=st.integers(1, 10))
@settings(max_examples=150, deadline=None)
def test_the_budget_is_kept_in_every_window_and_nothing_leaks(callers: list[Caller], slots: int, rate: int) -> None:
    async def scenario() -> None:
        time = VirtualTime()
        limiter = LocalLimiter("remote", slots=slots, rate_per_minute=rate, clock=time, sleep=time.sleep)
        sent: list[tuple[float, Lane]] = []
        busy = {"evaluate": 0, "run": 0}
        refused: list[Caller] = []
        queued: dict[Lane, list[Caller]] = {"evaluate": [], "run": []}

        async def one(caller: Caller, scope: anyio.CancelScope) -> None:
            await time.sleep(caller.arrives)
            with scope:
                queued[caller.lane].append(caller)
                try:
                    deadline = None if caller.patience is None else time.now + caller.patience
                    await limiter.acquire(caller.lane, deadline, lambda: None)
                    assert queued[caller.lane][0] is caller, "first come, first served"
                except OverBudget:
                    refused.append(caller)
                    return
                finally:
                    queued[caller.lane].remove(caller)
                sent.append((time.now, caller.lane))
                busy[caller.lane] += 1
                assert sum(busy.values()) <= slots
                assert busy["run"] <= max(1, int(slots * 0.8))
                try:
                    await time.sleep(caller.holds)
                finally:
                    busy[caller.lane] -= 1
                    limiter.release(caller.lane)

        async def cancel(caller: Caller, scope: anyio.CancelScope) -> None:
            if caller.cancelled_after is not None:
                await time.sleep(caller.arrives + caller.cancelled_after)
                scope.cancel()

        async with anyio.create_task_group() as group:
            for caller in callers:
                scope = anyio.CancelScope()
                group.start_soon(one, caller, scope)
                group.start_soon(cancel, caller, scope)
            await time.run()
            group.cancel_scope.cancel()

        for lane, most in ((None, rate), ("run", max(1, int(rate * 0.8)))):
            times = [at for at, of in sent if lane in {None, of}]
            assert all(later - earlier >= 60 for earlier, later in zip(times, times[most:], strict=False))
        snapshot = limiter.snapshot()
        assert (snapshot.in_use, snapshot.waiting) == (0, 0)
        assert all(caller.patience is not None for caller in refused)
        patient = [c for c in callers if c.cancelled_after is None and c.patience is None]
        assert len(sent) >= len(patient), "everybody who waits long enough is served"

    anyio.run(scenario)
