"""What dead uploads leave is taken away, and live ones are left alone, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy import func, select, update

from app.errors import Unavailable
from app.runs.dataset import with_ids
from app.runs.dataset_store import BATCH, DELETE_BATCH, DatasetStore
from app.runs.leftovers import DEAD_AFTER, EVERY_SECONDS, Leftovers
from app.runs.tables import dataset_examples, datasets
from app.store.database import Database
from app.store.ids import now, to_text
from layers.model import EvalExample
from tests.runs import dataset

pytestmark = pytest.mark.anyio

LONG_AGO = "2020-01-01T00:00:00.000000Z"


async def rows_of(database: Database) -> tuple[int, int]:
    def look(conn):
        return tuple(conn.scalar(select(func.count()).select_from(table)) for table in (datasets, dataset_examples))

    return await database.read(look)


async def abandoned(database: Database, n_rows: int, last: str = LONG_AGO) -> None:
    """What a process that was killed in the middle of an upload leaves."""

    def leave(conn):
        row = datasets.insert().values(dataset_id=None, n_examples=0, created_at=last).returning(datasets.c.dataset_no)
        number = conn.execute(row).scalar_one()
        rows = [{"dataset_no": number, "position": n, "example_id": str(n), "example": b"{}"} for n in range(n_rows)]
        if rows:
            conn.execute(dataset_examples.insert(), rows)

    await database.write(leave)


@pytest.mark.parametrize("n_rows", [0, 1, 2 * DELETE_BATCH + 1])
async def test_a_dead_upload_goes_with_all_its_rows(database: Database, n_rows: int) -> None:
    store = DatasetStore(database)
    whole = await store.add(with_ids(dataset(3)))
    await abandoned(database, n_rows)
    await store.drop_unfinished(to_text(datetime.now(UTC) - DEAD_AFTER))
    assert await rows_of(database) == (1, 3)
    assert await store.find(whole.id) == whole


class Stepwise:
    """The database, and how many examples there were after each write."""

    def __init__(self, database: Database) -> None:
        self.read = database.read
        self._database = database
        self.left: list[int] = []

    async def write(self, fn):
        result = await self._database.write(fn)
        self.left.append((await rows_of(self._database))[1])
        return result


async def test_it_goes_in_steps_between_which_others_write(database: Database) -> None:
    """No step takes more rows than an upload's own write brings, so that nobody waits longer for the writer."""
    await abandoned(database, 4 * DELETE_BATCH)
    steps = Stepwise(database)
    await DatasetStore(steps).drop_unfinished(now())
    assert max(before - after for before, after in pairwise(steps.left)) <= DELETE_BATCH <= BATCH
    assert steps.left[-1] == 0


async def created_at(database: Database) -> str:
    return str(await database.read(lambda conn: conn.scalar(select(datasets.c.created_at))))


class Interrupted:
    """So many whole batches of examples, after each of which something happens to the store."""

    def __init__(self, batches: int, happens: Callable[[], Awaitable[object]]) -> None:
        self._batches = batches
        self._happens = happens
        self._loop = asyncio.get_running_loop()

    def __iter__(self) -> Iterator[EvalExample]:
        for batch in range(self._batches):
            yield from (EvalExample(id=f"{batch}-{n}", expected_label="x") for n in range(BATCH))
            asyncio.run_coroutine_threadsafe(self._happens(), self._loop).result(10)


async def test_every_batch_is_a_sign_of_life(database: Database) -> None:
    """So an upload that began long ago and still grows is not taken for dead."""
    store, seen = DatasetStore(database), []

    async def long_ago() -> None:
        seen.append(await created_at(database))
        await database.write(lambda conn: conn.execute(update(datasets).values(created_at=LONG_AGO)))

    added = await store.add(iter(Interrupted(3, long_ago)))
    assert len(seen) == 3
    assert LONG_AGO not in seen
    assert await created_at(database) > LONG_AGO
    await store.drop_unfinished("9999")
    assert (added.created, await rows_of(database)) == (True, (1, 3 * BATCH))


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("rows_went", [True, False])
async def test_an_upload_that_was_given_up_is_refused_and_never_half_stored(
    database: Database, rows_went: bool, batches: int
) -> None:
    """One that wakes up after it was taken for dead is told so, wherever both had come to: the last step included."""
    store = DatasetStore(database)

    async def taken_for_dead() -> None:
        if rows_went:
            await store.drop_unfinished("9999")
        else:
            await database.write(lambda conn: conn.execute(update(datasets).values(created_at="")))

    with pytest.raises(Unavailable, match="given up; send it again"):
        await store.add(iter(Interrupted(batches, taken_for_dead)))
    assert await rows_of(database) == (0, 0)


async def test_what_was_begun_to_be_taken_away_is_taken_on_with(database: Database) -> None:
    """By the next one, when that process was killed too."""
    await abandoned(database, 3, last="")
    await DatasetStore(database).drop_unfinished(to_text(datetime.now(UTC) - DEAD_AFTER))
    assert await rows_of(database) == (0, 0)


class Enough(Exception):
    pass


async def test_leftovers_are_looked_for_at_once_and_again_and_again(database: Database) -> None:
    """Of an upload that dies later, too, nothing stays: no restart is needed."""
    moment, slept = [datetime.now(UTC)], []

    async def sleep(seconds: float) -> None:
        slept.append((seconds, await rows_of(database)))
        moment[0] += timedelta(seconds=seconds)
        if len(slept) > 1 and slept[-1][1] == (0, 0):
            raise Enough

    await abandoned(database, 2)
    await abandoned(database, 5, last=now())
    with pytest.raises(Enough):
        await Leftovers(DatasetStore(database), now=lambda: moment[0], sleep=sleep).clear_for_ever()
    assert slept[0] == (EVERY_SECONDS, (1, 5))
    assert len(slept) * EVERY_SECONDS <= DEAD_AFTER.total_seconds() + 2 * EVERY_SECONDS


async def test_a_store_out_of_reach_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    class Away:
        calls = 0

        async def drop_unfinished(self, before: str) -> None:
            self.calls += 1
            raise Unavailable("the store is away") if self.calls == 1 else RuntimeError("odd")

    async def sleep(_: float) -> None:
        if away.calls == 3:
            raise Enough

    away = Away()
    with caplog.at_level(logging.WARNING), pytest.raises(Enough):
        await Leftovers(away, sleep=sleep).clear_for_ever()
    assert "the store is away" in caplog.text
