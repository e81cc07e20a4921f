"""The processes that take runs: each gives signs of life, and who gives none for too long is taken for dead."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select, update

from app.runs.tables import workers
from app.store.clock import moment_of
from app.store.database import Database
from app.store.ids import now
from layers.ports import Clock

BEATS = 4
"""Signs of life within one lease."""

_columns = workers.c


@dataclass(frozen=True, slots=True)
class Worker:
    """A process as the others see it; `silent` = seconds since its last sign of life."""

    worker_id: str
    executor: str | None
    silent: float
    lease: float

    @property
    def expired(self) -> bool:
        return self.silent > self.lease

    @property
    def late(self) -> bool:
        """Whether it should have been heard of since: worth a look whether its process is still there."""
        return self.silent > 1.5 * self.lease / BEATS


class Fleet:
    """This process among the others. All times are the database's, so that no two clocks need agree."""

    def __init__(self, database: Database, *, lease: float, code_version: str, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._heard_at = -math.inf
        self._database = database
        self._lease = lease
        self._code_version = code_version[:64]
        self.me: str | None = None
        self._executor: str | None = None

    @property
    def beat_seconds(self) -> float:
        """Time between two signs of life."""
        return self._lease / BEATS

    async def join(self, executor: str | None) -> str:
        """Become one of them; the name that this process goes by from now on. `executor` None = it does no work."""
        self._executor = executor
        self.me = f"{executor or 'api'}.{secrets.token_hex(8)}"
        await self.beat()
        return self.me

    async def beat(self) -> None:
        """Give a sign of life. Whoever was taken for dead is back with that, but not what it held."""
        if self.me is not None:
            began = self._clock()
            await self._database.alone(self._beat)
            self._heard_at = began

    def is_heard(self) -> bool:
        """Whether the others know that this process is alive; if not, they may do its work by now."""
        return self._clock() - self._heard_at < self._lease

    async def leave(self) -> None:
        """Say goodbye."""
        me, self.me = self.me, None
        if me is not None:
            await self.forget([me])

    async def others(self) -> Sequence[Worker]:
        """Everybody else, dead or alive."""

        def look(conn: Connection) -> list[Worker]:
            moment = moment_of(conn)
            rows = conn.execute(select(workers).where(_columns.worker_id != (self.me or "")))
            return [Worker(row.worker_id, row.executor, moment - row.beat_at, row.lease) for row in rows]

        return await self._database.read(look)

    async def forget(self, worker_ids: Sequence[str]) -> None:
        """They are gone."""
        gone = delete(workers).where(_columns.worker_id.in_(worker_ids))
        await self._database.alone(lambda conn: conn.execute(gone).rowcount)

    def _beat(self, conn: Connection) -> None:
        values = {"beat_at": moment_of(conn), "lease": self._lease}
        if conn.execute(update(workers).where(_columns.worker_id == self.me).values(values)).rowcount == 0:
            row = {"worker_id": self.me, "executor": self._executor, "code_version": self._code_version}
            conn.execute(insert(workers).values({**row, **values, "started_at": now()}))
