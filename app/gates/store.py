"""Gate decisions in the store, and what only the records themselves can tell a gate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from app.gates.checks import JudgeCoverage
from app.gates.model import GateVerdict, Status, decision_json
from app.gates.tables import gate_decisions, gate_policies
from app.runs.analysis_store import CHUNK
from app.runs.record_store import current_records
from app.runs.store import StoredRun
from app.runs.tables import records
from app.store.database import Database
from app.store.ids import now, uuid7
from app.store.paging import decode_cursor
from layers.canonical import canonical_bytes, sha256_of
from layers.model import InstrumentPath

JUDGES = frozenset(path.value for path in InstrumentPath) - {InstrumentPath.HEURISTICS_FALLBACK.value}
"""Instruments that are judges."""

_NAMED = b'"instrument_path":'


class GateStore:
    """Insert-only: a decision is never changed, and policies are kept once by content."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, verdict: GateVerdict, policy: str) -> bytes:
        """Store a decision with its policy; its canonical bytes, which are what the caller is answered."""
        data = canonical_bytes(decision_json(verdict))
        row = {
            "decision_id": uuid7(),
            "run_id": verdict.run_id,
            "baseline_run_id": verdict.baseline_run_id,
            "verdict": verdict.verdict.value,
            "policy_sha256": verdict.policy_sha256,
            "decided_at": verdict.decided_at,
            "decision": data,
        }

        def work(conn: Connection) -> None:
            known = select(gate_policies.c.created_at).where(gate_policies.c.policy_sha256 == verdict.policy_sha256)
            if conn.scalar(known) is None:
                text = {"policy_sha256": verdict.policy_sha256, "policy": policy.encode(), "created_at": now()}
                # Another process may store the same policy just now; whoever is second changes nothing.
                with suppress(IntegrityError), conn.begin_nested():
                    conn.execute(insert(gate_policies).values(text))
            conn.execute(insert(gate_decisions).values(row))

        await self._database.write(work)
        return data

    async def page(self, run_id: str, limit: int, cursor: str | None) -> Sequence[tuple[str, bytes]]:
        """Ids and bytes of a run's decisions, newest first. Raises `BadRequest` for a foreign cursor."""
        columns = (gate_decisions.c.decision_id, gate_decisions.c.decision)
        query = select(*columns).where(gate_decisions.c.run_id == run_id)
        if cursor is not None:
            (last,) = decode_cursor(cursor, str)
            query = query.where(gate_decisions.c.decision_id < last)
        query = query.order_by(gate_decisions.c.decision_id.desc()).limit(limit)
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        return [(row.decision_id, row.decision) for row in rows]

    async def standing_blocks(self, run_id: str) -> Sequence[str]:
        """Hashes of the policies whose BLOCK of a run stands: no later gate by the same policy said PASS or WARN.

        Other policies, and gates that came to no verdict, take no block back.
        """
        columns = (gate_decisions.c.policy_sha256, gate_decisions.c.verdict)
        says = (Status.BLOCK.value, Status.PASS.value, Status.WARN.value)
        query = select(*columns).where(gate_decisions.c.run_id == run_id, gate_decisions.c.verdict.in_(says))
        query = query.order_by(gate_decisions.c.decision_id)
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        latest = {row.policy_sha256: row.verdict for row in rows}
        return [policy for policy, verdict in latest.items() if verdict == Status.BLOCK.value]

    async def judge_coverage(self, run: StoredRun) -> JudgeCoverage:
        """How many of a run's records a judge stands behind, read from the predictions' `instrument_path`."""
        judged = named = asked = 0
        for start in range(0, run.n_total // run.config.options.repeats, CHUNK):
            some, one, other = await self._database.read(partial(_judged, run=run, start=start))
            asked, judged, named = asked + some, judged + one, named + other
        return JudgeCoverage(asked, judged, named)


def policy_hash(policy: str) -> str:
    """`sha256:` and the hex digest of the policy's text in UTF-8."""
    return sha256_of(policy.encode())


def _judged(conn: Connection, run: StoredRun, start: int) -> tuple[int, int, int]:
    where = (*current_records(run), records.c.position.between(start, start + CHUNK - 1))
    judged = named = asked = 0
    for data in conn.scalars(select(records.c.record).where(*where)):
        asked += 1
        if _NAMED not in data:
            continue
        prediction = json.loads(data).get("prediction") or {}
        instrument = prediction.get("metadata", {}).get("instrument_path")
        named += isinstance(instrument, str)
        judged += isinstance(instrument, str) and instrument in JUDGES
    return asked, judged, named
