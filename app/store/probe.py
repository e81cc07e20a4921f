"""A write that is made only to see whether writing works, as large as those that fail on a nearly full disk."""

from __future__ import annotations

import os

from sqlalchemy import Connection, delete
from sqlalchemy.dialects import postgresql, sqlite

from app.store.tables import budgets

NAME = "-probe"
SIZE = 262_144
"""Bytes: an evaluation with all its stages and a large input stays below."""


def put(conn: Connection) -> None:
    """Write it. Its bytes are random, or a database would make them small."""
    data = os.urandom(SIZE)
    insert = postgresql.insert if conn.dialect.name == "postgresql" else sqlite.insert
    row = insert(budgets).values(name=NAME, state=data)
    conn.execute(row.on_conflict_do_update(index_elements=["name"], set_={"state": data}))


def take(conn: Connection) -> None:
    """Take it away again."""
    conn.execute(delete(budgets).where(budgets.c.name == NAME))
