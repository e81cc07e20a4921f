"""A store on a bad day: a full disk, a file that is gone, damaged or emptied. It is told, and calls are refused."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import OperationalError

from app.errors import Unavailable
from app.settings import StoreSettings
from app.store.database import Database
from app.store.health import PROBE_EVERY, Health
from app.store.tables import budgets
from app.store.trouble import DAMAGED, FULL, NO_TABLES

pytestmark = pytest.mark.anyio


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path, clock: Clock) -> AsyncIterator[Database]:
    """A SQLite database with a table `things` and a thousand rows."""
    opened = await Database.open(StoreSettings(url=f"sqlite:///{path}"), Health(clock))
    await opened.write(lambda conn: conn.exec_driver_sql("CREATE TABLE things (data BLOB)"))
    for _ in range(3):
        await opened.write(add)
    yield opened
    await opened.close()


def add(conn: Connection) -> None:
    conn.exec_driver_sql("INSERT INTO things VALUES (randomblob(100000))")


def look(conn: Connection) -> int:
    return int(conn.exec_driver_sql("SELECT sum(length(data)) FROM things").scalar_one() or 0)


async def limit_pages(store: Database, pages: int | None) -> None:
    """Let the file grow to so many pages; None = no further than it is. Not a write that worked."""

    def set_limit(conn: Connection) -> None:
        wanted = pages or conn.exec_driver_sql("PRAGMA page_count").scalar_one()
        conn.exec_driver_sql(f"PRAGMA max_page_count = {wanted}")
        raise LookupError

    with pytest.raises(LookupError):
        await store.write(set_limit)


async def test_a_full_disk_is_told_until_a_write_works_again(store: Database, clock: Clock) -> None:
    """Reading works all the time; a write is tried at a limited rate, so that it ends without anyone's help."""
    assert await store.trouble() is None
    await limit_pages(store, None)
    with pytest.raises(Unavailable, match=FULL):
        await store.write(add)
    assert await store.read(look) == 300_000
    assert await store.trouble() == FULL
    await limit_pages(store, 1_000_000)
    assert await store.trouble() == FULL
    clock.now += PROBE_EVERY
    assert await store.trouble() is None
    await store.write(add)


async def test_failing_writes_are_tried_at_a_limited_rate(store: Database, clock: Clock) -> None:
    await limit_pages(store, None)
    with pytest.raises(Unavailable):
        await store.write(add)
    before = store.counts.jobs
    for second in range(11):
        clock.now = second
        assert await store.trouble() == FULL
    assert store.counts.jobs - before == 3


async def test_a_write_that_is_tried_is_no_smaller_than_one_that_failed(store: Database) -> None:
    """On a nearly full disk a few bytes can be written long after records can't."""

    def some_room(conn: Connection) -> int:
        return int(conn.exec_driver_sql("PRAGMA page_count").scalar_one()) + 20

    await limit_pages(store, await store.read(some_room))
    with pytest.raises(Unavailable, match=FULL):
        await store.write(add)
    await store.write(lambda conn: conn.exec_driver_sql("INSERT INTO things VALUES (NULL)"))
    assert await store.trouble() == FULL


async def test_failing_jobs_that_share_a_transaction_are_no_write_that_worked(store: Database) -> None:
    """Each is done again in a savepoint of its own, and the COMMIT of nothing works on a full disk too."""
    await limit_pages(store, None)
    results = await asyncio.gather(store.write(add), store.write(add), return_exceptions=True)
    assert [str(each) for each in results] == [FULL, FULL]
    assert store._health.trouble() == FULL


def delete(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def exists(path: Path) -> bool:
    return path.exists()


def put_back(path: Path) -> None:
    path.with_name("elsewhere").rename(path)


def replace(path: Path) -> None:
    other = path.with_name("other")
    shutil.copy(path, other)
    other.replace(path)


def delete_journal(path: Path) -> None:
    path.with_name("store.db-wal").unlink()


def overwrite(path: Path, page: int) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)


def empty(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(0)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (delete, "store.db was deleted or moved"),
        (move, "store.db was deleted or moved"),
        (replace, "store.db was replaced"),
        (delete_journal, "store.db-wal was deleted or moved"),
        (empty, "store.db was emptied"),
    ],
)
async def test_a_file_that_is_not_the_one_that_was_opened_is_refused(store: Database, path: Path, harm, says) -> None:
    """Whatever is read from it and written to it is gone at the next start; no new file is made in its place."""
    harm(path)
    there = exists(path)
    for call in (store.read(look), store.write(add), store.ping()):
        with pytest.raises(Unavailable, match=says):
            await call
    assert says in (await store.trouble() or "")
    assert exists(path) == there


async def test_a_file_that_is_put_back_is_used_again(store: Database, path: Path) -> None:
    move(path)
    with pytest.raises(Unavailable):
        await store.write(add)
    put_back(path)
    assert await store.trouble() is None
    assert await store.read(look) == 300_000


@pytest.mark.parametrize("way", ["read", "write"])
async def test_a_damaged_file_is_told_until_a_restart(tmp_path: Path, way: str) -> None:
    """Most of its pages may read well, and would make it look mended."""
    path = tmp_path / "damaged.db"
    settings = StoreSettings(url=f"sqlite:///{path}")
    made = await Database.open(settings)
    await made.write(lambda conn: conn.exec_driver_sql("CREATE TABLE things (data BLOB)"))
    for _ in range(3):
        await made.write(add)
    root = await made.read(
        lambda conn: conn.exec_driver_sql("SELECT rootpage FROM sqlite_master WHERE name = 'things'").scalar_one()
    )
    await made.close()
    overwrite(path, root)
    opened = await Database.open(settings)
    try:
        with pytest.raises(Unavailable, match=DAMAGED):
            await getattr(opened, way)(look if way == "read" else add)
        await opened.ping()
        assert await opened.trouble() == DAMAGED
    finally:
        await opened.close()


@pytest.mark.parametrize("way", ["read", "write"])
async def test_tables_that_are_gone_are_the_databases_trouble(database: Database, way: str) -> None:
    """They were there when the schema was checked."""
    with pytest.raises(Unavailable, match=NO_TABLES):
        await getattr(database, way)(look)


async def test_a_write_is_tried_on_each_kind_of_database(database: Database) -> None:
    def broken(_: Connection) -> None:
        raise OperationalError("INSERT", {}, Exception("no room"))

    with pytest.raises(Unavailable):
        await database.write(broken)
    assert await database.trouble() is None
    assert await database.read(lambda conn: conn.execute(select(func.count()).select_from(budgets)).scalar_one()) == 0
