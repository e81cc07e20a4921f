"""Runs in the store: what was asked for, and where each one stands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, insert, select, update

from app.runs.model import BUSY, TERMINAL, RunFailure, RunFilters, RunOptions, RunStatus
from app.runs.tables import run_chunks, run_keys, runs
from app.store.database import Database
from app.store.ids import now
from app.store.paging import decode_cursor
from layers.canonical import canonical_bytes
from layers.model import JsonObject, Value
from layers.profile import SystemProfile


class RunConfig(Value):
    """Everything that decides what a run does, as it was when the run was accepted."""

    system: str
    options: RunOptions
    labels: dict[str, str]
    concurrency: int
    max_failed_share: float
    unreachable_limit: int
    profile: SystemProfile
    code_version: str
    plan: JsonObject | None = None
    """What the run's pipeline does, where it has one of its own."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One row of `runs`. `n_total` counts questions: examples times repeats."""

    no: int
    run_id: str
    name: str | None
    system: str
    status: RunStatus
    failure: RunFailure | None
    dataset_no: int
    dataset_id: str
    n_total: int
    attempts: int
    generation: int
    executor: str | None
    config: RunConfig
    created_at: str
    started_at: str | None
    finished_at: str | None

    @property
    def workflow_id(self) -> str:
        """The engine's name for this run's current stretch of work."""
        return f"{self.run_id}:{self.attempts}:{self.generation}"


@dataclass(frozen=True, slots=True)
class Room:
    """At most `most` runs ask one system at a time, among those that `executor` works on."""

    most: int
    executor: str | None


def has_room(conn: Connection, run: StoredRun, room: Room) -> bool:
    """Whether the run is being asked about, or fewer than there may be are."""
    asked = select(run_chunks.c.run_no).distinct().where(run_chunks.c.owner.is_not(None), ~run_chunks.c.done)
    asking = conn.scalars(asked.join(runs, runs.c.run_no == run_chunks.c.run_no).where(*_rivals(run, room))).all()
    return run.no in asking or len(asking) < room.most


def _rivals(run: StoredRun, room: Room) -> list[ColumnElement[bool]]:
    """The unfinished runs against the same system."""
    columns = runs.c
    mine = columns.executor.is_(None) | (columns.executor == room.executor)
    return [columns.system == run.system, columns.status.in_([status.value for status in BUSY]), mine]


class RunStore:
    """The rows of runs. A status changes only from one that allows it, so that racing changes can't undo each other."""

    def __init__(self, database: Database, *, on_end: Callable[[str], Awaitable[None]] | None = None) -> None:
        self._database = database
        self._on_end = on_end

    async def create(self, run: StoredRun, key: str | None = None) -> None:
        """Store a new run, and under `key` that it was the answer. `run.no` is ignored: the store gives the number."""
        row = {
            "run_id": run.run_id,
            "name": run.name,
            "system": run.system,
            "status": run.status.value,
            "failure": None,
            "dataset_no": run.dataset_no,
            "dataset_id": run.dataset_id,
            "n_total": run.n_total,
            "attempts": run.attempts,
            "generation": run.generation,
            "executor": run.executor,
            "priority": run.config.options.priority,
            "config": canonical_bytes(run.config.model_dump(mode="json")),
            "created_at": run.created_at,
        }

        def work(conn: Connection) -> None:
            conn.execute(insert(runs).values(row))
            if key is not None:
                conn.execute(update(run_keys).where(run_keys.c.idempotency_key == key).values(run_id=run.run_id))

        await self._database.write(work)

    async def get(self, run_id: str) -> StoredRun | None:
        query = select(runs).where(runs.c.run_id == run_id)
        row = await self._database.read(lambda conn: conn.execute(query).first())
        return None if row is None else _run(row)

    async def list(self, filters: RunFilters, limit: int, cursor: str | None) -> list[StoredRun]:
        """Newest first, one more than `limit`. Raises `BadRequest` for a foreign cursor."""
        query = select(runs).order_by(runs.c.run_id.desc()).limit(limit + 1)
        query = _filtered(query, filters)
        if cursor is not None:
            (last,) = decode_cursor(cursor, str)
            query = query.where(runs.c.run_id < last)
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        return [_run(row) for row in rows]

    async def unfinished(self) -> Sequence[StoredRun]:
        """Runs that somebody should be working on, oldest first."""
        idle = [status.value for status in (*TERMINAL, RunStatus.PAUSED)]
        query = select(runs).where(runs.c.status.not_in(idle)).order_by(runs.c.run_id)
        return [_run(row) for row in await self._database.read(lambda conn: conn.execute(query).all())]

    async def status(self, run: StoredRun) -> RunStatus | None:
        """Only where the run stands, cheap enough to ask every second; None = it is in another stretch of work."""
        query = select(runs.c.status).where(
            runs.c.run_id == run.run_id, runs.c.attempts == run.attempts, runs.c.generation == run.generation
        )
        value = await self._database.read(lambda conn: conn.scalar(query))
        return None if value is None else RunStatus(value)

    async def move(
        self,
        run_id: str,
        to: RunStatus,
        *,
        only_from: Collection[RunStatus],
        failure: RunFailure | None = None,
        stretch: str | None = None,
    ) -> bool:
        """Change the status if it is one of `only_from`; whether it was. Start and end times are set on the way.

        With `stretch`, a workflow's id, only while the run is in that stretch of work: what is left of an earlier one
        has no say any more.

        `on_end` is awaited, with the run's id, after a move to a status that ends the run.
        """
        values: dict[str, Any] = {"status": to.value}
        if failure is not None:
            values["failure"] = canonical_bytes(failure.model_dump())
        if to in TERMINAL:
            values["finished_at"] = now()
        allowed = [status.value for status in only_from]
        change = update(runs).where(runs.c.run_id == run_id, runs.c.status.in_(allowed)).values(values)
        if stretch is not None:
            attempts, generation = map(int, stretch.split(":")[1:3])
            change = change.where(runs.c.attempts == attempts, runs.c.generation == generation)
        begin = update(runs).where(runs.c.run_id == run_id, runs.c.started_at.is_(None)).values(started_at=now())
        ended = select(runs.c.run_no).where(runs.c.run_id == run_id).scalar_subquery()
        forget = delete(run_chunks).where(run_chunks.c.run_no == ended, run_chunks.c.owner.is_(None))

        def work(conn: Connection) -> bool:
            moved = conn.execute(change).rowcount > 0
            if moved and to is RunStatus.RUNNING:
                conn.execute(begin)
            if moved and to in TERMINAL:
                conn.execute(forget)
            return moved

        moved = await self._database.write(work)
        if moved and to in TERMINAL and self._on_end is not None:
            await self._on_end(run_id)
        return moved

    async def turn(self, run: StoredRun, room: Room) -> bool:
        """Whether `run` is among those that may ask their system now, and there is room for it.

        Of the highest priority, those that have begun and then the oldest. One that is more urgent than those at it
        waits until one of them has stopped, which it does as soon as it notices.
        """
        columns = runs.c
        query = (
            select(columns.run_no, columns.priority)
            .where(*_rivals(run, room))
            .order_by(columns.priority.desc(), columns.status == RunStatus.QUEUED.value, columns.run_no)
            .limit(room.most)
        )

        def look(conn: Connection) -> bool:
            first = [(row.run_no, row.priority) for row in conn.execute(query)]
            return bool(first) and (run.no, first[0][1]) in first and has_room(conn, run, room)

        return await self._database.read(look)

    async def retry(self, run: StoredRun, executor: str | None) -> bool:
        """Begin a new attempt of a run that has ended, as it was read; False = somebody was quicker.

        Chunks of earlier attempts go: who still holds one writes nothing more, or an example could be scored twice.
        """
        change = (
            update(runs)
            .where(runs.c.run_id == run.run_id, runs.c.attempts == run.attempts, runs.c.status == run.status.value)
            .values(status=RunStatus.QUEUED.value, executor=executor, attempts=run.attempts + 1, generation=0)
            .values(failure=None, started_at=None, finished_at=None)
        )
        forget = delete(run_chunks).where(run_chunks.c.run_no == run.no, run_chunks.c.attempt <= run.attempts)

        def work(conn: Connection) -> bool:
            moved = conn.execute(change).rowcount > 0
            if moved:
                conn.execute(forget)
            return moved

        return await self._database.write(work)

    async def hand_over(self, run: StoredRun, executor: str | None, to: RunStatus) -> bool:
        """Give the run, as it was read, to `executor` as a new workflow; False = somebody was quicker."""
        change = (
            update(runs)
            .where(runs.c.run_id == run.run_id, runs.c.generation == run.generation, runs.c.status == run.status.value)
            .values(status=to.value, executor=executor, generation=run.generation + 1)
        )
        return await self._database.write(lambda conn: conn.execute(change).rowcount > 0)


def stretch_of(workflow_id: str) -> str:
    """The stretch of work that a workflow belongs to: several processes may have one each for the same."""
    return ":".join(workflow_id.split(":", 3)[:3])


def run_id_of(workflow_id: str) -> str:
    """The run that a workflow works on."""
    return workflow_id.partition(":")[0]


def _filtered(query: Select[Any], filters: RunFilters) -> Select[Any]:
    for column in ("system", "status", "dataset_id", "name"):
        value = getattr(filters, column)
        if value is not None:
            query = query.where(runs.c[column] == (value.value if isinstance(value, RunStatus) else value))
    return query


def _run(row: Row[Any]) -> StoredRun:
    values: JsonObject = dict(row._mapping)
    failure = values.pop("failure")
    values.pop("priority")  # as the configuration has it
    return StoredRun(
        no=values.pop("run_no"),
        status=RunStatus(values.pop("status")),
        failure=None if failure is None else RunFailure.model_validate_json(failure),
        config=RunConfig.model_validate_json(values.pop("config")),
        **values,
    )
