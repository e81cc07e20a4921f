"""The budget's rules: slots, rate, the share of `/evaluate`, and what a remote teaches about its limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from adapters.limits import Lane, LocalLimiter, OverBudget
from adapters.rate import MARGIN
from layers.errors import CircuitOpen
from tests.adapters.support import FakeClock

pytestmark = pytest.mark.anyio

WINDOW = 60 + MARGIN


def nothing() -> None:
    """A confirmation that never refuses."""


def make(clock: FakeClock, *, slots: int = 100, rate: float | None = None, **options: Any) -> LocalLimiter:
    return LocalLimiter("remote", slots=slots, rate_per_minute=rate, clock=clock, sleep=clock.sleep, **options)


async def send(limiter: LocalLimiter, count: int = 1, lane: Lane = "evaluate", deadline: float | None = None) -> None:
    for _ in range(count):
        await limiter.acquire(lane, deadline, nothing)
        limiter.release(lane)


async def test_a_burst_may_use_the_whole_rate_and_the_next_call_waits_for_the_window() -> None:
    clock = FakeClock()
    limiter = make(clock, rate=10)
    await send(limiter, 10)
    assert clock.now == 0
    await send(limiter)
    assert clock.now == WINDOW
    assert limiter.snapshot().used == 1


async def test_no_window_ever_holds_more_than_the_rate() -> None:
    """Also where a bucket that refills while it is emptied would let nearly twice as many through."""
    clock = FakeClock()
    limiter = make(clock, rate=10)
    sent: list[float] = []
    for _ in range(45):
        await send(limiter)
        sent.append(clock.now)
        clock.now += 1.7
    assert all(later - earlier >= 60 for earlier, later in zip(sent, sent[10:], strict=False))


@pytest.mark.parametrize(
    ("rate", "window"), [pytest.param(0.5, 120 + MARGIN, id="every two minutes"), pytest.param(1.5, WINDOW, id="one")]
)
async def test_a_rate_below_two_a_minute_still_lets_one_through(rate: float, window: float) -> None:
    clock = FakeClock()
    limiter = make(clock, rate=rate)
    await send(limiter, 2)
    assert clock.now == window


async def test_without_a_rate_only_slots_limit() -> None:
    clock = FakeClock()
    limiter = make(clock)
    await send(limiter, 10_000)
    assert clock.now == 0
    assert limiter.snapshot().limit is None


async def test_runs_may_not_use_the_share_kept_for_evaluate() -> None:
    clock = FakeClock()
    limiter = make(clock, rate=10)
    await send(limiter, 8, "run")
    with pytest.raises(OverBudget):
        await send(limiter, 1, "run", deadline=5)
    await send(limiter, 2, "evaluate")
    assert clock.now == 0


async def test_what_evaluate_used_beyond_its_share_is_gone_for_runs() -> None:
    clock = FakeClock()
    limiter = make(clock, rate=10)
    await send(limiter, 7, "evaluate")
    await send(limiter, 3, "run")
    with pytest.raises(OverBudget):
        await send(limiter, 1, "run", deadline=5)


@pytest.mark.parametrize("lanes", [("run",), ("evaluate",)])
async def test_a_budget_of_one_serves_either_lane(lanes: tuple[Lane]) -> None:
    limiter = make(FakeClock(), slots=1, rate=1)
    await send(limiter, 1, lanes[0], deadline=1)


async def test_a_turn_beyond_the_deadline_fails_at_once_and_says_when() -> None:
    clock = FakeClock()
    limiter = make(clock, rate=2)
    await send(limiter, 2)
    clock.now = 10
    with pytest.raises(OverBudget) as caught:
        await send(limiter, deadline=30)
    assert (caught.value.kind, caught.value.retry_after) == ("rate_limited", WINDOW - 10)
    assert clock.now == 10
    assert caught.value.counts is False
    assert limiter.snapshot().waiting == 0


@pytest.mark.parametrize("lane", ["evaluate", "run"])
async def test_those_already_waiting_count_when_the_turn_is_foreseen(lane: Lane) -> None:
    """The second in the queue of a rate of one has to wait for two windows, and knows it now."""
    clock = FakeClock()
    limiter = make(clock, rate=1)
    await send(limiter)
    gate = anyio.Event()

    async def held(_seconds: float) -> None:
        await gate.wait()

    limiter._sleep = held
    async with anyio.create_task_group() as group:
        group.start_soon(send, limiter)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(OverBudget) as caught:
            await send(limiter, lane=lane, deadline=100)
        group.cancel_scope.cancel()
    assert caught.value.retry_after == 2 * WINDOW


class Holders:
    """Calls that keep their slot until they are let go."""

    def __init__(self, limiter: LocalLimiter) -> None:
        self.limiter = limiter
        self.order: list[str] = []
        self.gates: dict[str, anyio.Event] = {}

    async def hold(self, name: str, lane: Lane, confirm: Callable[[], None] = nothing) -> None:
        gate = self.gates[name] = anyio.Event()
        await self.limiter.acquire(lane, None, confirm)
        self.order.append(name)
        try:
            await gate.wait()
        finally:
            self.limiter.release(lane)

    async def let_go(self, name: str) -> None:
        self.gates[name].set()
        await anyio.wait_all_tasks_blocked()


async def test_slots_are_given_first_come_first_served_and_evaluate_goes_first() -> None:
    limiter = make(FakeClock(), slots=2)
    calls = Holders(limiter)
    async with anyio.create_task_group() as group:
        for name, lane in (("e1", "evaluate"), ("e2", "evaluate"), ("r1", "run"), ("r2", "run"), ("e3", "evaluate")):
            group.start_soon(calls.hold, name, lane)
            await anyio.wait_all_tasks_blocked()
        assert calls.order == ["e1", "e2"]
        assert (limiter.snapshot().in_use, limiter.snapshot().waiting) == (2, 3)
        await calls.let_go("e1")
        assert calls.order == ["e1", "e2", "e3"]
        await calls.let_go("e2")
        assert calls.order == ["e1", "e2", "e3", "r1"]
        await calls.let_go("e3")
        assert calls.order[-1] == "r1"  # the last slot is kept for evaluate
        await calls.let_go("r1")
        assert calls.order[-1] == "r2"
        await calls.let_go("r2")
    assert limiter.snapshot().in_use == 0


@pytest.mark.parametrize("lane", ["evaluate", "run"])
async def test_nobody_jumps_the_queue_between_a_release_and_the_waking_of_the_next(lane: Lane) -> None:
    limiter = make(FakeClock(), slots=1)
    calls = Holders(limiter)
    async with anyio.create_task_group() as group:
        await limiter.acquire("evaluate", None, nothing)
        group.start_soon(calls.hold, "waiter", "evaluate")
        await anyio.wait_all_tasks_blocked()
        limiter.release("evaluate")
        with pytest.raises(OverBudget):
            await limiter.acquire(lane, 0.01, nothing)
        assert calls.order == ["waiter"]
        await calls.let_go("waiter")


async def test_a_cancelled_waiter_leaks_nothing_and_wakes_the_next() -> None:
    limiter = make(FakeClock(), slots=1, rate=100)
    calls = Holders(limiter)
    scope = anyio.CancelScope()

    async def cancelled() -> None:
        with scope:
            await calls.hold("waiter", "evaluate")

    async with anyio.create_task_group() as group:
        group.start_soon(calls.hold, "first", "evaluate")
        await anyio.wait_all_tasks_blocked()
        group.start_soon(cancelled)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(calls.hold, "run", "run")
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        await calls.let_go("first")
        assert calls.order == ["first", "run"]
        assert (limiter.snapshot().in_use, limiter.snapshot().used) == (1, 2)
        await calls.let_go("run")


async def test_a_refused_confirmation_spends_nothing() -> None:
    """A call that waited asks the breaker again; refused, it leaves slot and turn to the next."""
    limiter = make(FakeClock(), slots=1, rate=100)
    calls = Holders(limiter)

    def refuse() -> None:
        raise CircuitOpen("remote")

    async def refused() -> None:
        with pytest.raises(CircuitOpen):
            await calls.hold("refused", "evaluate", refuse)

    async with anyio.create_task_group() as group:
        group.start_soon(calls.hold, "first", "evaluate")
        await anyio.wait_all_tasks_blocked()
        group.start_soon(refused)
        group.start_soon(calls.hold, "next", "evaluate")
        await anyio.wait_all_tasks_blocked()
        await calls.let_go("first")
        assert calls.order == ["first", "next"]
        assert limiter.snapshot().used == 2
        await calls.let_go("next")


async def test_waiting_for_a_slot_ends_at_the_deadline() -> None:
    limiter = make(FakeClock(), slots=1)
    await limiter.acquire("evaluate", None, nothing)
    with pytest.raises(OverBudget) as caught:
        await limiter.acquire("evaluate", 0.01, nothing)
    assert caught.value.kind == "busy"
    limiter.release("evaluate")
    await send(limiter)


# --- what the remote teaches ----------------------------------------------------------------------------------------


async def test_a_429_stops_everybody_for_its_retry_after() -> None:
    clock = FakeClock()
    limiter = make(clock, rate=60)
    limiter.learn(429, {}, 7.0)
    assert limiter.snapshot().paused_for == 7
    await send(limiter)
    assert clock.now == 7


async def test_a_pause_holds_without_a_rate_too() -> None:
    clock = FakeClock()
    limiter = make(clock)
    limiter.learn(429, {}, 3.0)
    await send(limiter, 2)
    assert clock.now == 3


async def test_a_429_takes_a_fifth_off_the_rate_which_comes_back_slowly() -> None:
    clock = FakeClock()
    limiter = make(clock, rate=60)
    limiter.learn(429, {}, None)
    assert limiter.snapshot().limit == 48
    clock.now = 60
    assert limiter.snapshot().limit == 52
    clock.now = 180
    assert limiter.snapshot().limit == 60
    clock.now = 1e9
    assert limiter.snapshot().limit == 60


@pytest.mark.parametrize(
    ("retry_after", "apart"), [pytest.param(None, 0.05, id="within a second"), pytest.param(60.0, 1.5, id="paused")]
)
async def test_the_429s_of_one_burst_are_one_lesson(retry_after: float | None, apart: float) -> None:
    clock = FakeClock()
    limiter = make(clock, rate=60)
    for _ in range(16):
        limiter.learn(429, {}, retry_after)
        clock.now += apart
    assert limiter.snapshot().limit == 48


async def test_429s_never_lower_the_rate_to_nothing() -> None:
    clock = FakeClock()
    limiter = make(clock, rate=3)
    for _ in range(20):
        limiter.learn(429, {}, None)
        clock.now += 2
    assert limiter.snapshot().limit == 1
    clock.now += 60
    assert limiter.snapshot().limit == 2


async def test_the_remotes_own_limit_caps_the_rate_as_long_as_it_says_so() -> None:
    limiter = make(FakeClock(), rate=60)
    limiter.learn(200, {"x-ratelimit-limit": "30"}, None)
    assert limiter.snapshot().limit == 30
    limiter.learn(200, {"x-ratelimit-limit": "5000"}, None)
    assert limiter.snapshot().limit == 60


async def test_without_a_configured_rate_a_header_counts_only_after_a_429() -> None:
    """Its window need not be a minute."""
    limiter = make(FakeClock())
    limiter.learn(200, {"x-ratelimit-limit": "30"}, None)
    assert limiter.snapshot().limit is None
    limiter.learn(429, {"x-ratelimit-limit": "30"}, None)
    assert limiter.snapshot().limit == 24


async def test_what_others_spent_of_the_same_budget_is_missing_here() -> None:
    clock = FakeClock()
    limiter = make(clock, rate=60)
    await send(limiter, 5)
    limiter.learn(200, {"x-ratelimit-limit": "60", "x-ratelimit-remaining": "3"}, None)
    await send(limiter, 3)
    assert clock.now == 0
    with pytest.raises(OverBudget):
        await send(limiter, deadline=10)


async def test_a_full_remaining_changes_nothing() -> None:
    limiter = make(FakeClock(), rate=60)
    await send(limiter, 5)
    limiter.learn(200, {"x-ratelimit-remaining": "55"}, None)
    assert limiter.snapshot().used == 5


@pytest.mark.parametrize("text", ["", "-1", "0", "many", "1e3", "٣", "9" * 400, "60, 60;w=60"])
async def test_a_header_that_is_no_plain_count_is_ignored(text: str) -> None:
    limiter = make(FakeClock(), rate=60)
    limiter.learn(200, {"x-ratelimit-limit": text, "x-ratelimit-remaining": "" if text == "0" else text}, None)
    assert (limiter.snapshot().limit, limiter.snapshot().used) == (60, 0)
