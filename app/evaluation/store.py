"""Stored evaluations: written once per content, in batches, never changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from sqlalchemy import ColumnElement, Connection, Select, exists, false, func, select

from app.evaluation.record import with_log_index
from app.evaluation.standing import check_standing
from app.evaluation.tables import accepted_work, evaluations
from app.store.database import Database
from app.store.ids import to_text
from app.store.paging import MAX_LIMIT, Page, decode_cursor, is_storable, page_of
from app.store.rows import Row, insert_rows
from layers.model import InstrumentPath
from layers.provenance import Provenance, StageRecord

_BY_ID = evaluations.c.evaluation_id.desc()


@dataclass(frozen=True, slots=True)
class EvaluationFilter:
    """Which evaluations a list shows; None = all. `since` is inclusive."""

    system: str | None = None
    prediction_id: str | None = None
    disposition: str | None = None
    degraded: bool | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """An evaluation about to be stored. `record` are its canonical bytes, its log index still null.

    `fresh` = a further record of a content that may have one; `follow_up` is accepted work to store beside it,
    `work_id` the accepted work that it is stored for.
    """

    evaluation_id: str
    revision: int
    system: str
    prediction_id: str
    digest: bytes
    disposition: str
    degraded: bool
    instrument_path: str | None
    created_at: str
    record: bytes
    occurrence: str = ""
    fresh: bool = False
    parent_id: str | None = None
    provenance: Provenance | None = None
    follow_up: Row | None = None
    work_id: str | None = None


class Stored(NamedTuple):
    """A stored revision. `created` = this call stored it; otherwise it was there already."""

    evaluation_id: str
    revision: int
    occurrence: str
    degraded: bool
    record: bytes
    created: bool = False


class Ledger(Protocol):
    """Keeps stages and enters each evaluation into the append-only log, inside the transaction that stores it.

    One log index per draft, in order. Called in the writer's thread, and again for each draft alone if a batch fails.
    """

    def append(self, conn: Connection, drafts: Sequence[Draft]) -> Sequence[int]: ...

    def stages_of(self, conn: Connection, evaluation_id: str, revision: int) -> Sequence[StageRecord]:
        """The stages of a revision; none for one that was never entered."""
        ...

    def erase_stages(self, conn: Connection, evaluation_id: str, revision: int, names: Collection[str]) -> int:
        """Drop payload and salt of those of the stages that are there; how many still had them."""
        ...


class _Key(NamedTuple):
    evaluation_id: str
    revision: int
    occurrence: str
    parent_id: str | None


class EvaluationStore:
    """Reads and writes evaluations."""

    def __init__(self, database: Database, ledger: Ledger | None = None) -> None:
        self._database = database
        self._ledger = ledger

    async def save(self, draft: Draft) -> Stored:
        """Store a draft, unless its content, or its revision, has been stored meanwhile: then that one is returned.

        Raises `ErasedMeanwhile`.
        """
        return await self._database.submit(self._save, draft)

    async def find(self, digest: bytes) -> Stored | None:
        """The newest answer to a content; re-examinations for the audit sample are none."""
        columns = evaluations.c
        query = _stored().where(columns.content_hash == digest, columns.parent_id.is_(None))
        return await self._one(query.order_by(_BY_ID, columns.revision.desc()).limit(1))

    async def get(self, evaluation_id: str, revision: int | None = None) -> Stored | None:
        """One revision, the newest by default."""
        if not is_storable(evaluation_id):
            return None
        query = _stored().where(evaluations.c.evaluation_id == evaluation_id)
        if revision is not None:
            query = query.where(evaluations.c.revision == revision)
        return await self._one(query.order_by(evaluations.c.revision.desc()).limit(1))

    async def stages(self, evaluation_id: str, revision: int) -> Sequence[StageRecord]:
        """What a revision's provenance holds; nothing where none is kept."""
        ledger = self._ledger
        if ledger is None:
            return ()
        return await self._database.read(lambda conn: ledger.stages_of(conn, evaluation_id, revision))

    async def count_by_path(self, system: str | None, since: datetime | None) -> Mapping[InstrumentPath, int]:
        """How many evaluations each judge answered, by their newest revision; those that asked none are not counted."""
        path = evaluations.c.instrument_path
        conditions = _conditions(EvaluationFilter(system=system, since=since))
        query = select(path, func.count()).where(path.is_not(None), *conditions).group_by(path)
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        return {InstrumentPath(name): count for name, count in rows}

    async def page(self, filters: EvaluationFilter, limit: int, cursor: str | None) -> Page[bytes]:
        """The newest revision of each evaluation, newest evaluation first. Raises `BadRequest` for a bad cursor."""
        limit = max(1, min(limit, MAX_LIMIT))
        query = select(evaluations.c.evaluation_id, evaluations.c.record).where(*_conditions(filters))
        if cursor is not None:
            (after,) = decode_cursor(cursor, str)
            query = query.where(evaluations.c.evaluation_id < after)
        query = query.order_by(_BY_ID).limit(limit + 1)
        rows = await self._database.read(lambda conn: [(row[0], bytes(row[1])) for row in conn.execute(query)])
        page = page_of(rows, limit, [(row[0],) for row in rows])
        return Page(tuple(record for _, record in page.items), page.next_cursor)

    async def _one(self, query: Select[Any]) -> Stored | None:
        row = await self._database.read(lambda conn: conn.execute(query).first())
        return None if row is None else _read(row)

    # --- in the writer's thread ---------------------------------------------------------------------------------------

    def _save(self, conn: Connection, drafts: Sequence[Draft]) -> list[Stored]:
        known = _keys_by_digest(conn, [draft.digest for draft in drafts])
        plans = [_place(draft, known) for draft in drafts]
        new = [draft for draft in plans if isinstance(draft, Draft)]
        check_standing(conn, new)
        records = iter(self._insert(conn, new))
        return [
            Stored(plan.evaluation_id, plan.revision, plan.occurrence, plan.degraded, next(records), created=True)
            if isinstance(plan, Draft)
            else _load(conn, plan)
            for plan in plans
        ]

    def _insert(self, conn: Connection, drafts: Sequence[Draft]) -> list[bytes]:
        records = [draft.record for draft in drafts]
        if self._ledger is not None and drafts:
            indexes = self._ledger.append(conn, drafts)
            records = [with_log_index(record, index) for record, index in zip(records, indexes, strict=True)]
        insert_rows(conn, evaluations, [_row(draft, record) for draft, record in zip(drafts, records, strict=True)])
        insert_rows(conn, accepted_work, [draft.follow_up for draft in drafts if draft.follow_up is not None])
        return records


def _place(draft: Draft, known: dict[bytes, list[_Key]]) -> Draft | _Key:
    """Where a draft goes among what is stored for its content, or what stands there already."""
    keys = known.setdefault(draft.digest, [])
    same = [key for key in keys if key.evaluation_id == draft.evaluation_id and key.revision >= draft.revision]
    if not same and draft.revision == 1 and not draft.fresh and draft.parent_id is None:
        same = [key for key in keys if key.parent_id is None]
    if same:
        return max(same)
    if draft.revision == 1 and (draft.parent_id is not None or any(key.occurrence == "" for key in keys)):
        draft = replace(draft, occurrence=draft.evaluation_id)
    keys.append(_Key(draft.evaluation_id, draft.revision, draft.occurrence, draft.parent_id))
    return draft


def _keys_by_digest(conn: Connection, digests: Sequence[bytes]) -> dict[bytes, list[_Key]]:
    # A batch asks with few distinct statement texts: the list is filled up to the next power of two.
    size = 1 << (len(digests) - 1).bit_length()
    marks = ", ".join(["%s" if conn.dialect.name == "postgresql" else "?"] * size)
    found = conn.exec_driver_sql(
        "SELECT content_hash, evaluation_id, revision, occurrence, parent_id FROM evaluations"  # noqa: S608 - marks only
        f" WHERE content_hash IN ({marks})",
        (*digests, *[digests[0]] * (size - len(digests))),
    )
    known: dict[bytes, list[_Key]] = {}
    for digest, *key in found:
        known.setdefault(bytes(digest), []).append(_Key(*key))
    return known


def _load(conn: Connection, key: _Key) -> Stored:
    query = _stored().where(evaluations.c.evaluation_id == key.evaluation_id, evaluations.c.revision == key.revision)
    row = conn.execute(query).one()
    return _read(row)


def _row(draft: Draft, record: bytes) -> Row:
    return (
        draft.evaluation_id,
        draft.revision,
        draft.system,
        draft.prediction_id,
        draft.digest,
        draft.occurrence,
        draft.disposition,
        draft.degraded,
        draft.parent_id,
        draft.created_at,
        record,
        draft.instrument_path,
    )


def _stored() -> Select[Any]:
    columns = evaluations.c
    return select(columns.evaluation_id, columns.revision, columns.occurrence, columns.degraded, columns.record)


def _read(row: Any) -> Stored:
    return Stored(row[0], row[1], row[2], bool(row[3]), bytes(row[4]))


def _conditions(filters: EvaluationFilter) -> list[ColumnElement[bool]]:
    columns = evaluations.c
    later = evaluations.alias("later")
    is_newest = ~exists().where(
        later.c.evaluation_id == columns.evaluation_id, later.c.revision == columns.revision + 1
    )
    conditions: list[ColumnElement[bool]] = [is_newest]
    for name in ("system", "prediction_id", "disposition"):
        if (value := getattr(filters, name)) is not None:
            conditions.append(columns[name] == value if is_storable(value) else false())
    if filters.degraded is not None:
        conditions.append(columns.degraded if filters.degraded else ~columns.degraded)
    if filters.since is not None:
        conditions.append(columns.created_at >= to_text(filters.since))
    return conditions
