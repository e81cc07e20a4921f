"""Where the database is and how connections to it are made, for both kinds of it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from app.settings import StoreSettings
from app.store.checkpoint import BACKSTOP_PAGES
from layers.errors import ConfigurationError

Dialect = Literal["sqlite", "postgresql"]

BUSY_TIMEOUT_MS = 10_000
"""How long a SQLite connection waits for another process's write lock."""

READERS = 4

ALONE = 2
"""Connections of a process for short transactions that agree something with other processes."""

_POSTGRES = {"postgresql", "postgres", "postgresql+psycopg"}


@dataclass(frozen=True)
class Location:
    """A checked database address."""

    url: URL
    dialect: Dialect

    def __str__(self) -> str:
        """Without the password."""
        return self.url.render_as_string(hide_password=True)


def locate(text: str) -> Location:
    """Read a database URL. Raises `ConfigurationError` for one that this service can't use."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigurationError(
            "ARBITER_DATABASE_URL is not a URL; use sqlite:///FILE or postgresql://USER@HOST/NAME"
        ) from None
    if url.drivername in _POSTGRES:
        return Location(url.set(drivername="postgresql+psycopg"), "postgresql")
    if url.drivername in {"sqlite", "sqlite+pysqlite"}:
        _check_sqlite(url)
        return Location(url.set(drivername="sqlite+pysqlite"), "sqlite")
    raise ConfigurationError(
        f"ARBITER_DATABASE_URL: {url.drivername!r} is not supported; use sqlite:///FILE or postgresql://USER@HOST/NAME"
    )


def _check_sqlite(url: URL) -> None:
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise ConfigurationError(
            "ARBITER_DATABASE_URL: a SQLite database must be a plain file, such as sqlite:///arbiter-l8.db; "
            "one in memory would lose every record and can't be shared by the reader and writer connections"
        )
    if url.query or url.host:
        raise ConfigurationError("ARBITER_DATABASE_URL: a SQLite URL takes a path only: sqlite:///FILE")


def prepare_file(location: Location) -> None:
    """Make the SQLite file, readable by its owner only, if there is none. Raises `ConfigurationError`."""
    path = Path(str(location.url.database))
    if not path.parent.is_dir():
        raise ConfigurationError(f"ARBITER_DATABASE_URL: the folder {str(path.parent)!r} does not exist; make it first")
    if path.is_dir():
        raise ConfigurationError(f"ARBITER_DATABASE_URL: {str(path)!r} is a folder, not a file")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, stat.S_IRUSR | stat.S_IWUSR))
    except OSError as exc:
        raise ConfigurationError(f"ARBITER_DATABASE_URL: {str(path)!r} can't be opened: {exc.strerror}") from exc


def writer_engine(location: Location, settings: StoreSettings) -> Engine:
    """An engine of one connection whose transactions may write."""
    if location.dialect == "postgresql":
        return _postgres(location, pool_size=1)
    pragmas = (f"synchronous={settings.synchronous}", f"wal_autocheckpoint={BACKSTOP_PAGES}")
    return _sqlite(location, pragmas, begin="BEGIN IMMEDIATE", size=1)


def reader_engine(location: Location) -> Engine:
    """An engine of a few connections whose transactions only read, each from one snapshot on SQLite."""
    if location.dialect == "postgresql":
        return _postgres(location, pool_size=READERS, execution_options={"postgresql_readonly": True})
    return _sqlite(location, ("query_only=ON",), begin="BEGIN", size=READERS)


def alone_engine(location: Location) -> Engine:
    """An engine of a few connections for short transactions with locks, on PostgreSQL."""
    return _postgres(location, pool_size=ALONE)


def _postgres(location: Location, **options: Any) -> Engine:
    return create_engine(
        location.url,
        max_overflow=0,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={"connect_timeout": 10, "application_name": "arbiter-l8"},
        **options,
    )


def _sqlite(location: Location, pragmas: tuple[str, ...], *, begin: str, size: int) -> Engine:
    engine = create_engine(
        location.url,
        pool_size=size,
        max_overflow=0,
        pool_reset_on_return=None,
        hide_parameters=True,
        connect_args={"check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _connected(raw: Any, _record: Any) -> None:
        raw.isolation_level = None  # the driver must not begin transactions of its own
        cursor = raw.cursor()
        for pragma in (f"busy_timeout={BUSY_TIMEOUT_MS}", "journal_mode=WAL", "foreign_keys=ON", *pragmas):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine
