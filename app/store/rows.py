"""Many rows in one statement: the driver's own speed for the hot path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

_MAX_PARAMETERS = 32_000
"""SQLite takes 32,766 in one statement, PostgreSQL 65,535."""

Row = tuple[Any, ...]


def insert_rows(conn: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert `rows`, each with a value for every column in the table's order, types as the driver takes them.

    Rows go out in statements of 256, 128, ... 1 rows: few texts, so that each is prepared once, and few steps, since
    the interpreter's lock changes hands at each.
    """
    width = len(table.columns)
    size, start = 256, 0
    while start < len(rows):
        while size > len(rows) - start or size * width > _MAX_PARAMETERS:
            size //= 2
        values = tuple(chain.from_iterable(rows[start : start + size]))
        conn.exec_driver_sql(_statement(table, conn.dialect.name, size), values)
        start += size


@cache
def inserter(table: Table) -> Callable[[Connection, Sequence[Row]], list[None]]:
    """The batch handler that inserts rows into `table`."""

    def handle(conn: Connection, rows: Sequence[Row]) -> list[None]:
        insert_rows(conn, table, rows)
        return [None] * len(rows)

    return handle


@cache
def _statement(table: Table, dialect: str, rows: int) -> str:
    quote = (postgresql.dialect() if dialect == "postgresql" else sqlite.dialect()).identifier_preparer  # type: ignore[no-untyped-call]
    mark = "%s" if dialect == "postgresql" else "?"
    columns = ", ".join(quote.quote(column.name) for column in table.columns)
    row = "(" + ", ".join([mark] * len(table.columns)) + ")"
    return f"INSERT INTO {quote.format_table(table)} ({columns}) VALUES {', '.join([row] * rows)}"  # noqa: S608 - names are ours
