"""One database, SQLite or PostgreSQL: readers in threads, one batching writer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import DBAPIError

from app.errors import Unavailable
from app.settings import StoreSettings
from app.store import probe
from app.store.checkpoint import Checkpointer
from app.store.engines import (
    ALONE,
    READERS,
    Dialect,
    Location,
    alone_engine,
    locate,
    prepare_file,
    reader_engine,
    writer_engine,
)
from app.store.file_watch import FileWatch
from app.store.health import Health, Way
from app.store.migrate import check_current, upgrade_engine
from app.store.rows import inserter
from app.store.trouble import is_trouble
from app.store.writer import Counts, Writer, call_each

PROBE_S = 1.0
"""Seconds within which a write that is tried must be done."""

T = TypeVar("T")
R = TypeVar("R")


class Database:
    """Functions over SQLAlchemy Core connections, run where they do not block the event loop.

    What is read was committed; what was written is on disk when the call returns. Functions handed to the writer may
    be run twice (see `Writer`), so they touch nothing but their connection. `Unavailable` is raised when the database
    can't be used, whatever the function raised otherwise.
    """

    def __init__(self, location: Location, writer: Engine, reader: Engine, health: Health) -> None:
        self.dialect: Dialect = location.dialect
        self.url = location.url
        self._writer_engine = writer
        self._reader_engine = reader
        self._health = health
        self._checkpointer: Checkpointer | None = None
        self._watch: FileWatch | None = None
        if location.dialect == "sqlite":
            path = Path(str(location.url.database))
            self._checkpointer = Checkpointer(path)
            self._watch = FileWatch(path)
            self._writer = Writer(
                writer, self._health, check=lambda: self._check("write"), after_commit=self._checkpointer.committed
            )
        else:
            self._writer = Writer(writer, self._health)
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="arbiter-reader")
        self._alone_engine: Engine | None = None
        if location.dialect == "postgresql":
            self._alone_engine = alone_engine(location)
        self._alone_threads = ThreadPoolExecutor(ALONE, thread_name_prefix="arbiter-alone")

    @classmethod
    async def open(cls, settings: StoreSettings, health: Health | None = None) -> Database:
        """Connect. A SQLite file is made and brought to the newest schema; PostgreSQL must have it already.

        Raises `ConfigurationError` for an address, a file or a schema that can't be used.
        """
        location = locate(settings.url)
        writer, reader = await asyncio.to_thread(_connect, location, settings)
        return cls(location, writer, reader, health or Health())

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` on a read-only connection in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, fn)

    async def write(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` in the writer's next transaction. What `fn` raises undoes its own changes and nobody else's."""
        result: T = await self._writer.submit(call_each, fn)
        return result

    async def alone(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` in a transaction of its own that waits for nothing else and holds its locks no longer than it needs.

        For what processes agree on. On SQLite, where every writer waits for every other, it is the same as `write`.
        """
        if self._alone_engine is None:
            return await self.write(fn)
        return await asyncio.get_running_loop().run_in_executor(
            self._alone_threads, self._transact, self._alone_engine, fn, "write"
        )

    async def submit(self, handler: Callable[[Connection, Sequence[T]], Sequence[R]], item: T) -> R:
        """Hand `item` to a batch handler, which is called once per transaction with all that waits for it.

        It returns one result per item, in order. If it raises, it is called again for each item alone.
        The handler's identity is what groups items: pass the same function object each time.
        """
        result: R = await self._writer.submit(handler, item)
        return result

    async def insert(self, table: Table, row: tuple[Any, ...]) -> None:
        """Insert one row: a value for every column, in the table's order, types as the driver takes them."""
        await self._writer.submit(inserter(table), row)

    @property
    def counts(self) -> Counts:
        """What was written since the start."""
        return self._writer.counts

    async def ping(self) -> None:
        """Raise `Unavailable` if the database can't be reached."""
        await self.read(lambda conn: conn.exec_driver_sql("SELECT 1").scalar())

    async def trouble(self) -> str | None:
        """Why records can't be kept, as a sentence; None = nothing is known against it.

        Where the last write failed, another one is tried now and then, so that this ends with its cause.
        """
        if self._health.trouble() is not None and self._health.may_probe():
            with suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(PROBE_S):
                    await self.write(probe.put)
                    self._health.worked("write", proof=True)
                    await self.write(probe.take)
        return self._health.trouble()

    async def close(self) -> None:
        """Write what waits and let go of every connection."""
        await self._writer.close()
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._alone_threads.shutdown)
        await asyncio.to_thread(self._dispose)

    def _read(self, fn: Callable[[Connection], T]) -> T:
        self._check("read")
        return self._transact(self._reader_engine, fn, "read")

    def _check(self, way: Way) -> None:
        if self._watch is not None and (why := self._watch.trouble()) is not None:
            raise self._health.refused(why, way)

    def _transact(self, engine: Engine, fn: Callable[[Connection], T], way: Way) -> T:
        try:
            with engine.connect() as conn, conn.begin():
                result = fn(conn)
        except DBAPIError as exc:
            if is_trouble(exc):
                raise self._health.failed(exc, way) from exc
            raise
        self._health.worked(way)
        return result

    def _dispose(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.close()
        self._writer_engine.dispose()
        self._reader_engine.dispose()
        if self._alone_engine is not None:
            self._alone_engine.dispose()


def _connect(location: Location, settings: StoreSettings) -> tuple[Engine, Engine]:
    if location.dialect == "sqlite":
        prepare_file(location)
    writer = writer_engine(location, settings)
    try:
        if location.dialect == "sqlite":
            upgrade_engine(writer, location)
        else:
            check_current(writer, location)
    except BaseException:
        writer.dispose()
        raise
    return writer, reader_engine(location)
