"""How many are asked at once follows what the system bears: simulated systems, no waiting."""

from __future__ import annotations

import random

import anyio
import pytest

from adapters.limits import LocalLimiter
from app.runs.adaptive import Adaptive
from app.runs.slots import Slots

pytestmark = pytest.mark.anyio


def after(adaptive: Adaptive, answers: int, latency) -> list[int]:
    """The number at once after each of so many answers, from a system with `latency(number at once)` in ms."""
    seen = []
    for _ in range(answers):
        adaptive.answered(latency(adaptive.limit))
        seen.append(adaptive.limit)
    return seen


def test_it_grows_to_the_operators_cap_within_a_few_rounds() -> None:
    """A system that does not mind is asked as much as it may be."""
    adaptive = Adaptive(64)
    assert adaptive.limit == 16
    assert after(adaptive, 60, lambda _: 20.0)[-1] == 64
    assert max(after(adaptive, 500, lambda _: 20.0)) == 64


@pytest.mark.parametrize("cap", [1, 2, 5])
def test_it_never_exceeds_a_small_cap_nor_falls_below_one(cap) -> None:
    adaptive = Adaptive(cap, clock=iter(range(1000)).__next__)
    assert adaptive.limit == cap
    for _ in range(10):
        adaptive.throttled()
    assert adaptive.limit == 1
    assert set(after(adaptive, 300, lambda _: 10.0)) <= set(range(1, cap + 1))
    assert adaptive.limit == cap


def test_it_settles_where_a_system_is_saturated() -> None:
    """Beyond 20 at once this one only queues: asking more would make everybody wait."""
    adaptive = Adaptive(512)
    seen = after(adaptive, 20_000, lambda n: 200.0 * max(1.0, n / 20))
    settled = seen[5_000:]
    assert min(settled) >= 15
    assert max(settled) <= 60


def test_a_system_that_is_slow_by_itself_is_not_throttled_to_death() -> None:
    """Its answers take five times as long as before, however little it is asked."""
    adaptive = Adaptive(32)
    after(adaptive, 200, lambda _: 100.0)
    seen = after(adaptive, 2_000, lambda _: 500.0)
    assert min(seen) >= 10
    assert seen[-1] == 32


def test_answers_that_differ_by_nature_are_no_burden() -> None:
    """A model takes 4 to 15 seconds whatever it is asked beside."""
    rng = random.Random(1)
    adaptive = Adaptive(16)
    seen = after(adaptive, 3_000, lambda _: rng.uniform(4_000, 15_000))
    assert sum(seen[100:]) / len(seen[100:]) > 14


def test_a_throttle_halves_it_once_for_a_burst() -> None:
    now = 100.0
    adaptive = Adaptive(64, clock=lambda: now)
    after(adaptive, 100, lambda _: 20.0)
    for _ in range(20):
        adaptive.throttled()
    assert adaptive.limit == 32
    now = 102.0
    adaptive.throttled()
    assert adaptive.limit == 16
    assert after(adaptive, 17, lambda _: 20.0)[-1] == 17, "from then on it grows by one a round"


async def test_a_rate_limit_bounds_it() -> None:
    """One a second, a second each: two or so at once are enough; more would only wait."""
    limiter = LocalLimiter("remote", slots=99, rate_per_minute=60, evaluate_share=0.0)
    adaptive = Adaptive(64, outlook=lambda n: limiter.outlook("run", n))
    assert after(adaptive, 200, lambda _: 1_000.0)[-1] <= 2


async def test_slots_shrink_as_they_are_given_back_and_grow_at_once() -> None:
    slots, inside, go = Slots(4), [], [anyio.Event() for _ in range(8)]

    async def work(index: int) -> None:
        async with slots.hold(0):
            inside.append(index)
            await go[index].wait()

    async with anyio.create_task_group() as group:
        for index in range(8):
            group.start_soon(work, index)
        await anyio.wait_all_tasks_blocked()
        assert len(inside) == 4
        slots.resize(2)
        assert slots.too_many
        for index in (0, 1):
            go[index].set()
        await anyio.wait_all_tasks_blocked()
        assert (len(inside), slots.too_many) == (4, False)
        go[2].set()
        await anyio.wait_all_tasks_blocked()
        assert len(inside) == 5
        slots.resize(4)
        await anyio.wait_all_tasks_blocked()
        assert len(inside) == 7
        for event in go:
            event.set()
    assert len(inside) == 8
