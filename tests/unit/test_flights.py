"""Equal work is done once, and a bound on work loses nobody's turn."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from app.errors import Overloaded
from app.evaluation.flights import Flights, Gate

pytestmark = pytest.mark.anyio


async def enter(gate: Gate, done: list[str], name: str) -> None:
    async with gate.patiently():
        done.append(name)


async def test_a_turn_that_is_given_up_goes_to_the_next(anyio_backend: str) -> None:
    """Cancelled between being called and entering, a waiter does not take the turn with it."""
    gate, done = Gate(1), []
    with gate.at_once():
        waiting = [asyncio.create_task(enter(gate, done, name)) for name in "bcd"]
        await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    assert done == ["c", "d"]


async def test_a_waiter_that_gives_up_leaves_the_queue() -> None:
    """Its place is not called later."""
    gate, done = Gate(1), []
    with gate.at_once():
        waiting = [asyncio.create_task(enter(gate, done, name)) for name in "bc"]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
    await asyncio.wait_for(waiting[1], 5)
    assert done == ["c"]


async def test_the_gate_opens_again_after_a_failure() -> None:
    """Whatever happens inside, the place is free afterwards."""
    gate = Gate(1)
    with pytest.raises(KeyError), gate.at_once():
        raise KeyError
    with gate.at_once(), pytest.raises(Overloaded), gate.at_once():
        pass


async def test_a_failed_flight_is_flown_again_by_who_waited() -> None:
    """One caller's error is not another's."""
    flights: Flights[int] = Flights()
    taken_off, go_on = anyio.Event(), anyio.Event()

    async def fails() -> int:
        taken_off.set()
        await go_on.wait()
        raise ValueError("mine")

    async def works() -> int:
        return 7

    first = asyncio.create_task(flights.fly(b"k", fails))
    await taken_off.wait()
    second = asyncio.create_task(flights.fly(b"k", works))
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(ValueError, match="mine"):
        await first
    assert await second == (7, False)


async def test_waiting_callers_share_one_result() -> None:
    """And know that it was another's."""
    flights: Flights[int] = Flights()
    flown = 0

    async def work() -> int:
        nonlocal flown
        flown += 1
        await asyncio.sleep(0)
        return flown

    results = await asyncio.gather(*[flights.fly(b"k", work) for _ in range(5)])
    assert results == [(1, False), *[(1, True)] * 4]
    assert await flights.fly(b"k", work) == (2, False)
