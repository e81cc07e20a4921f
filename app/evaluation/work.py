"""Accepted work: stored first, worked off afterwards, by one process at a time."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Update, and_, bindparam, func, literal_column, or_, select, update

from app.evaluation.model import Accepted, BatchStatus, WorkError
from app.evaluation.tables import accepted_work
from app.store.database import Database
from app.store.ids import now
from app.store.paging import is_storable
from app.store.rows import Row, insert_rows, inserter
from layers.canonical import canonical_bytes

Kind = Literal["evaluate", "audit"]

LEASE_SECONDS = 30.0
"""How long a silent worker keeps its work from others; it renews three times as often."""

MAX_ATTEMPTS = 5
"""A piece of work that outlived so many workers is given up: it may be what kills them."""

_ABANDONED = canonical_bytes(
    {"kind": "abandoned", "message": f"given up after {MAX_ATTEMPTS} workers ended while they were at it"}
)

_IS_OPEN = accepted_work.c.status == literal_column("'accepted'")
"""Written out rather than a parameter: only then does SQLite use the partial index."""


@dataclass(frozen=True, slots=True)
class Work:
    """A claimed piece of work. `request` is the canonical request; `attempts` counts the workers that had it before.

    `traceparent` is the span of whoever asked for it, as W3C writes it.
    """

    work_id: str
    kind: Kind
    parent_id: str | None
    fresh: bool
    request: bytes
    attempts: int = 0
    traceparent: str | None = None


def work_row(
    work_id: str,
    request: bytes,
    *,
    kind: Kind = "evaluate",
    batch: tuple[str, int] | None = None,
    parent_id: str | None = None,
    fresh: bool = False,
    error: WorkError | None = None,
    traceparent: str | None = None,
) -> Row:
    """The row of new work. `batch` is the batch's id and the position in it. With `error` it has failed already."""
    created = now()
    return (
        work_id,
        kind,
        None if batch is None else batch[0],
        0 if batch is None else batch[1],
        parent_id,
        fresh,
        request,
        "accepted" if error is None else "failed",
        0,
        "",
        0.0,
        None,
        None if error is None else canonical_bytes(error.model_dump()),
        created,
        None if error is None else created,
        traceparent,
    )


class WorkStore:
    """Accepted work as one process sees it: `owner` names the process on the leases that it holds."""

    def __init__(self, database: Database, *, owner: str | None = None, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self.owner = owner or f"{socket.gethostname()[:64]}:{os.getpid()}:{secrets.token_hex(8)}"

    async def add(self, rows: Sequence[Row]) -> None:
        """Store new work, all of it or none."""
        if len(rows) == 1:
            await self._database.submit(inserter(accepted_work), rows[0])
        else:
            await self._database.write(lambda conn: insert_rows(conn, accepted_work, rows))

    async def claim(self, limit: int) -> list[Work]:
        """Take up to `limit` pieces, oldest first, that nobody holds."""
        return await self._database.write(lambda conn: self._claim(conn, limit))

    async def renew(self, work_ids: Collection[str]) -> None:
        """Go on holding these pieces, as far as this process still holds them."""
        if work_ids:
            mine = _held(self.owner).where(accepted_work.c.work_id.in_(list(work_ids)))
            change = mine.values(lease_until=self._clock() + LEASE_SECONDS)
            await self._database.write(lambda conn: conn.execute(change))

    async def release(self) -> None:
        """Let go of what this process holds, so that another one need not wait; that was no attempt."""
        columns = accepted_work.c
        change = _held(self.owner).values(lease_owner="", lease_until=0.0, attempts=columns.attempts - 1)
        await self._database.write(lambda conn: conn.execute(change))

    async def release_dead(self) -> None:
        """Let go of what processes of this machine held that are no more."""
        owners = await self._database.read(_owners)
        dead = [owner for owner in owners if owner != self.owner and _is_dead(owner)]
        if dead:
            change = _held(*dead).values(lease_owner="", lease_until=0.0)
            await self._database.write(lambda conn: conn.execute(change))

    async def finish(self, work_id: str, result_id: str) -> None:
        """The evaluation `result_id` answers this work."""
        await self._end(work_id, "done", result=result_id)

    async def fail(self, work_id: str, kind: str, message: str) -> None:
        """This work came to nothing."""
        await self._end(work_id, "failed", error=canonical_bytes({"kind": kind, "message": message}))

    async def _end(self, work_id: str, status: str, *, result: str | None = None, error: bytes | None = None) -> None:
        values = {"id": work_id, "to": status, "at": now(), "result": result, "why": error}
        await self._database.submit(_end_all, values)

    async def status(self, work_id: str) -> tuple[Accepted, str | None] | None:
        """How a piece of work stands, and the evaluation that answers it; None = there is no such work."""
        columns = accepted_work.c
        query = select(columns.status, columns.batch_id, columns.error, columns.created_at, columns.result_id).where(
            columns.work_id == work_id
        )
        row = await self._database.read(lambda conn: conn.execute(query).first()) if is_storable(work_id) else None
        if row is None:
            return None
        error = None if row.error is None else WorkError.model_validate_json(bytes(row.error))
        accepted = Accepted(
            evaluation_id=work_id, status=row.status, batch_id=row.batch_id, error=error, created_at=row.created_at
        )
        return accepted, row.result_id

    async def batch(self, batch_id: str) -> BatchStatus | None:
        """How far a batch is; None = there is no such batch."""
        columns = accepted_work.c
        query = select(columns.status, columns.created_at, columns.work_id, columns.result_id)
        query = query.where(columns.batch_id == batch_id).order_by(columns.position)
        rows = await self._database.read(lambda conn: conn.execute(query).all()) if is_storable(batch_id) else []
        if not rows:
            return None
        n_done = sum(row.status == "done" for row in rows)
        n_failed = sum(row.status == "failed" for row in rows)
        return BatchStatus(
            batch_id=batch_id,
            status="done" if n_done + n_failed == len(rows) else "accepted",
            n_total=len(rows),
            n_done=n_done,
            n_failed=n_failed,
            evaluation_ids=tuple(row.result_id or row.work_id for row in rows),
            created_at=rows[0].created_at,
        )

    async def backlog(self) -> int:
        """How much is accepted and not done."""
        query = select(func.count()).select_from(accepted_work).where(accepted_work.c.status == "accepted")
        return int(await self._database.read(lambda conn: conn.execute(query).scalar_one()))

    def _claim(self, conn: Connection, limit: int) -> list[Work]:
        columns, moment = accepted_work.c, self._clock()
        query = (
            select(
                columns.work_id,
                columns.kind,
                columns.parent_id,
                columns.fresh,
                columns.request,
                columns.attempts,
                columns.traceparent,
            )
            .where(and_(_IS_OPEN, or_(columns.lease_until < moment, columns.lease_owner == "")))
            .order_by(columns.work_id)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        rows = conn.execute(query).all()
        spent = [row.work_id for row in rows if row.attempts >= MAX_ATTEMPTS]
        taken = [row for row in rows if row.attempts < MAX_ATTEMPTS]
        if spent:
            given_up = {"status": "failed", "error": _ABANDONED, "finished_at": now(), "lease_owner": ""}
            conn.execute(update(accepted_work).where(columns.work_id.in_(spent)).values(given_up))
        if taken:
            lease: dict[str, Any] = {"lease_owner": self.owner, "lease_until": moment + LEASE_SECONDS}
            chosen = update(accepted_work).where(columns.work_id.in_([row.work_id for row in taken]))
            conn.execute(chosen.values(attempts=columns.attempts + 1, **lease))
        return [
            Work(row.work_id, row.kind, row.parent_id, bool(row.fresh), bytes(row.request), *row[-2:]) for row in taken
        ]


_END = (
    update(accepted_work)
    .where(accepted_work.c.work_id == bindparam("id"), _IS_OPEN)
    .values(
        status=bindparam("to"),
        finished_at=bindparam("at"),
        lease_owner="",
        result_id=bindparam("result"),
        error=bindparam("why"),
    )
)


def _end_all(conn: Connection, ends: Sequence[dict[str, Any]]) -> list[None]:
    """The batch handler of what is finished: one statement for all, built once."""
    conn.execute(_END, list(ends))
    return [None] * len(ends)


def _held(*owners: str) -> Update:
    return update(accepted_work).where(_IS_OPEN, accepted_work.c.lease_owner.in_(owners))


def _owners(conn: Connection) -> list[str]:
    owner = accepted_work.c.lease_owner
    return list(conn.execute(select(owner).where(_IS_OPEN, owner != "").distinct()).scalars())


def _is_dead(owner: str) -> bool:
    """Whether the process of this machine that made `owner` has ended. One of another machine can't be told."""
    host, _, rest = owner.partition(":")
    pid, _, _ = rest.partition(":")
    if host != socket.gethostname()[:64] or not pid.isdigit():
        return False
    if int(pid) == os.getpid():
        return True  # an earlier process that had the same number, as they do in containers
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False
