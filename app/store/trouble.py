"""What a driver's error says about the database, as opposed to the statement; and a sentence for it."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, InternalError, OperationalError

AT_THE_MOMENT = "the store can't be used at the moment"
FULL = "the store can't be written: its disk is full"
READ_ONLY = "the store can't be written: it is read-only"
FAILING_DISK = "the store's disk fails"
DAMAGED = "the store's database is damaged: restore a backup"
NO_TABLES = "the store's database has lost its tables: restore a backup"
CONTRADICTS = "the store's log and its stages contradict each other: restore a backup"

_SQLITE = {
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_IOERR: FAILING_DISK,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
}
_POSTGRES = {
    "53100": FULL,
    "25006": READ_ONLY,
    "58030": FAILING_DISK,
    "XX001": DAMAGED,
    "XX002": DAMAGED,
    "42P01": NO_TABLES,
}
"""By SQLSTATE: https://www.postgresql.org/docs/current/errcodes-appendix.html."""


class Contradiction(Exception):
    """What is stored can't all be true, as no way of writing of ours would leave it: somebody changed the database."""


def is_trouble(exc: BaseException) -> bool:
    """Whether the database, and not the statement, is the trouble.

    SQLite's driver tells of a damaged file by the base class itself, PostgreSQL's of tables that are gone as of a
    wrong statement; ours ran when the schema was checked.
    """
    if isinstance(exc, (OperationalError, InterfaceError, InternalError)) or type(exc) is DatabaseError:
        return True
    return isinstance(exc, DBAPIError) and _state_of(exc) == "42P01"


def sentence(exc: DBAPIError) -> str:
    """What callers are told. What exactly the database said may name its files, and is for the log."""
    code = getattr(exc.orig, "sqlite_errorcode", None)
    if code is not None:
        missing = str(exc.orig).startswith("no such table")
        return NO_TABLES if missing else _SQLITE.get(code & 0xFF, AT_THE_MOMENT)
    return _POSTGRES.get(_state_of(exc) or "", AT_THE_MOMENT)


def _state_of(exc: DBAPIError) -> str | None:
    return getattr(exc.orig, "sqlstate", None)
