"""Verdicts in the store, and what binds an artifact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from app.log.store import Entry
from app.store.database import Database
from app.store.paging import decode_cursor
from app.verdicts.model import Artifact, Decision, GivenVerdict, Verdict
from app.verdicts.tables import verdicts
from layers.canonical import canonical_bytes, sha256_of

KIND = "verdict"
"""What verdicts are called in the log."""

_LOCK = 0x41525642
"""PostgreSQL's advisory lock under which verdicts are stored one after the other, so that none overtakes a block."""

Append = Callable[[Connection, Sequence[Entry]], Sequence[int]]


class VerdictStore:
    """Insert-only. Once an artifact's block binds, no other verdict on it is ever stored."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, verdict: Verdict, append: Append) -> GivenVerdict:
        """Store and log a verdict in one transaction; the standing block instead, where the artifact has one."""
        record = canonical_bytes(verdict.model_dump(mode="json"))
        root = sha256_of(record)
        entry = Entry(KIND, verdict.verdict_id, 1, root, verdict.decided_at)

        def work(conn: Connection) -> GivenVerdict:
            if conn.dialect.name == "postgresql":
                conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            if (standing := _binding(conn, *_hashes(verdict.artifact))) is not None:
                return standing
            (index,) = append(conn, [entry])
            row = {
                "verdict_id": verdict.verdict_id,
                "artifact_sha256": verdict.artifact.sha256,
                "decision": verdict.verdict.value,
                "binding": verdict.binding,
                "root": root,
                "log_index": index,
                "decided_at": verdict.decided_at,
                "record": record,
            }
            conn.execute(insert(verdicts).values(row))
            return GivenVerdict(**verdict.model_dump(), root=root, log_index=index)

        return await self._database.write(work)

    async def binding(self, artifact: Artifact) -> GivenVerdict | None:
        """The block that binds an artifact."""
        return await self._database.read(lambda conn: _binding(conn, *_hashes(artifact)))

    async def standing(self, artifact_sha256: str) -> GivenVerdict | None:
        """The verdict that holds for an artifact: the block that binds it, else the newest one."""
        newest = _newest(artifact_sha256)

        def work(conn: Connection) -> GivenVerdict | None:
            return _binding(conn, artifact_sha256) or _given(conn.execute(newest).first())

        return await self._database.read(work)

    async def any_block(self) -> bool:
        """Whether any artifact was ever blocked."""
        query = select(verdicts.c.verdict_id).where(verdicts.c.decision == Decision.BLOCK.value).limit(1)
        return await self._database.read(lambda conn: conn.execute(query).first()) is not None

    async def get(self, verdict_id: str) -> GivenVerdict | None:
        """One verdict as it was answered."""
        query = select(verdicts).where(verdicts.c.verdict_id == verdict_id)
        row = await self._database.read(lambda conn: conn.execute(query).first())
        return _given(row, replayed=False)

    async def record(self, verdict_id: str) -> bytes | None:
        """The record itself, to the byte."""
        query = select(verdicts.c.record).where(verdicts.c.verdict_id == verdict_id)
        data = await self._database.read(lambda conn: conn.scalar(query))
        return None if data is None else bytes(data)

    async def page(self, artifact_sha256: str | None, limit: int, cursor: str | None) -> Sequence[GivenVerdict]:
        """The newest first. Raises `BadRequest` for a foreign cursor."""
        query = select(verdicts).order_by(verdicts.c.log_index.desc()).limit(limit)
        if artifact_sha256 is not None:
            query = query.where(verdicts.c.artifact_sha256 == artifact_sha256)
        if cursor is not None:
            (last,) = decode_cursor(cursor, int)
            query = query.where(verdicts.c.log_index < last)
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        return [found for row in rows if (found := _given(row, replayed=False)) is not None]


def is_block(verdict: GivenVerdict | None) -> bool:
    """Whether the artifact is blocked, for good or until it is judged again."""
    return verdict is not None and verdict.verdict is Decision.BLOCK


def _hashes(artifact: Artifact) -> tuple[str, ...]:
    """Under which a block of it may stand: earlier versions knew a path by its exact hash."""
    return tuple({artifact.sha256, artifact.as_it_is})


def _newest(*artifact_sha256: str) -> Any:
    query = select(verdicts).where(verdicts.c.artifact_sha256.in_(artifact_sha256))
    return query.order_by(verdicts.c.log_index.desc()).limit(1)


def _binding(conn: Connection, *artifact_sha256: str) -> GivenVerdict | None:
    return _given(conn.execute(_newest(*artifact_sha256).where(verdicts.c.binding.is_(True))).first())


def _given(row: Row[Any] | None, *, replayed: bool = True) -> GivenVerdict | None:
    if row is None:
        return None
    verdict = Verdict.model_validate_json(bytes(row.record))
    return GivenVerdict(**verdict.model_dump(), root=row.root, log_index=row.log_index, replayed=replayed)
