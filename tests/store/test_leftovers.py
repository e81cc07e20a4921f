"""What dead uploads leave is taken away, and live ones are left alone, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import anyio
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


async def test_it_goes_in_steps_between_which_others_write(database: Database) -> None:
    """Whoever waits for the writer gets a turn before all is gone."""
    await abandoned(database, 4 * DELETE_BATCH)
    left = [(await rows_of(database))[1]]

    async def write_on() -> None:
        while left[-1]:
            await database.write(lambda _: None)
            left.append((await rows_of(database))[1])

    async with anyio.create_task_group() as group:
        group.start_soon(write_on)
        await DatasetStore(database).drop_unfinished(now())
    assert [n for n in left if 0 < n < left[0]]


async def created_at(database: Database) -> str:
    return str(await database.read(lambda conn: conn.scalar(select(datasets.c.created_at))))


class Interrupted:
    """Examples between the first and the second batch of which something happens to the store."""

    def __init__(self, database: Database, happens) -> None:
        self._database = database
        self._happens = happens
        self._loop = asyncio.get_running_loop()
        self.seen: list[str] = []

    def __iter__(self) -> Iterator[EvalExample]:
        for n in range(BATCH + 10):
            if n == BATCH:
                self.seen.append(asyncio.run_coroutine_threadsafe(self._happens(), self._loop).result(10))
            yield EvalExample(id=str(n), expected_label="x")


async def test_every_batch_is_a_sign_of_life(database: Database) -> None:
    """So an upload that began long ago and still grows is not taken for dead."""
    store = DatasetStore(database)

    async def looked_at() -> str:
        last = await created_at(database)
        await store.drop_unfinished(last)  # all that were silent before it: not this one
        return last

    examples, before = Interrupted(database, looked_at), now()
    added = await store.add(iter(examples))
    assert before < examples.seen[0] <= now()
    assert (added.created, await rows_of(database)) == (True, (1, BATCH + 10))


@pytest.mark.parametrize("rows_went", [True, False])
async def test_an_upload_that_was_given_up_is_refused_and_never_half_stored(
    database: Database, rows_went: bool
) -> None:
    """One that wakes up after it was taken for dead is told so, wherever the taking away had come to."""
    store = DatasetStore(database)

    async def taken_for_dead() -> str:
        if rows_went:
            await store.drop_unfinished("9999")
        else:
            await database.write(lambda conn: conn.execute(update(datasets).values(created_at="")))
        return "gone"

    with pytest.raises(Unavailable, match="given up; send it again"):
        await store.add(iter(Interrupted(database, taken_for_dead)))
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
