"""The clock that all who use a database share."""

from __future__ import annotations

import time

from sqlalchemy import Connection, text


def moment_of(conn: Connection) -> float:
    """Seconds since 1970: the server's on PostgreSQL; a SQLite file is used by one machine, whose clock it is."""
    if conn.dialect.name == "sqlite":
        return time.time()
    return float(conn.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
