"""Works off runs: each pair once, reused where it can be, one latch for the whole run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import product

import anyio

from app.adjudication.model import AdjudicationRecord, Evidence, Hypothesis, StoredRun
from app.adjudication.record_store import LEASE_SECONDS, RecordStore
from app.adjudication.rules import adjudication_key, input_hash
from app.adjudication.store import FactStore
from app.store.ids import now, uuid7
from layers.adjudication import Adjudicated, Adjudicator, Outcome, RunMemory, configuration_hash
from layers.adjudication_question import SCHEMA_VERSION, Pair
from layers.adjudication_rules import decide
from layers.scrubbing import Scrubber

logger = logging.getLogger(__name__)

RUNS_AT_ONCE = 4
POLL_SECONDS = 5.0


class PairWork:
    """Takes runs from the store and works them off, `concurrency` pairs of each at once."""

    def __init__(
        self, facts: FactStore, records: RecordStore, adjudicator: Adjudicator, scrubber: Scrubber, *, concurrency: int
    ) -> None:
        self._facts = facts
        self._records = records
        self._adjudicator = adjudicator
        self._configuration = configuration_hash(adjudicator)
        self._scrubber = scrubber
        self._concurrency = concurrency
        self._slots = anyio.Semaphore(RUNS_AT_ONCE)
        self._wake = anyio.Event()
        self._busy: set[str] = set()

    def wake(self) -> None:
        """There is a new run: look at once."""
        self._wake.set()

    async def work(self) -> None:
        """Work for ever. What is unfinished when this is cancelled goes on with whoever comes next."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._keep_leases)
                while True:
                    self._wake = anyio.Event()
                    try:
                        while (run := await self._claim()) is not None:
                            group.start_soon(self._perform, run)
                    except Exception:
                        logger.exception("adjudications could not be taken from the store")
                    with anyio.move_on_after(POLL_SECONDS):
                        await self._wake.wait()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(2):
                await self._records.release()

    async def drain(self) -> None:
        """Work until no run is left to take."""
        while (run := await self._claim()) is not None:
            await self._perform(run)

    async def _claim(self) -> StoredRun | None:
        await self._slots.acquire()
        run = None
        try:
            run = await self._records.claim()
        finally:
            if run is None:
                self._slots.release()
        return run

    async def _keep_leases(self) -> None:
        while True:
            await anyio.sleep(LEASE_SECONDS / 3)
            try:
                await self._records.renew(self._busy)
            except Exception:
                logger.exception("the leases of adjudications could not be renewed")

    async def _perform(self, run: StoredRun) -> None:
        self._busy.add(run.run_id)
        try:
            await self._all_pairs(run)
            await self._records.finish(run.run_id)
        except Exception:
            # The store is away, or something is broken: the run is taken again once its lease has run out.
            logger.exception("adjudication run %s stopped before its end", run.run_id)
        finally:
            self._busy.discard(run.run_id)
            self._slots.release()

    async def _all_pairs(self, run: StoredRun) -> None:
        done = await self._records.done_pairs(run.run_id)
        ids = product(dict.fromkeys(run.request.hypothesis_ids), dict.fromkeys(run.request.evidence_ids))
        left = iter([pair for pair in ids if pair not in done])
        asking = _Asking(run, RunMemory(), {h.hypothesis_id: h for h in await self._statements(run)})
        # One goes ahead, so that a model that is dead is found out by one call and not by several at once.
        for pair in left:
            await self._one(asking, *pair)
            break
        async with anyio.create_task_group() as group:
            for _ in range(self._concurrency):
                group.start_soon(self._some, asking, left)

    async def _statements(self, run: StoredRun) -> list[Hypothesis]:
        return await self._facts.statements(list(dict.fromkeys(run.request.hypothesis_ids)))

    async def _some(self, asking: _Asking, left: Iterator[tuple[str, str]]) -> None:
        for pair in left:
            await self._one(asking, *pair)

    async def _one(self, asking: _Asking, hypothesis_id: str, evidence_id: str) -> None:
        piece = await self._facts.evidence(evidence_id)
        statement = asking.statements.get(hypothesis_id)
        if piece is None or statement is None:
            raise LookupError("a hypothesis or a piece of evidence of this run is gone")
        key = adjudication_key(statement.sha256, piece.sha256, self._configuration)
        known = await self._records.finished(key)
        if known is None:
            record = self._new_record(
                asking.run, statement, piece, key, await self._adjudicate(asking, statement, piece)
            )
        else:
            record = _reused(known, asking.run)
        await self._records.apply(record, piece.source)

    async def _adjudicate(self, asking: _Asking, statement: Hypothesis, piece: Evidence) -> Adjudicated:
        pair = Pair(statement.text, piece.text, statement.importance, asking.run.request.context)
        try:
            return await self._adjudicator.adjudicate(pair, asking.memory)
        except Exception:
            logger.exception("adjudicating a pair of run %s crashed", asking.run.run_id)
            decision = decide("crashed", self._adjudicator.thresholds)
            return Adjudicated(outcome=Outcome.FAILED, decision=decision, fallback="crashed")

    def _new_record(
        self, run: StoredRun, statement: Hypothesis, piece: Evidence, key: str, made: Adjudicated
    ) -> AdjudicationRecord:
        context, asked, last = run.request.context, self._adjudicator, made.attempts[-1:]
        record = {
            "record_id": uuid7(),
            "run_id": run.run_id,
            "hypothesis_id": statement.hypothesis_id,
            "evidence_id": piece.evidence_id,
            "turn": 0,
            "key": key,
            "changed": False,
            **made.decision.model_dump(mode="json"),
            **made.model_dump(mode="json", exclude={"decision"}),
            "reused_from": None,
            "model": last[0].model if last else asked.model.identity,
            "provider": last[0].provider if last else asked.model.source.value,
            "prompt": asked.prompt.ref.model_dump(),
            "schema_version": SCHEMA_VERSION,
            "thresholds": asked.thresholds.model_dump(),
            "hypothesis_sha256": statement.sha256,
            "evidence_sha256": piece.sha256,
            "configuration_sha256": self._configuration,
            "input_sha256": input_hash(statement.text, piece.text, context),
            "context_ids": [statement.hypothesis_id, piece.evidence_id],
            "context": context,
            "created_at": now(),
        }
        return AdjudicationRecord.model_validate(self._scrubber.value(record))


class _Asking:
    """What the pairs of one run share."""

    def __init__(self, run: StoredRun, memory: RunMemory, statements: dict[str, Hypothesis]) -> None:
        self.run = run
        self.memory = memory
        self.statements = statements


def _reused(known: AdjudicationRecord, run: StoredRun) -> AdjudicationRecord:
    return known.model_copy(
        update={
            "record_id": uuid7(),
            "run_id": run.run_id,
            "turn": 0,
            "changed": False,
            "reused_from": known.record_id,
            "created_at": now(),
        }
    )
