"""All of adjudication as one file that another service can take over: whole, byte for byte, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, Table, func, insert, select, update

from app.adjudication.model import StoredRun
from app.adjudication.record_store import LOG_KIND, Ledger, insert_record, insert_transition
from app.adjudication.rules import Links, sealed
from app.adjudication.snapshot_checks import check
from app.adjudication.snapshot_lines import EndedRun, Facts, read, write
from app.adjudication.store import insert_assertion, insert_evidence, insert_hypothesis
from app.adjudication.synthesis_store import insert_synthesis
from app.adjudication.tables import (
    adjudication_runs,
    adjudications,
    assertions,
    evidence,
    hypotheses,
    links,
    syntheses,
    transitions,
)
from app.errors import Conflict
from app.log.store import Entry
from app.store.database import Database
from layers.adjudication_rules import standing_of
from layers.canonical import sha256_of
from layers.scrubbing import Scrubber

TABLES: tuple[Table, ...] = (
    evidence,
    hypotheses,
    assertions,
    adjudication_runs,
    adjudications,
    transitions,
    links,
    syntheses,
)


class Snapshots:
    """Exports and imports. `key` seals what is exported, and what is imported must then be sealed with it."""

    def __init__(
        self, database: Database, scrubber: Scrubber, *, key: bytes | None = None, ledger: Ledger | None = None
    ) -> None:
        self._database = database
        self._scrubber = scrubber
        self._key = key
        self._ledger = ledger

    async def export(self) -> list[bytes]:
        """The lines of a snapshot of this moment. The same facts give the same bytes."""
        return await self._database.read(lambda conn: _export(conn, self._key))

    async def take_over(self, data: bytes) -> dict[str, int]:
        """Store a snapshot, all of it or nothing; how many facts there are of each kind.

        Raises `SnapshotRefused` for one that is corrupt or forged, `Conflict` where other facts are stored already.
        """
        facts, follows = await asyncio.to_thread(self._checked, data)
        await self._database.write(lambda conn: self._store(conn, data, facts, follows))
        return {kind: len(found) for kind, found in facts.by_kind.items()}

    def _checked(self, data: bytes) -> tuple[Facts, dict[str, Links]]:
        facts = read(data, self._key, self._scrubber)
        return facts, check(facts)

    def _store(self, conn: Connection, data: bytes, facts: Facts, follows: dict[str, Links]) -> None:
        if any(conn.scalar(select(func.count()).select_from(table)) for table in TABLES):
            if b"".join(_export(conn, self._key, snapshot=False)) == data:
                return
            raise Conflict("there are other facts here already; a snapshot is taken over by an empty store")
        _insert_all(conn, facts)
        for hypothesis_id, found in follows.items():
            _insert_links(conn, hypothesis_id, found)
        if self._ledger is not None and facts["adjudication"]:
            entries = [
                Entry(LOG_KIND, record.record_id, record.turn, sha256_of(sealed(record)), record.created_at)
                for record in facts["adjudication"]
            ]
            self._ledger.append_entries(conn, entries)


def _insert_all(conn: Connection, facts: Facts) -> None:
    for piece in facts["evidence"]:
        insert_evidence(conn, piece)
    turns: dict[str, int] = {}
    for record in facts["adjudication"]:
        turns[record.hypothesis_id] = record.turn
        insert_record(conn, record)
    for hypothesis in facts["hypothesis"]:
        insert_hypothesis(conn, hypothesis)
    for hypothesis_id, turn in turns.items():
        own = hypotheses.c.hypothesis_id == hypothesis_id
        conn.execute(update(hypotheses).where(own).values(turns=turn))
    for assertion in facts["assertion"]:
        insert_assertion(conn, assertion)
    for ended in facts["run"]:
        _insert_run(conn, ended)
    for transition in facts["transition"]:
        insert_transition(conn, transition)
    for synthesis in facts["synthesis"]:
        insert_synthesis(conn, synthesis)


def _insert_run(conn: Connection, ended: EndedRun) -> None:
    row = {
        "run_id": ended.run.run_id,
        "status": "stopped" if ended.finished_at is None else "done",
        "n_pairs": ended.n_pairs,
        "lease_owner": "",
        "lease_until": 0.0,
        "finished_at": ended.finished_at,
        "record": sealed(ended.run),
    }
    conn.execute(insert(adjudication_runs).values(row))


def _insert_links(conn: Connection, hypothesis_id: str, found: Links) -> None:
    qualification = standing_of(found.values()).qualification.value
    own = hypotheses.c.hypothesis_id == hypothesis_id
    conn.execute(update(hypotheses).where(own).values(qualification=qualification))
    rows = [
        {"hypothesis_id": hypothesis_id, "evidence_id": evidence_id, "link": sealed(link)}
        for evidence_id, link in found.items()
    ]
    if rows:
        conn.execute(insert(links), rows)


# --- reading ----------------------------------------------------------------------------------------------------------


def _export(conn: Connection, key: bytes | None, *, snapshot: bool = True) -> list[bytes]:
    if snapshot and conn.dialect.name == "postgresql":
        conn.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # every table at the same moment
    facts = {
        "evidence": _records(conn, select(evidence.c.record).order_by(evidence.c.evidence_id)),
        "hypothesis": _records(conn, select(hypotheses.c.record).order_by(hypotheses.c.hypothesis_id)),
        "assertion": _records(conn, select(assertions.c.record).order_by(assertions.c.assertion_id)),
        "run": _ended_runs(conn),
        "adjudication": _records(
            conn, select(adjudications.c.record).order_by(adjudications.c.hypothesis_id, adjudications.c.turn)
        ),
        "transition": _records(
            conn, select(transitions.c.record).order_by(transitions.c.hypothesis_id, transitions.c.turn)
        ),
        "synthesis": _records(conn, select(syntheses.c.record).order_by(syntheses.c.synthesis_id)),
    }
    return write(facts, key)


def _records(conn: Connection, query: Select[Any]) -> Sequence[bytes]:
    return [bytes(record) for record in conn.scalars(query)]


def _ended_runs(conn: Connection) -> Sequence[bytes]:
    rows = conn.execute(select(adjudication_runs).order_by(adjudication_runs.c.run_id))
    return [
        sealed(
            EndedRun(run=StoredRun.model_validate_json(row.record), n_pairs=row.n_pairs, finished_at=row.finished_at)
        )
        for row in rows
    ]
