"""The work of a run, step by step, such that doing a step twice does no harm."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

import anyio

from app.errors import ServiceError, Unavailable
from app.runs.answering import Answering
from app.runs.chunks import ChunkStore, Claim
from app.runs.keeping import STORE_RETRY_SECONDS
from app.runs.model import BUSY, TERMINAL, RunFailure, RunStatus
from app.runs.observe import UNWATCHED, RunObserver, UnderWay
from app.runs.record_store import RecordStore
from app.runs.session import Session, Sessions, limits_of
from app.runs.store import Room, RunStore, StoredRun, run_id_of, stretch_of
from layers.ports import System

T = TypeVar("T")

logger = logging.getLogger(__name__)

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
    a run's turn, `room` how many there is place for, `is_heard` whether the others know this process to be alive: while
    they don't, it asks nobody. `on_rest` is called whenever work on a run came to an end here.
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
        self._answering = Answering(runs, records, chunks, observer)
        self._size = size or ChunkSize()
        self._on_rest = on_rest
        self._me = ""
        self._admits: Callable[[StoredRun], Awaitable[bool]] | None = None
        self._room: Room | None = None
        self._begun = anyio.Event()
        self._stretches: dict[str, str] = {}
        self._held: set[tuple[int, int]] = set()
        self._claiming = anyio.Lock()
        self._sessions = Sessions(systems, records.standing, self._size.examples)

    def begin(
        self, me: str, admits: Callable[[StoredRun], Awaitable[bool]], is_heard: Callable[[], bool], room: Room
    ) -> None:
        """Let the steps do their work."""
        self._me, self._admits, self._room = me, admits, room
        self._answering.admits, self._answering.is_heard = admits, is_heard
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
        self._answering.halted = True
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
                    await self._move(workflow_id, RunStatus.FAILED, BUSY, failure)
                return None

    async def _plan(self, workflow_id: str) -> int | None:
        run = await self._current(workflow_id)
        if run is None or not await self._may_go_on(run):
            return None
        if not await self._move(workflow_id, RunStatus.RUNNING, BUSY):
            return None
        session = await self._sessions.of(run)
        return self._advise(None, session)

    async def _chunk(self, workflow_id: str, size: int) -> int | None:
        run = await self._current(workflow_id)
        if run is None or run.status not in BUSY or not await self._may_go_on(run):
            return None
        session = await self._sessions.of(run)
        while not self._answering.is_heard():  # noqa: ASYNC110 - nobody tells when it is heard again
            await anyio.sleep(STORE_RETRY_SECONDS)
        claim = await self._claim(run, size, session.concurrency)
        if claim is None:
            return None
        try:
            with session.working():
                busy = await self._answering.ask(session, claim)
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
            claim = await self._chunks.claim(run, self._me, size, least, held, self._room)
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
            await self._move(workflow_id, status, allowed, failure)
        elif run.status is RunStatus.CANCELLING:
            await self._move(workflow_id, RunStatus.CANCELLED, {RunStatus.CANCELLING})
        elif run.status in BUSY:
            if not hands.to_take:
                raise RuntimeError("the steps ended before the run did")
            await self._move(workflow_id, RunStatus.QUEUED, BUSY)  # it is another's turn
        elif run.status in TERMINAL:  # it gave up while it was asked about
            await self._chunks.forget(run)

    async def _current(self, workflow_id: str) -> StoredRun | None:
        """The run, unless it is another workflow's by now: one stretch of it, and one workflow here for each."""
        run = await self._runs.get(run_id_of(workflow_id))
        if run is None or run.workflow_id != stretch_of(workflow_id):
            return None
        return run if self._stretches.setdefault(run.workflow_id, workflow_id) == workflow_id else None

    async def _move(
        self, workflow_id: str, to: RunStatus, only_from: Collection[RunStatus], failure: RunFailure | None = None
    ) -> bool:
        run_id = run_id_of(workflow_id)
        return await self._runs.move(run_id, to, only_from=only_from, failure=failure, stretch=workflow_id)

    async def _may_go_on(self, run: StoredRun) -> bool:
        return self._admits is None or await self._admits(run)
