"""Records in the store: insert-only facts, and what is derived from them by counting."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import cast

from sqlalchemy import ColumnElement, Connection, and_, exists, func, select, tuple_
from sqlalchemy.exc import IntegrityError

from app.runs.chunks import Claim, hold
from app.runs.limits import Standing
from app.runs.model import BUSY, Record, RecordFilters
from app.runs.store import StoredRun
from app.runs.tables import dataset_examples, records
from app.runs.tally import Pair, Tally
from app.store.database import Database
from app.store.paging import decode_cursor
from app.store.rows import Row, insert_rows
from layers.canonical import canonical_bytes
from layers.profile import SystemProfile

EXPORT_ROWS = 500

Key = tuple[int, int, int]
"""Where a record stands in its run: position, repeat, attempt."""


def row_of(run_no: int, position: int, record: Record, profile: SystemProfile) -> Row:
    """The row of a record. Raises `ValueError` when it holds what JSON can't carry."""
    prediction = record.prediction
    return (
        run_no,
        position,
        record.repeat,
        record.attempt,
        record.status,
        profile.fold(record.expected_label),
        record.scored_label,
        record.error.kind if record.error else None,
        prediction.confidence if prediction else None,
        record.elapsed_ms,
        canonical_bytes(record.model_dump()),
    )


class RecordStore:
    """Facts of runs. Of one example and repeat the highest attempt counts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, rows: Sequence[Row], claim: Claim) -> None:
        """Store records of a claimed chunk; returns when they are committed, together with all that waited meanwhile.

        One that is there already stays as it is: whoever was slower changes nothing. Raises `ClaimLost`.
        """
        try:
            await self._database.write(partial(_add, rows=rows, claim=claim))
        except IntegrityError:
            for row in rows:
                with contextlib.suppress(IntegrityError):
                    await self._database.write(partial(_add, rows=[row], claim=claim))

    async def examples(self, dataset_no: int, start: int, stop: int) -> Sequence[tuple[int, bytes]]:
        """Position and canonical bytes of the examples in `start <= position < stop`."""
        query = (
            select(dataset_examples.c.position, dataset_examples.c.example)
            .where(dataset_examples.c.dataset_no == dataset_no, dataset_examples.c.position.between(start, stop - 1))
            .order_by(dataset_examples.c.position)
        )
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        return [(row.position, row.example) for row in rows]

    async def done(self, run: StoredRun, start: int, stop: int) -> set[tuple[int, int]]:
        """Which (position, repeat) there need not be asked again: scored ever, or tried in this attempt."""
        query = select(records.c.position, records.c.repeat).where(
            *_of_this_attempt(run), records.c.position.between(start, stop - 1)
        )
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        return {(row.position, row.repeat) for row in rows}

    async def count(self, run: StoredRun) -> tuple[int, int]:
        """How many examples are scored and failed at present; while failed ones are asked again they are not done."""
        counted = _of_this_attempt(run) if run.status in BUSY else current_records(run)
        query = select(records.c.status, func.count().label("n")).where(*counted).group_by(records.c.status)
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        counts = {row.status: row.n for row in rows}
        return counts.get("scored", 0), counts.get("failed", 0)

    async def standing(self, run: StoredRun) -> Standing:
        """What is scored, and what failed in this attempt by kind, for the executor to go on from."""
        query = (
            select(records.c.error_kind, func.count().label("n"))
            .where(*_of_this_attempt(run))
            .group_by(records.c.error_kind)
        )
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        counts = {row.error_kind: row.n for row in rows}
        n_scored = counts.pop(None, 0)
        return Standing.of(n_scored, counts)

    async def tally(self, run: StoredRun) -> Tally:
        """The counts that every metric is derived from, grouped by the database."""
        groups = (records.c.expected, records.c.scored, records.c.error_kind)
        query = select(*groups, func.count().label("n")).where(*current_records(run)).group_by(*groups)
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        scored: Counter[Pair] = Counter()
        failed: Counter[Pair] = Counter()
        for row in rows:
            if row.scored is not None:
                scored[row.expected, row.scored] += row.n
            else:
                failed[row.expected, row.error_kind or "internal"] += row.n
        return Tally(run.n_total, scored, failed)

    async def page(
        self, run: StoredRun, filters: RecordFilters, limit: int, after: Key | None
    ) -> Sequence[tuple[Key, bytes]]:
        """Keys and canonical bytes of up to `limit` records in the dataset's order."""
        key = (records.c.position, records.c.repeat, records.c.attempt)
        query = select(*key, records.c.record).where(*_matching(run, filters)).order_by(*key).limit(limit)
        if after is not None:
            query = query.where(tuple_(*key) > after)
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        return [((row.position, row.repeat, row.attempt), row.record) for row in rows]

    async def all(self, run: StoredRun, filters: RecordFilters) -> AsyncIterator[list[bytes]]:
        """Every record, some hundred at a time."""
        after: Key | None = None
        while rows := await self.page(run, filters, EXPORT_ROWS, after):
            yield [data for _, data in rows]
            after = rows[-1][0]


def _add(conn: Connection, rows: Sequence[Row], claim: Claim) -> None:
    hold(conn, claim)
    insert_rows(conn, records, rows)


def record_cursor(text: str) -> Key:
    """The key in a cursor of records. Raises `BadRequest`."""
    return cast(Key, decode_cursor(text, int, int, int))


def current_records(run: StoredRun) -> list[ColumnElement[bool]]:
    """The records that count. In a run of one attempt these are all, so nothing has to be looked up."""
    conditions: list[ColumnElement[bool]] = [records.c.run_no == run.no]
    if run.attempts > 1:
        later = records.alias("later")
        same = and_(*(later.c[name] == records.c[name] for name in ("run_no", "position", "repeat")))
        conditions.append(~exists().where(same, later.c.attempt > records.c.attempt))
    return conditions


def _of_this_attempt(run: StoredRun) -> list[ColumnElement[bool]]:
    """What need not be asked again: scored ever, or tried in this attempt. At most one for each question."""
    conditions: list[ColumnElement[bool]] = [records.c.run_no == run.no]
    if run.attempts > 1:
        conditions.append((records.c.status == "scored") | (records.c.attempt == run.attempts))
    return conditions


def _matching(run: StoredRun, filters: RecordFilters) -> list[ColumnElement[bool]]:
    conditions = current_records(run) if filters.current else [records.c.run_no == run.no]
    fold = run.config.profile.fold
    if filters.status is not None:
        conditions.append(records.c.status == filters.status)
    if filters.correct is not None:
        is_correct = records.c.expected == records.c.scored
        conditions += [records.c.scored.is_not(None), is_correct if filters.correct else ~is_correct]
    if filters.expected_label is not None:
        conditions.append(records.c.expected == fold(filters.expected_label))
    if filters.scored_label is not None:
        conditions.append(records.c.scored == fold(filters.scored_label))
    if filters.error_kind is not None:
        conditions.append(records.c.error_kind == filters.error_kind)
    return conditions
