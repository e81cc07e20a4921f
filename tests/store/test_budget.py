"""States that processes change in turns, the same on SQLite and PostgreSQL."""

import asyncio

import pytest

from adapters.limits import OverBudget
from adapters.shared_limits import SharedLimiter
from app.settings import StoreSettings
from app.store.budget import SharedStates
from app.store.database import Database

pytestmark = pytest.mark.anyio


async def test_changes_from_several_processes_follow_each_other(store_settings: StoreSettings) -> None:
    """None is lost, however many come at once, the first ever included."""
    both = [await Database.open(store_settings) for _ in range(2)]
    states = [SharedStates(database) for database in both]

    def add(state, now):
        count = state.get("count", 0) + 1
        return {"count": count}, (count, now)

    results = await asyncio.gather(*(states[n % 2].change("x", add) for n in range(40)))
    assert sorted(count for count, _ in results) == list(range(1, 41))
    moments = [now for _, now in sorted(results)]
    assert moments == sorted(moments)
    assert (await states[0].change("y", add))[0] == 1
    for database in both:
        await database.close()


async def test_a_failing_change_changes_nothing(database: Database) -> None:
    states = SharedStates(database)

    def fail(state, now):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await states.change("x", fail)
    assert await states.change("x", lambda state, now: (state, dict(state))) == {}


async def test_two_processes_share_a_remotes_budget(store_settings: StoreSettings) -> None:
    both = [await Database.open(store_settings) for _ in range(2)]
    limiters = [SharedLimiter("remote", SharedStates(db), slots=9, rate_per_minute=10) for db in both]
    sent, refusals = 0, []
    for n in range(12):
        limiter = limiters[n % 2]
        try:
            await limiter.acquire("evaluate", asyncio.get_running_loop().time() + 2, lambda: None)
        except OverBudget as exc:
            refusals.append(exc.kind)
        else:
            limiter.release("evaluate")
            sent += 1
    assert (sent, refusals) == (10, ["rate_limited"] * 2)
    for database in both:
        await database.close()
