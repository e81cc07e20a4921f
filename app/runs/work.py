"""The work of a run, step by step, such that doing a step twice does no harm."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import anyio

from app.errors import ServiceError, Unavailable
from app.runs.asking import Item
from app.runs.executor import Kept
from app.runs.model import Record, RecordError, RunFailure, RunStatus
from app.runs.observe import UNWATCHED, RunObserver, UnderWay
from app.runs.record_store import RecordStore, row_of
from app.runs.session import Session, Sessions, limits_of
from app.runs.store import RunStore, StoredRun, run_id_of
from app.store.rows import Row
from layers.model import EvalExample
from layers.ports import System

T = TypeVar("T")

logger = logging.getLogger(__name__)

WATCH_SECONDS = 1.0
"""How often a run looks whether another process paused or cancelled it."""

STORE_RETRY_SECONDS = 1.0

FIRST_CHUNK = 50
"""Questions of the first chunks, while nothing is known of the system's speed."""

BUSY = frozenset({RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING})
"""Statuses in which examples may be asked about."""


@dataclass(frozen=True)
class ChunkSize:
    """A chunk has as many questions as take about `seconds`, at most `examples` and at least one for each slot."""

    examples: int = 500
    seconds: float = 10.0

    def advise(self, rate: float | None, concurrency: int) -> int:
        """How many the next chunk should have at `rate` questions per second."""
        wanted = FIRST_CHUNK if rate is None else int(rate * self.seconds)
        return min(self.examples, max(wanted, concurrency))


class RunWork:
    """Implements the engine's `Work`; `poke` is for callers who changed a run's status."""

    def __init__(
        self,
        runs: RunStore,
        records: RecordStore,
        systems: Mapping[str, System],
        *,
        size: ChunkSize | None = None,
        observer: RunObserver = UNWATCHED,
    ) -> None:
        self._runs = runs
        self._observer = observer
        self._records = records
        self._size = size or ChunkSize()
        self._halted = False
        self._sessions = Sessions(systems, records.standing, self._keep, self._size.examples)

    def rate(self, run_id: str) -> float | None:
        """Examples per second of a run that is worked on here."""
        session = self._sessions.get(run_id)
        return session.meter.rate() if session else None

    def under_way(self) -> list[UnderWay]:
        """The runs worked on here. Any thread may ask."""
        return [session.under_way() for session in self._sessions.all()]

    def poke(self, run_id: str) -> None:
        """The run's status was changed: stop asking and look."""
        if session := self._sessions.get(run_id):
            session.gate.stop()

    def halt(self) -> None:
        """The process ends: ask nobody any more, and let no step come to a result."""
        self._halted = True
        self._sessions.stop()

    # --- the steps ----------------------------------------------------------------------------------------------------

    async def plan(self, workflow_id: str) -> int | None:
        """Begin; the size of the first chunks, None when there is nothing to do."""
        return await self._persevere(workflow_id, lambda: self._plan(workflow_id))

    async def chunk(self, workflow_id: str, start: int, size: int) -> int | None:
        """Ask these questions, but for those that have a record; the size of a later chunk, None = go no further."""
        return await self._persevere(workflow_id, lambda: self._chunk(workflow_id, start, size))

    async def conclude(self, workflow_id: str) -> None:
        """Say how the run ended, unless it only rests."""
        await self._persevere(workflow_id, lambda: self._conclude(workflow_id))

    async def _persevere(self, workflow_id: str, step: Callable[[], Awaitable[T]]) -> T | None:
        """Do a step; wait while the store is away, and end the run on what nobody foresaw."""
        while True:
            try:
                with self._observer.step(run_id_of(workflow_id)):
                    return await step()
            except Unavailable:
                await anyio.sleep(STORE_RETRY_SECONDS)
            except Exception as exc:
                logger.exception("run %s can't go on", run_id_of(workflow_id))
                said = exc.detail if isinstance(exc, ServiceError) else f"the run broke off: {type(exc).__name__}"
                failure = RunFailure(kind="internal", message=said)
                with contextlib.suppress(Unavailable):
                    await self._runs.move(run_id_of(workflow_id), RunStatus.FAILED, only_from=BUSY, failure=failure)
                return None

    async def _plan(self, workflow_id: str) -> int | None:
        run = await self._current(workflow_id)
        if run is None or not await self._runs.move(run.run_id, RunStatus.RUNNING, only_from=BUSY):
            return None
        session = await self._sessions.of(run)
        return self._size.advise(None, session.concurrency)

    async def _chunk(self, workflow_id: str, start: int, size: int) -> int | None:
        run = await self._current(workflow_id)
        if run is None or run.status not in BUSY or start >= run.n_total:
            return None
        session = await self._sessions.of(run)
        with session.working():
            questions = await self._questions(run, start, min(start + size, run.n_total))
            await self._execute(session, questions, start)
        if (failure := session.execution.failure) is not None:
            await self._runs.move(run.run_id, RunStatus.FAILED, only_from=BUSY, failure=failure)
        if self._halted:
            await anyio.sleep_forever()  # until it is cancelled: a result would say that these were all asked
        if session.gate.stopped:
            return None
        # Where all was done before there is no speed to learn: hurry through.
        return self._size.advise(session.meter.rate(), session.concurrency) if questions else self._size.examples

    async def _conclude(self, workflow_id: str) -> None:
        run = await self._current(workflow_id)
        if run is None:
            return
        standing = await self._records.standing(run)
        if session := self._sessions.get(run.run_id):
            standing.said = session.standing.said
            self._sessions.drop(session)
        if standing.n_scored + standing.n_failed == run.n_total:
            # A pause or a cancellation after the last example has nothing to stop any more.
            allowed = BUSY | {RunStatus.PAUSED, RunStatus.CANCELLING}
            failure = limits_of(run).broken(standing)
            status = RunStatus.FAILED if failure else RunStatus.SUCCEEDED
            await self._runs.move(run.run_id, status, only_from=allowed, failure=failure)
        elif run.status is RunStatus.CANCELLING:
            await self._runs.move(run.run_id, RunStatus.CANCELLED, only_from={RunStatus.CANCELLING})
        elif run.status in BUSY:
            raise RuntimeError("the steps ended before the run did")

    async def _current(self, workflow_id: str) -> StoredRun | None:
        """The run, unless another workflow has taken it over."""
        run = await self._runs.get(run_id_of(workflow_id))
        return run if run is not None and run.workflow_id == workflow_id else None

    # --- asking -------------------------------------------------------------------------------------------------------

    async def _questions(self, run: StoredRun, start: int, stop: int) -> list[tuple[int, int, bytes]]:
        """Unit, repeat and example of what is still to be asked."""
        repeats = run.config.options.repeats
        positions = (start // repeats, -(-stop // repeats))
        done = await self._records.done(run, *positions)
        rows = dict(await self._records.examples(run.dataset_no, *positions))
        units = ((unit, *divmod(unit, repeats)) for unit in range(start, stop))
        return [(unit, repeat, rows[position]) for unit, position, repeat in units if (position, repeat) not in done]

    async def _execute(self, session: Session, questions: list[tuple[int, int, bytes]], rank: int) -> None:
        items = (Item(unit, repeat, EvalExample.model_validate_json(data)) for unit, repeat, data in questions)
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, session)
            await session.execution.run(items, rank)
            group.cancel_scope.cancel()

    async def _keep(self, session: Session, batch: Kept) -> Kept:
        run = session.run
        rows, kept = [], []
        for item, record in batch:
            row, stored = _row(run, item.unit // run.config.options.repeats, record)
            rows.append(row)
            kept.append((item, stored))
        while True:
            try:
                await self._records.add(rows)
                break
            except Unavailable:  # the answers were paid for: hold them until the store is back
                await anyio.sleep(STORE_RETRY_SECONDS)
        for _, record in kept:
            self._observer.recorded(run.system, record)
        return kept

    async def _watch(self, session: Session) -> None:
        """Show whether the run waits, and see whether somebody wants it to stop."""
        changed = anyio.Event()
        shown = RunStatus.RUNNING
        with session.gate.listening(lambda: changed.set()):  # noqa: PLW0108 - the event is another one each time
            while True:
                with anyio.move_on_after(WATCH_SECONDS):
                    await changed.wait()
                changed = anyio.Event()
                with contextlib.suppress(Unavailable):
                    shown = await self._show(session, shown)
                    if await self._runs.status(session.run.run_id) not in BUSY:
                        session.gate.stop()

    async def _show(self, session: Session, shown: RunStatus) -> RunStatus:
        status = RunStatus.WAITING if session.gate.held else RunStatus.RUNNING
        if status is not shown:
            await self._runs.move(session.run.run_id, status, only_from=BUSY)
        return status


def _row(run: StoredRun, position: int, record: Record) -> tuple[Row, Record]:
    """The record as it can be stored, and its row."""
    try:
        return row_of(run.no, position, record, run.config.profile), record
    except ValueError as why:  # it holds what JSON can't carry
        error = RecordError(kind="malformed", message=f"the prediction can't be stored: {why}"[:300])
        nothing = {"prediction": None, "scored_label": None, "correct": None}
        failed = record.model_copy(update={"status": "failed", "error": error, **nothing})
        return row_of(run.no, position, failed, run.config.profile), failed
