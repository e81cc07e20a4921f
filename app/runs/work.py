"""The work of a run, step by step, such that doing a step twice does no harm."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import anyio

from app.errors import ServiceError, Unavailable
from app.runs.asking import Item
from app.runs.chunks import ChunkStore, Claim
from app.runs.keeping import STORE_RETRY_SECONDS, Chunk
from app.runs.model import BUSY, TERMINAL, RunFailure, RunStatus
from app.runs.observe import UNWATCHED, RunObserver, UnderWay
from app.runs.record_store import RecordStore
from app.runs.session import Session, Sessions, limits_of
from app.runs.store import RunStore, StoredRun, run_id_of, stretch_of
from layers.model import EvalExample
from layers.ports import System

T = TypeVar("T")

logger = logging.getLogger(__name__)

WATCH_SECONDS = 1.0
"""How often a run looks whether another process paused or cancelled it."""

FIRST_CHUNK = 50
"""Questions of the first chunks, while nothing is known of the system's speed."""


IMMEDIATE = 4
"""How many times as large a chunk may be when the system answers at once: what a chunk costs by itself would show."""


@dataclass(frozen=True)
class ChunkSize:
    """A chunk has as many questions as take about `seconds`, at most `examples` and at least one for each slot."""

    examples: int = 500
    seconds: float = 10.0

    def advise(self, rate: float | None, concurrency: int, *, immediate: bool = False) -> int:
        """How many the next chunk should have at `rate` questions per second; more where nobody is waited for."""
        wanted = FIRST_CHUNK if rate is None else int(rate * self.seconds)
        return min(self.examples * (IMMEDIATE if immediate else 1), max(wanted, concurrency))


class RunWork:
    """Implements the engine's `Work`; `poke` is for callers who changed a run's status.

    `begin` it with the name that this process goes by; the engine's steps wait for that. `admits` says whether it is
    a run's turn, `is_heard` whether the others know this process to be alive: while they don't, it asks nobody.
    `on_rest` is called whenever work on a run came to an end here.
    """

    def __init__(
        self,
        runs: RunStore,
        records: RecordStore,
        chunks: ChunkStore,
        systems: Mapping[str, System],
        *,
        size: ChunkSize | None = None,
        observer: RunObserver = UNWATCHED,
        on_rest: Callable[[], None] = lambda: None,
    ) -> None:
        self._runs = runs
        self._records = records
        self._chunks = chunks
        self._observer = observer
        self._size = size or ChunkSize()
        self._on_rest = on_rest
        self._halted = False
        self._me = ""
        self._admits: Callable[[StoredRun], Awaitable[bool]] | None = None
        self._is_heard: Callable[[], bool] = lambda: False
        self._begun = anyio.Event()
        self._stretches: dict[str, str] = {}
        self._held: set[tuple[int, int]] = set()
        self._claiming = anyio.Lock()
        self._sessions = Sessions(systems, records.standing, self._size.examples)

    def begin(self, me: str, admits: Callable[[StoredRun], Awaitable[bool]], is_heard: Callable[[], bool]) -> None:
        """Let the steps do their work."""
        self._me, self._admits, self._is_heard = me, admits, is_heard
        self._begun.set()

    def rate(self, run_id: str) -> float | None:
        """Examples per second of a run that is worked on here."""
        session = self._sessions.get(run_id)
        return session.meter.rate() if session else None

    def under_way(self) -> list[UnderWay]:
        """The runs worked on here. Any thread may ask."""
        return [session.under_way() for session in self._sessions.all()]

    def is_at(self, run: StoredRun) -> bool:
        """Whether this process works on the run as it stands."""
        return run.workflow_id in self._stretches

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

    async def chunk(self, workflow_id: str, size: int) -> int | None:
        """Ask about `size` questions that nobody else asks; the size of a later chunk, None = go no further."""
        return await self._persevere(workflow_id, lambda: self._chunk(workflow_id, size))

    async def conclude(self, workflow_id: str) -> None:
        """Say how the run ended, unless it only rests or others are still at it."""
        await self._persevere(workflow_id, lambda: self._conclude(workflow_id))
        if self._stretches.get(stretch := stretch_of(workflow_id)) == workflow_id:
            del self._stretches[stretch]
        self._on_rest()

    async def _persevere(self, workflow_id: str, step: Callable[[], Awaitable[T]]) -> T | None:
        """Do a step; wait while the store is away, and end the run on what nobody foresaw."""
        await self._begun.wait()
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
        if run is None or not await self._may_go_on(run):
            return None
        if not await self._runs.move(run.run_id, RunStatus.RUNNING, only_from=BUSY):
            return None
        session = await self._sessions.of(run)
        return self._advise(None, session)

    async def _chunk(self, workflow_id: str, size: int) -> int | None:
        run = await self._current(workflow_id)
        if run is None or run.status not in BUSY or not await self._may_go_on(run):
            return None
        session = await self._sessions.of(run)
        while not self._is_heard():  # noqa: ASYNC110 - nobody tells when it is heard again
            await anyio.sleep(STORE_RETRY_SECONDS)
        claim = await self._claim(run, size, session.concurrency)
        if claim is None:
            return None
        try:
            with session.working():
                busy = await self._ask(session, claim)
        finally:  # what is neither finished nor let go of, because the store was away, is taken again by the next claim
            self._held.discard((run.no, claim.start))
        # Where all was done before there is no speed to learn: hurry through.
        size = self._advise(session.meter.rate(), session) if busy else self._size.examples
        return None if session.gate.stopped else size

    def _advise(self, rate: float | None, session: Session) -> int:
        return self._size.advise(rate, session.concurrency, immediate=session.immediate)

    async def _claim(self, run: StoredRun, size: int, least: int) -> Claim | None:
        async with self._claiming:
            held = [start for run_no, start in self._held if run_no == run.no]
            claim = await self._chunks.claim(run, self._me, size, least, held)
            if claim is not None:
                self._held.add((run.no, claim.start))
            return claim

    async def _conclude(self, workflow_id: str) -> None:
        run = await self._current(workflow_id)
        if run is None:
            return
        session = self._sessions.get(run.run_id)
        if session:
            self._sessions.drop(session)
        hands = await self._chunks.hands(run, self._me)
        if hands.others:  # the last one says how it ended
            return
        standing = await self._records.standing(run)
        standing.said = session.standing.said if session else ""
        if standing.n_scored + standing.n_failed == run.n_total:
            # A pause or a cancellation after the last example has nothing to stop any more.
            allowed = BUSY | {RunStatus.PAUSED, RunStatus.CANCELLING}
            failure = limits_of(run).broken(standing)
            status = RunStatus.FAILED if failure else RunStatus.SUCCEEDED
            await self._runs.move(run.run_id, status, only_from=allowed, failure=failure)
        elif run.status is RunStatus.CANCELLING:
            await self._runs.move(run.run_id, RunStatus.CANCELLED, only_from={RunStatus.CANCELLING})
        elif run.status in BUSY:
            if not hands.to_take:
                raise RuntimeError("the steps ended before the run did")
            await self._runs.move(run.run_id, RunStatus.QUEUED, only_from=BUSY)  # it is another's turn
        elif run.status in TERMINAL:  # it gave up while it was asked about
            await self._chunks.forget(run)

    async def _current(self, workflow_id: str) -> StoredRun | None:
        """The run, unless it is another workflow's by now: one stretch of it, and one workflow here for each."""
        run = await self._runs.get(run_id_of(workflow_id))
        if run is None or run.workflow_id != stretch_of(workflow_id):
            return None
        return run if self._stretches.setdefault(run.workflow_id, workflow_id) == workflow_id else None

    async def _may_go_on(self, run: StoredRun) -> bool:
        return self._admits is None or await self._admits(run)

    # --- asking -------------------------------------------------------------------------------------------------------

    async def _ask(self, session: Session, claim: Claim) -> bool:
        """Ask all of a chunk; whether there was anything left to ask. What is left when it has to stop is let go of."""
        chunk = Chunk(session.run, claim, self._records, self._observer)
        questions = await self._questions(session.run, claim)
        await self._execute(session, chunk, questions)
        if (failure := session.execution.failure) is not None:
            await self._runs.move(session.run.run_id, RunStatus.FAILED, only_from=BUSY, failure=failure)
        if self._halted:
            await anyio.sleep_forever()  # until it is cancelled: a result would say that these were all asked
        if session.gate.stopped or chunk.left:
            await self._chunks.let_go(claim)
        else:
            await self._chunks.finish(claim)
        return bool(questions)

    async def _questions(self, run: StoredRun, claim: Claim) -> list[tuple[int, int, bytes]]:
        """Unit, repeat and example of what is still to be asked."""
        repeats = run.config.options.repeats
        positions = (claim.start // repeats, -(-claim.stop // repeats))
        done = await self._records.done(run, *positions)
        rows = dict(await self._records.examples(run.dataset_no, *positions))
        units = ((unit, *divmod(unit, repeats)) for unit in range(claim.start, claim.stop))
        return [(unit, repeat, rows[position]) for unit, position, repeat in units if (position, repeat) not in done]

    async def _execute(self, session: Session, chunk: Chunk, questions: list[tuple[int, int, bytes]]) -> None:
        def items() -> Iterator[Item]:
            for unit, repeat, data in questions:
                if chunk.lost or not self._is_heard():
                    chunk.left = True
                    return
                yield Item(unit, repeat, EvalExample.model_validate_json(data))

        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, session)
            await session.execution.run(items(), session.keeping(chunk.keep), chunk.claim.start)
            group.cancel_scope.cancel()

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
