"""Slots and steps: the earliest first, nothing lost by cancellation, the same calls on every replay."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runs.engine import drive
from app.runs.slots import Slots
from app.runs.work import ChunkSize

pytestmark = pytest.mark.anyio


async def test_the_lowest_rank_goes_first() -> None:
    """Among equals, who came first."""
    slots, order, begin = Slots(1), [], anyio.Event()

    async def work(rank: int, name: str) -> None:
        async with slots.hold(rank):
            order.append(name)

    async def first() -> None:
        async with slots.hold(0):
            await begin.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        await anyio.wait_all_tasks_blocked()
        for rank, name in ((5, "late"), (1, "early"), (5, "later"), (1, "early too")):
            group.start_soon(work, rank, name)
            await anyio.wait_all_tasks_blocked()
        begin.set()
    assert order == ["early", "early too", "late", "later"]


@given(st.integers(1, 4), st.lists(st.booleans(), min_size=1, max_size=20))
def test_cancelled_waiters_lose_no_slot(size, cancelled) -> None:
    """Whoever is cancelled, before or just after being served, afterwards all slots are free."""

    async def scenario() -> None:
        slots, scopes = Slots(size), []

        async def work(scope: anyio.CancelScope) -> None:
            with scope:
                async with slots.hold(0):
                    await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            for _ in cancelled:
                scopes.append(anyio.CancelScope())
                group.start_soon(work, scopes[-1])
            await anyio.lowlevel.checkpoint()
            for scope, cancel in zip(scopes, cancelled, strict=True):
                if cancel:
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()
        with anyio.fail_after(1):
            async with anyio.create_task_group() as group:
                all_in = anyio.Event()
                for _ in range(size):
                    group.start_soon(_hold_until, slots, all_in)
                await anyio.wait_all_tasks_blocked()
                assert slots._free == 0
                all_in.set()
        assert slots._free == size

    anyio.run(scenario)


async def _hold_until(slots: Slots, event: anyio.Event) -> None:
    async with slots.hold(0):
        await event.wait()


async def test_chunks_follow_each_other_without_gap_two_at_a_time() -> None:
    """Sizes come from earlier results; after None no further chunk begins, and the end is told once all are through."""
    calls, running, most = [], 0, 0
    sizes = iter([30, 20, 40, None, 10])

    async def plan() -> int | None:
        calls.append("plan")
        return 10

    async def chunk(size: int) -> int | None:
        nonlocal running, most
        calls.append(size)
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1
        return next(sizes)

    async def conclude() -> None:
        assert running == 0
        calls.append("end")

    await drive(plan, chunk, conclude)
    assert calls == ["plan", 10, 10, 30, 20, 40, "end"]
    assert most == 2


async def test_without_a_plan_nothing_is_asked() -> None:
    calls = []

    async def plan() -> int | None:
        return None

    async def conclude() -> None:
        calls.append("end")

    await drive(plan, lambda _size: pytest.fail("asked"), conclude)
    assert calls == ["end"]


@pytest.mark.parametrize(
    ("rate", "concurrency", "size"),
    [
        pytest.param(None, 16, 50, id="unknown-speed"),
        pytest.param(1.0, 4, 10, id="ten-seconds-of-work"),
        pytest.param(1.0, 16, 16, id="one-for-each-slot"),
        pytest.param(5000.0, 16, 500, id="never-more-than-500"),
    ],
)
def test_a_chunk_has_about_ten_seconds_of_work(rate, concurrency, size) -> None:
    assert ChunkSize().advise(rate, concurrency) == size
