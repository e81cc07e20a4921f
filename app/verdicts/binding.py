"""What verdicts bind: a run that is blocked may become nobody's baseline, whatever it is called this time."""

from __future__ import annotations

from sqlalchemy import func, select

from app.errors import Blocked
from app.gates.model import Status
from app.gates.tables import gate_decisions
from app.runs.store import RunStore, StoredRun
from app.runs.tables import runs
from app.store.database import Database
from app.verdicts.model import ArtifactState
from app.verdicts.run_subject import find_run, run_hash
from app.verdicts.store import VerdictStore, is_block

MAX_RUNS = 20
"""Other runs on the same dataset whose inconclusive gates are looked at."""


class Bindings:
    """Looks up what holds for a run, by its content."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._verdicts = VerdictStore(database)

    async def check_run(self, run_id: str) -> None:
        """Raises `Blocked`, with the verdict, for a run whose artifact is blocked; `NotFound`."""
        run = await find_run(self._database, run_id)
        if not await self._verdicts.any_block():
            return  # hashing a run reads all of its records
        standing = await self._verdicts.standing(await run_hash(self._database, run))
        if standing is not None and is_block(standing):
            reasons = "; ".join(reason.detail for reason in standing.reasons[:3])
            raise Blocked(f"the arbiter blocked the run {run_id}: {reasons}", standing.model_dump(mode="json"))

    async def state(self, run_id: str) -> ArtifactState:
        """How a run stands. Raises `NotFound`."""
        run = await find_run(self._database, run_id)
        digest = await run_hash(self._database, run)
        standing = await self._verdicts.standing(digest)
        return ArtifactState(
            run_id=run_id,
            sha256=digest,
            inconclusive_gates=await self._inconclusive(run, digest),
            blocked=is_block(standing),
            verdict=standing,
        )

    async def _inconclusive(self, run: StoredRun, digest: str) -> int:
        """How often a gate was inconclusive about this artifact, under this run's id or that of an equal run."""
        query = (
            select(gate_decisions.c.run_id, func.count().label("n"))
            .join(runs, runs.c.run_id == gate_decisions.c.run_id)
            .where(gate_decisions.c.verdict == Status.INCONCLUSIVE.value, runs.c.dataset_no == run.dataset_no)
            .group_by(gate_decisions.c.run_id)
            .order_by(gate_decisions.c.run_id.desc())
        )
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        others = [row for row in rows if row.run_id != run.run_id][:MAX_RUNS]
        count = sum(int(row.n) for row in rows if row.run_id == run.run_id)
        store = RunStore(self._database)
        for row in others:
            other = await store.get(row.run_id)
            if other is not None and await run_hash(self._database, other) == digest:
                count += int(row.n)
        return count
