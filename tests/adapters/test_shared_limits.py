"""One rate budget for several processes: never more than the limit together, a share for `/evaluate`, few requests."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.book import GRAIN, HOLD, Book
from adapters.limits import Lane, Limiter, LocalLimiter, OverBudget
from adapters.rate import MARGIN
from adapters.shared_limits import SharedLimiter
from tests.adapters.support import FakeClock

pytestmark = pytest.mark.anyio

WINDOW = 60 + MARGIN


def nothing() -> None:
    """A confirmation that never refuses."""


class States:
    """What processes share, in memory; counts how often it was asked. Its clock is not theirs."""

    def __init__(self, clock: FakeClock, ahead: float = 1e9) -> None:
        self.states: dict[str, dict[str, Any]] = {}
        self.asked = 0
        self.away = False
        self._clock, self._ahead = clock, ahead

    async def change(self, name: str, change: Any) -> Any:
        if self.away:
            raise OSError("no connection")
        self.asked += 1
        await anyio.lowlevel.checkpoint()
        self.states[name], result = change(self.states.get(name, {}), self._clock.now + self._ahead)
        return result


def fleet(clock: FakeClock, size: int = 2, **options: Any) -> tuple[States, list[SharedLimiter]]:
    states = States(clock)
    given = {"slots": 100, "rate_per_minute": 60, **options}
    return states, [SharedLimiter("remote", states, clock=clock, sleep=clock.sleep, **given) for _ in range(size)]


async def send(limiter: Limiter, count: int = 1, lane: Lane = "evaluate", deadline: float | None = None) -> None:
    for _ in range(count):
        await limiter.acquire(lane, deadline, nothing)
        limiter.release(lane)


async def test_all_processes_together_stay_within_the_limit() -> None:
    """A burst may be taken by whoever comes; the next one waits for the window, whoever sent before."""
    clock = FakeClock()
    _, (one, two) = fleet(clock, rate_per_minute=10)
    await send(one, 6)
    await send(two, 4)
    assert clock.now == 0
    with pytest.raises(OverBudget) as caught:
        await send(two, deadline=5.0)
    assert caught.value.kind == "rate_limited"
    assert caught.value.retry_after == pytest.approx(WINDOW + HOLD, abs=0.01)
    await send(one)
    assert WINDOW <= clock.now <= WINDOW + HOLD + 0.01


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["evaluate", "run"]), st.floats(0, 20)), max_size=60))
def test_no_window_ever_holds_more_than_the_limit(steps: list[tuple[int, Lane, float]]) -> None:
    """Whoever sends, on whichever lane, however they take turns; and runs never get the share of `/evaluate`."""

    async def scenario() -> None:
        clock = FakeClock()
        _, limiters = fleet(clock, 3, rate_per_minute=10, evaluate_share=0.2)
        sent: list[tuple[float, Lane]] = []
        for index, lane, pause in steps:
            await send(limiters[index], lane=lane)
            sent.append((clock.now, lane))
            clock.now += pause
        for at, _ in sent:
            window = [lane for when, lane in sent if at <= when < at + 60]
            assert len(window) <= 10
            assert window.count("run") <= 8

    anyio.run(scenario)


async def test_runs_leave_a_share_to_evaluate() -> None:
    clock = FakeClock()
    _, (one, two) = fleet(clock, rate_per_minute=10, evaluate_share=0.2)
    await send(one, 8, lane="run")
    with pytest.raises(OverBudget):
        await send(one, lane="run", deadline=1.0)
    with pytest.raises(OverBudget):
        await send(two, lane="run", deadline=1.0)
    await send(two, 2, lane="evaluate")
    assert clock.now == 0


async def test_many_requests_need_few_grants() -> None:
    """At a high limit a grant is a block; it is spent within a second or lost."""
    clock = FakeClock()
    states, (one, two) = fleet(clock, rate_per_minute=6000)
    await send(one, 500)
    assert states.asked <= 500 / (6000 // 120) + 1
    clock.now += HOLD + GRAIN
    before = states.asked
    await send(one)
    assert states.asked == before + 1
    await send(two)


async def test_those_who_wait_share_one_grant() -> None:
    clock = FakeClock()
    states, (one, _) = fleet(clock, rate_per_minute=60)
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(send, one)
    assert states.asked <= 3


async def test_a_429_stops_every_process_and_lowers_the_limit_for_all() -> None:
    clock = FakeClock()
    _, (one, two) = fleet(clock, rate_per_minute=60)
    await send(one)
    one.learn(429, {}, retry_after=30.0)
    await anyio.wait_all_tasks_blocked()
    for limiter in (one, two):
        with pytest.raises(OverBudget) as caught:
            await send(limiter, deadline=clock.now + 5)
        assert caught.value.retry_after == pytest.approx(30, abs=0.1)
    clock.now += 30
    await send(two)
    assert two.snapshot().limit == 48


async def test_what_others_spent_of_a_remotes_limit_is_counted() -> None:
    """`X-RateLimit-Remaining` below our own count: somebody else uses the same key."""
    clock = FakeClock()
    _, (one, two) = fleet(clock, rate_per_minute=60)
    await send(one)
    one.learn(200, {"x-ratelimit-limit": "60", "x-ratelimit-remaining": "3"}, None)
    await anyio.wait_all_tasks_blocked()
    await send(two, 3)
    with pytest.raises(OverBudget):
        await send(two, deadline=clock.now + 5)


async def test_a_remote_without_a_limit_costs_nothing_until_it_names_one() -> None:
    clock = FakeClock()
    states, (one, _) = fleet(clock, rate_per_minute=None)
    await send(one, 50)
    assert states.asked == 0
    assert one.outlook("run", 1000) == 0
    one.learn(429, {"x-ratelimit-limit": "20"}, retry_after=0.0)
    await anyio.wait_all_tasks_blocked()
    assert one.snapshot().limit == 16
    await send(one)
    assert states.asked >= 2


async def test_nobody_is_let_through_while_the_account_is_away() -> None:
    clock = FakeClock()
    states, (one, _) = fleet(clock)
    states.away = True
    with pytest.raises(OverBudget) as caught:
        await send(one)
    assert (caught.value.kind, caught.value.retry_after) == ("busy", 1.0)
    assert one.snapshot().in_use == 0
    states.away = False
    await send(one)


async def test_a_wait_is_confirmed_before_anything_is_spent() -> None:
    """The breaker is asked again after the wait; its refusal spends no turn and keeps no slot."""
    clock = FakeClock()
    _, (one, _) = fleet(clock, rate_per_minute=2)
    await send(one, 2)

    def refuse() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await one.acquire("evaluate", None, refuse)
    assert one.snapshot().in_use == 0
    waited = clock.now
    await send(one)
    assert clock.now == waited


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "local"])
async def test_the_outlook_answers_for_the_limit(shared: bool) -> None:
    """200 examples at 60 a minute take over three minutes whatever was measured; nothing waits for nothing."""
    clock = FakeClock()
    _, (one, _) = fleet(clock, evaluate_share=0.0)
    local = LocalLimiter("remote", slots=100, rate_per_minute=60, evaluate_share=0.0, clock=clock, sleep=clock.sleep)
    limiter: Limiter = one if shared else local
    assert limiter.outlook("run", 0) == limiter.outlook("run", 60) == 0
    assert limiter.outlook("run", 200) == pytest.approx(3 * WINDOW, abs=3 * HOLD)
    began, predicted = clock.now, limiter.outlook("run", 200)
    await send(limiter, 200, lane="run")
    assert clock.now - began == pytest.approx(predicted, abs=4 * HOLD)


def test_a_book_is_the_same_after_it_was_stored() -> None:
    book = Book(60, 0.2)
    book.take("run", 5, 100.0)
    book.throttled(101.0, 3.0, 40)
    book.take("evaluate", 2, 110.0)
    again = Book(60, 0.2, book.state())
    assert again.state() == book.state()
    assert again.limit(111.0) == book.limit(111.0) == 32
    assert again.outlook("run", 50, 111.0) == book.outlook("run", 50, 111.0)
