"""Which processes work on a store's runs: each holds a numbered seat, and a seat falls free when its process dies."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool

from layers.errors import ConfigurationError

try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system: one process per store, as its operator has to see to
    fcntl = None  # type: ignore[assignment]

MAX_SEATS = 64
_LOCK_CLASS = 0x41524C39
"""Our half of PostgreSQL's two-part advisory lock keys."""


class Seats(Protocol):
    """Blocking calls, for a thread. The kernel or the database server gives a dead process's seat back."""

    def take(self) -> int:
        """The lowest free seat, held until `leave`. Raises `ConfigurationError` when there is none."""
        ...

    def taken(self, seat: int) -> bool:
        """Whether a living process, this one included, holds that seat."""
        ...

    def leave(self) -> None:
        """Give the seat back."""
        ...


def seats_of(url: URL) -> Seats:
    """The seats of the store at `url`."""
    if url.get_backend_name() == "sqlite":
        return FileSeats(Path(str(url.database)))
    return ServerSeats(url)


class FileSeats:
    """Seats beside a SQLite file: a lock on one small file each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: int | None = None

    def take(self) -> int:
        for seat in range(MAX_SEATS):
            if (file := self._lock(seat)) is not None:
                self._held = file
                return seat
        raise _full()

    def taken(self, seat: int) -> bool:
        file = self._lock(seat)
        if file is not None:
            os.close(file)
        return file is None

    def leave(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _lock(self, seat: int) -> int | None:
        file = os.open(f"{self._path}.seat{seat}", os.O_CREAT | os.O_RDWR, 0o600)
        with contextlib.suppress(BlockingIOError):
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        os.close(file)
        return None


class ServerSeats:
    """Seats on a PostgreSQL server: an advisory lock each, held by a connection that is kept for it."""

    def __init__(self, url: URL) -> None:
        self._engine: Engine = create_engine(
            url, poolclass=NullPool, isolation_level="AUTOCOMMIT", hide_parameters=True
        )
        self._held: Connection | None = None

    def take(self) -> int:
        connection = self._engine.connect()
        for seat in range(MAX_SEATS):
            if _try_lock(connection, seat):
                self._held = connection
                return seat
        connection.close()
        raise _full()

    def taken(self, seat: int) -> bool:
        with self._engine.connect() as connection:  # closing it gives the lock back
            return not _try_lock(connection, seat)

    def leave(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


def _try_lock(connection: Connection, seat: int) -> bool:
    query = text("SELECT pg_try_advisory_lock(:class, :seat)")
    return bool(connection.execute(query, {"class": _LOCK_CLASS, "seat": seat}).scalar())


def _full() -> ConfigurationError:
    return ConfigurationError(f"{MAX_SEATS} processes work on runs of this store already")
