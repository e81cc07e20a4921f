"""One database, SQLite or PostgreSQL: readers in threads, one batching writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, Table

from app.settings import StoreSettings

T = TypeVar("T")
R = TypeVar("R")


class Database:
    """See the module. Raises `ConfigurationError` on opening what can't be used."""

    dialect: Literal["sqlite", "postgresql"]

    @classmethod
    async def open(cls, settings: StoreSettings) -> Database:
        raise NotImplementedError

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` on a read-only connection in a thread."""
        raise NotImplementedError

    async def write(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` in the writer's next transaction; returns after its COMMIT."""
        raise NotImplementedError

    async def submit(self, handler: Callable[[Connection, Sequence[T]], Sequence[R]], item: T) -> R:
        """Hand `item` to a batch handler, called once per transaction with all that waits for it; its own result."""
        raise NotImplementedError

    async def insert(self, table: Table, row: tuple[Any, ...]) -> None:
        """Insert one row (all columns in the table's order), together with the others of the transaction."""
        raise NotImplementedError

    async def ping(self) -> None:
        """Raise if the database can't be reached."""
        raise NotImplementedError

    async def close(self) -> None:
        """Commit what waits and let go of every connection."""
        raise NotImplementedError
