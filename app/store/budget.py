"""Small states that processes change in turns, such as what they have spent of a remote's rate limit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection, select, update
from sqlalchemy.dialects import postgresql, sqlite

from app.store.clock import moment_of
from app.store.database import Database
from app.store.tables import budgets
from layers.canonical import canonical_bytes
from layers.model import JsonObject
from layers.strict_json import loads

T = TypeVar("T")


class SharedStates:
    """States by name, each a JSON object; one that nobody changed yet is empty."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def change(self, name: str, change: Callable[[JsonObject, float], tuple[JsonObject, T]]) -> T:
        """Put the first thing that `change(state, now)` returns in the state's place, and return the second.

        Nobody else changes the same state meanwhile. `now` is in seconds on the database's clock. `change` may be
        called twice. Raises `Unavailable`.
        """
        return await self._database.alone(partial(_change, name=name, change=change))


def _change(conn: Connection, name: str, change: Callable[[JsonObject, float], tuple[JsonObject, T]]) -> T:
    mine = budgets.c.name == name
    query = select(budgets.c.state).where(mine).with_for_update()
    state = conn.scalar(query)
    if state is None:
        insert = postgresql.insert if conn.dialect.name == "postgresql" else sqlite.insert
        conn.execute(insert(budgets).values(name=name, state=b"{}").on_conflict_do_nothing())
        state = conn.scalar(query)
    new, result = change(loads(bytes(state or b"{}")), moment_of(conn))
    conn.execute(update(budgets).where(mine).values(state=canonical_bytes(new)))
    return result
