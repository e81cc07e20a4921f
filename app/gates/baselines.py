"""Named baselines: where each points, since when, and where it pointed before."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, insert, select
from sqlalchemy.exc import IntegrityError

from app.errors import Conflict
from app.gates.model import Baseline, BaselineMove
from app.gates.tables import baselines
from app.store.database import Database
from app.store.ids import now
from app.store.paging import decode_cursor

MAX_HISTORY = 100
"""Moves that a baseline shows."""


class BaselineStore:
    """Insert-only: moving a name adds a row."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, name: str) -> Baseline | None:
        """The baseline of that name with its latest moves."""
        query = select(baselines).where(baselines.c.name == name).order_by(baselines.c.move.desc()).limit(MAX_HISTORY)
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        if not rows:
            return None
        history = tuple(BaselineMove(run_id=row.run_id, set_at=row.set_at) for row in rows)
        return Baseline(name=name, run_id=rows[0].run_id, set_at=rows[0].set_at, n_moves=rows[0].move, history=history)

    async def page(self, limit: int, cursor: str | None) -> Sequence[Baseline]:
        """Baselines by name, without their history. Raises `BadRequest` for a foreign cursor."""
        last = select(baselines.c.name, func.max(baselines.c.move).label("move")).group_by(baselines.c.name).subquery()
        query = select(baselines).join(last, (last.c.name == baselines.c.name) & (last.c.move == baselines.c.move))
        if cursor is not None:
            (after,) = decode_cursor(cursor, str)
            query = query.where(baselines.c.name > after)
        query = query.order_by(baselines.c.name).limit(limit)
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        return [Baseline(name=row.name, run_id=row.run_id, set_at=row.set_at, n_moves=row.move) for row in rows]

    async def move(self, name: str, run_id: str) -> None:
        """Point `name` at a run; nothing happens when it points there already. Raises `Conflict` in a race."""
        newest = select(baselines.c.move, baselines.c.run_id).where(baselines.c.name == name)
        newest = newest.order_by(baselines.c.move.desc()).limit(1)

        def work(conn: Connection) -> None:
            row = conn.execute(newest).first()
            if row is None or row.run_id != run_id:
                number = 1 if row is None else row.move + 1
                conn.execute(insert(baselines).values(name=name, move=number, run_id=run_id, set_at=now()))

        try:
            await self._database.write(work)
        except IntegrityError:
            raise Conflict(f"somebody else moved the baseline {name} just now") from None
