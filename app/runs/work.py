"""The work of a run, chunk by chunk, such that doing a chunk twice does no harm."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import anyio

from app.errors import ServiceError, Unavailable, Unprocessable
from app.runs.asking import Item
from app.runs.executor import Execution
from app.runs.model import Record, RecordError, RunFailure, RunStatus
from app.runs.record_store import RecordStore
from app.runs.session import Session
from app.runs.store import RunStore, StoredRun, run_id_of
from layers.model import EvalExample
from layers.ports import Clock, System

logger = logging.getLogger(__name__)

WATCH_SECONDS = 1.0
"""How often a run looks whether another process paused or cancelled it."""

STORE_RETRY_SECONDS = 1.0

BUSY = frozenset({RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING})
"""Statuses in which examples may be asked about."""


@dataclass(frozen=True)
class ChunkSize:
    """A chunk starts at most `examples` and none after `seconds`, but always two for each that run at once: waiting
    for the slowest of a few would leave the others idle."""

    examples: int = 500
    seconds: float = 10.0


class RunWork:
    """Does the next chunk of a run and says where to go on. The engine calls `chunk`, callers `poke`."""

    def __init__(
        self,
        runs: RunStore,
        records: RecordStore,
        systems: Mapping[str, System],
        *,
        size: ChunkSize = ChunkSize(),
        clock: Clock = time.monotonic,
    ) -> None:
        self._runs = runs
        self._records = records
        self._systems = systems
        self._size = size
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._locks: dict[str, anyio.Lock] = {}

    def rate(self, run_id: str) -> float | None:
        """Examples per second of a run that is worked on here."""
        session = self._sessions.get(run_id)
        return session.meter.rate() if session else None

    def poke(self, run_id: str) -> None:
        """The run's status was changed: stop asking and look."""
        if session := self._sessions.get(run_id):
            session.gate.stop()

    async def chunk(self, workflow_id: str, start: int) -> int | None:
        """Ask about the questions from `start` on and answer where to go on; None = the run rests or has ended."""
        run_id = run_id_of(workflow_id)
        # After a pause a new workflow may begin while the old one's last answers are still on their way.
        async with self._locks.setdefault(run_id, anyio.Lock()):
            following = await self._persevere(workflow_id, start)
            if following is None:
                self._sessions.pop(run_id, None)
        return following

    async def _persevere(self, workflow_id: str, start: int) -> int | None:
        while True:
            try:
                return await self._chunk(workflow_id, start)
            except Unavailable:
                await anyio.sleep(STORE_RETRY_SECONDS)
            except Exception as exc:
                logger.exception("run %s can't go on", run_id_of(workflow_id))
                message = exc.detail if isinstance(exc, ServiceError) else f"the run broke off: {type(exc).__name__}"
                failure = RunFailure(kind="internal", message=message)
                await self._runs.move(run_id_of(workflow_id), RunStatus.FAILED, only_from=BUSY, failure=failure)
                return None

    async def _chunk(self, workflow_id: str, start: int) -> int | None:
        run = await self._runs.get(run_id_of(workflow_id))
        if run is None or run.workflow_id != workflow_id or not await self._begin(run):
            return None
        session = await self._session(run)
        stretch = _Stretch(run, start, self._size, self._clock)
        positions = (start // stretch.repeats, -(-stretch.stop // stretch.repeats))
        done = await self._records.done(run, *positions)
        rows = await self._records.examples(run.dataset_no, *positions)
        failure = await self._execute(session, stretch.items(dict(rows), done))
        if failure is not None:
            await self._runs.move(run.run_id, RunStatus.FAILED, only_from=BUSY, failure=failure)
            return None
        if session.gate.stopped:
            # Somebody changed the status: look again, from here, since what was taken may not have been asked.
            self._sessions.pop(run.run_id)
            return await self._chunk(workflow_id, start)
        if stretch.reached < run.n_total:
            return stretch.reached
        await self._finish(session)
        return None

    async def _begin(self, run: StoredRun) -> bool:
        """Whether there is something to do; a run that is to be cancelled is, here."""
        if run.status is RunStatus.CANCELLING:
            await self._runs.move(run.run_id, RunStatus.CANCELLED, only_from={RunStatus.CANCELLING})
            return False
        if run.status is RunStatus.RUNNING and run.started_at is not None:
            return True
        return await self._runs.move(run.run_id, RunStatus.RUNNING, only_from=BUSY)

    async def _session(self, run: StoredRun) -> Session:
        session = self._sessions.get(run.run_id)
        if session is None or session.run.workflow_id != run.workflow_id:
            system = self._systems.get(run.system)
            if system is None or system.open is None:
                why = system.why_closed if system else None
                raise Unprocessable(why or f"the system {run.system} can no longer be asked")
            session = Session(run, system.open(run.config.options.driver), await self._records.standing(run))
            self._sessions[run.run_id] = session
        return session

    async def _execute(self, session: Session, items: Iterator[Item]) -> RunFailure | None:
        async def keep(item: Item, record: Record) -> None:
            await self._keep(session, item, record)

        execution = Execution(session.asker, session.limits, keep)
        wanted = self._size.examples if session.immediate else session.run.config.concurrency
        concurrency = min(wanted, self._size.examples)
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, session)
            await execution.run(items, concurrency)
            group.cancel_scope.cancel()
        return execution.failure

    async def _keep(self, session: Session, item: Item, record: Record) -> None:
        run, position = session.run, item.unit // session.run.config.options.repeats
        while True:
            try:
                await self._records.add(run.no, position, record, run.config.profile)
                break
            except Unavailable:  # the answer was paid for: hold it until the store is back
                await anyio.sleep(STORE_RETRY_SECONDS)
            except ValueError as exc:  # it holds what JSON can't carry
                record = _unstorable(record, exc)
        session.meter.mark(session.standing.n_scored + session.standing.n_failed + 1)

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

    async def _finish(self, session: Session) -> None:
        run_id = session.run.run_id
        failure = session.limits.broken(session.standing)
        status = RunStatus.SUCCEEDED if failure is None else RunStatus.FAILED
        if not await self._runs.move(run_id, status, only_from=BUSY, failure=failure):
            # Cancelled or paused after its last example: that has nothing to stop any more.
            await self._runs.move(run_id, status, only_from={RunStatus.CANCELLING, RunStatus.PAUSED}, failure=failure)


def _unstorable(record: Record, why: ValueError) -> Record:
    error = RecordError(kind="malformed", message=f"the prediction can't be stored: {why}"[:300])
    nothing = {"prediction": None, "scored_label": None, "correct": None}
    return record.model_copy(update={"status": "failed", "error": error, **nothing})


class _Stretch:
    """The questions of one chunk, `reached` telling how far they were taken."""

    def __init__(self, run: StoredRun, start: int, size: ChunkSize, clock: Clock) -> None:
        self.repeats = run.config.options.repeats
        self.start = self.reached = start
        self.stop = min(run.n_total, start + size.examples)
        self._least = start + 2 * run.config.concurrency
        self._clock = clock
        self._deadline = clock() + size.seconds

    def items(self, rows: Mapping[int, bytes], done: set[tuple[int, int]]) -> Iterator[Item]:
        example: EvalExample | None = None
        decoded = -1
        for unit in range(self.start, self.stop):
            if unit >= self._least and self._clock() > self._deadline:
                return
            position, repeat = divmod(unit, self.repeats)
            self.reached = unit + 1
            if (position, repeat) in done:
                continue
            if example is None or decoded != position:
                example, decoded = EvalExample.model_validate_json(rows[position]), position
            yield Item(unit, repeat, example)
