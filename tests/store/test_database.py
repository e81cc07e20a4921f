"""What the database promises, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import asyncio
import threading

import pytest
from sqlalchemy import Column, Connection, Integer, LargeBinary, MetaData, String, Table, func, insert, select
from sqlalchemy.exc import IntegrityError

from app.errors import Unavailable
from app.store.database import Database

pytestmark = pytest.mark.anyio

things = Table(
    "things",
    MetaData(),
    Column("thing_id", Integer, primary_key=True, autoincrement=False),
    Column("name", String(20), nullable=False),
    Column("data", LargeBinary),
)


@pytest.fixture
async def store(database: Database) -> Database:
    """A database with one more table."""
    await database.write(things.create)
    return database


def add(thing_id: int, name: str = "x"):
    def insert_one(conn: Connection) -> int:
        conn.execute(insert(things).values(thing_id=thing_id, name=name))
        return thing_id

    return insert_one


async def count(store: Database) -> int:
    return await store.read(lambda conn: conn.execute(select(func.count()).select_from(things)).scalar_one())


async def test_what_was_written_can_be_read_when_the_call_returns(store: Database) -> None:
    """`write` returns the function's value after the COMMIT."""
    assert await store.write(add(1)) == 1
    assert await count(store) == 1


async def test_writes_that_wait_are_committed_together(store: Database) -> None:
    """What waits while the writer is busy shares one transaction, and all of it is answered."""
    busy, go_on = threading.Event(), threading.Event()
    transactions: list[int] = []

    def hold(_conn: Connection) -> None:
        busy.set()
        assert go_on.wait(10)

    def note(conn: Connection, items: list[int]) -> list[int]:
        transactions.append(len(items))
        return items

    first = asyncio.create_task(store.write(hold))
    await asyncio.to_thread(busy.wait, 10)
    rest = [asyncio.create_task(store.submit(note, number)) for number in range(100)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    go_on.set()
    await first
    assert await asyncio.gather(*rest) == list(range(100))
    assert transactions == [100]


async def test_a_failing_write_fails_only_its_caller(store: Database) -> None:
    """Among writes of one transaction, one that breaks a constraint leaves nothing, and the others stand."""
    await store.write(add(5))
    results = await asyncio.gather(*[store.write(add(n)) for n in range(10)], return_exceptions=True)
    assert [n for n, result in enumerate(results) if isinstance(result, IntegrityError)] == [5]
    assert await count(store) == 10


async def test_a_write_that_raises_undoes_what_it_did(store: Database) -> None:
    """An exception of the function's own undoes its changes and reaches its caller as it is."""

    def add_and_raise(conn: Connection) -> None:
        add(1)(conn)
        raise LookupError("no")

    results = await asyncio.gather(store.write(add_and_raise), store.write(add(2)), return_exceptions=True)
    assert isinstance(results[0], LookupError)
    assert results[1] == 2
    assert await count(store) == 1


async def test_a_write_that_raises_alone_undoes_what_it_did(store: Database) -> None:
    """The same holds for a transaction of one."""

    def add_and_raise(conn: Connection) -> None:
        add(1)(conn)
        raise LookupError("no")

    with pytest.raises(LookupError):
        await store.write(add_and_raise)
    assert await count(store) == 0
    assert await store.write(add(1)) == 1


async def test_a_cancelled_caller_does_not_break_the_others(store: Database) -> None:
    """Cancelling one waiting write leaves those beside it alone."""
    tasks = [asyncio.create_task(store.write(add(n))) for n in range(20)]
    await asyncio.sleep(0)
    tasks[7].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[7], asyncio.CancelledError)
    assert all(result == n for n, result in enumerate(results) if n != 7)
    assert await count(store) in (19, 20)


async def test_a_caller_cancelled_during_its_write_does_not_break_the_others(store: Database) -> None:
    """Nobody takes its result, and those of the same transaction get theirs."""
    busy, go_on = threading.Event(), threading.Event()

    def hold(conn: Connection) -> None:
        add(1)(conn)
        busy.set()
        assert go_on.wait(10)

    held, other = asyncio.create_task(store.write(hold)), asyncio.create_task(store.write(add(2)))
    await asyncio.to_thread(busy.wait, 10)
    held.cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert await asyncio.wait_for(other, 10) == 2
    assert held.cancelled()
    assert await count(store) == 2


async def test_a_handler_gets_what_waits_in_one_call_and_answers_each(store: Database) -> None:
    """A batch handler's results reach the callers in order."""

    def double(_conn: Connection, items: list[int]) -> list[int]:
        return [2 * item for item in items]

    assert await asyncio.gather(*[store.submit(double, n) for n in range(50)]) == [2 * n for n in range(50)]


async def test_a_handler_that_fails_is_called_for_each_item_alone(store: Database) -> None:
    """One bad item spoils no other item of its handler."""

    def picky(_conn: Connection, items: list[int]) -> list[int]:
        if 3 in items:
            raise ValueError("not three")
        return items

    results = await asyncio.gather(*[store.submit(picky, n) for n in range(6)], return_exceptions=True)
    assert [type(result) for result in results] == [int, int, int, ValueError, int, int]


async def test_inserted_rows_keep_every_byte(store: Database) -> None:
    """`insert` stores any number of rows as they are, whatever the sizes of the batches."""
    rows = [(n, f"name {n}", bytes([n % 256, 0, 255])) for n in range(700)]
    await asyncio.gather(*[store.insert(things, row) for row in rows])
    stored = await store.read(lambda conn: conn.execute(select(things).order_by(things.c.thing_id)).all())
    assert [(row.thing_id, row.name, bytes(row.data)) for row in stored] == rows


async def test_a_reader_can_not_write(store: Database) -> None:
    """Reads go over read-only connections."""
    with pytest.raises(Exception, match=r"(?i)read-?only|can't be used"):
        await store.read(add(1))
    assert await count(store) == 0


async def test_closing_writes_what_waits_and_then_refuses(store: Database) -> None:
    """What was handed over before `close` is committed; afterwards nothing is taken."""
    waiting = [asyncio.create_task(store.write(add(n))) for n in range(10)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*waiting) == list(range(10))
    with pytest.raises(Unavailable):
        await store.write(add(99))


async def test_ping_answers_while_the_database_is_there(store: Database) -> None:
    """`ping` needs nothing but a connection."""
    await store.ping()
