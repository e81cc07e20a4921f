"""What a process that works on runs does again and again: give signs of life, look for work, rescue what died."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from app.errors import Unavailable
from app.runs.chunks import ChunkStore
from app.runs.engine import RunEngine
from app.runs.fleet import Fleet, Worker
from app.runs.keys import KeyStore
from app.runs.model import BUSY
from app.runs.store import Room, RunStore, StoredRun
from app.runs.work import RunWork
from layers.ports import System

LOOK_SECONDS = 1.0
"""Time between two looks for work. Work that came up in this process is found at once."""

logger = logging.getLogger(__name__)


class Rounds:
    """One process among those that work on a store's runs.

    With `shares` it works on every run that is nobody's own, together with all others who do the same. Without, a run
    is its own from its submission or from its maker's death on; `adopts` = it takes over those of the dead.
    At most `most` runs ask one system at a time.
    """

    def __init__(
        self,
        engine: RunEngine,
        work: RunWork,
        fleet: Fleet,
        systems: Mapping[str, System],
        stores: tuple[RunStore, ChunkStore, KeyStore],
        *,
        shares: bool,
        adopts: bool,
        most: int,
    ) -> None:
        self._engine = engine
        self._work = work
        self._fleet = fleet
        self._systems = systems
        self._runs, self._chunks, self._keys = stores
        self._shares = shares
        self._adopts = adopts
        self._most = most
        self._joins = itertools.count()
        self._awake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def owner(self) -> str | None:
        """The process that a run submitted here belongs to; None = to all who share."""
        return None if self._shares else self._engine.executor

    @property
    def _room(self) -> Room:
        """For how many runs there is place, once the engine has been started."""
        return Room(self._most, self._engine.executor)

    async def begin(self) -> None:
        """Join the others, free what an earlier process in this one's seat held, and go round from now on."""
        me = await self._fleet.join(self._engine.executor)
        await self._bury(await self._dead(look_at_all=True))
        self._work.begin(me, self._may_ask, self._fleet.is_heard, self._room)
        self._task = asyncio.create_task(self._go_on())

    async def end(self) -> None:
        """Go round no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def leave(self) -> None:
        """The engine has stopped: let the others have at once what this process held."""
        with contextlib.suppress(Unavailable):
            if self._fleet.me is not None:
                await self._chunks.free([self._fleet.me])
                await self._fleet.leave()

    def wake(self) -> None:
        """There may be work: look at once."""
        self._awake.set()

    async def take_over(self, run: StoredRun) -> bool:
        """Make a run, as it was read, this process's own, or everybody's where runs are shared."""
        return await self._runs.hand_over(run, self.owner, run.status)

    # --- rounds -------------------------------------------------------------------------------------------------------

    async def _go_on(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._again(self._fleet.beat_seconds, self._signs))
            if self._engine.executor is not None:
                group.create_task(self._again(LOOK_SECONDS, self._look))

    async def _again(self, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            if act == self._look:
                self._awake.clear()
            try:
                await act()
            except Unavailable:
                logger.warning("the store is out of reach: other processes may take over what this one does")
            except Exception:
                logger.exception("looking after runs failed; it is tried again")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await (self._awake.wait() if act == self._look else asyncio.sleep(seconds))

    async def _signs(self) -> None:
        await self._fleet.beat()
        if self._engine.executor is not None and (dead := await self._dead()):
            await self._bury(dead)
            self.wake()

    async def _dead(self, *, look_at_all: bool = False) -> Sequence[Worker]:
        """Those who are no more, and names on chunks that nobody goes by. Looks only at who is late, or at all."""
        owners = await self._chunks.owners()  # first: whoever joins meanwhile holds none of these
        others = await self._fleet.others()
        known = {worker.worker_id for worker in others}
        strays = [Worker(owner, None, 0.0, 0.0) for owner in owners - known - {self._fleet.me}]
        return [*strays, *[worker for worker in others if await self._is_dead(worker, look_at_all)]]

    async def _is_dead(self, worker: Worker, look: bool) -> bool:
        if worker.expired or (worker.executor is not None and worker.executor == self._engine.executor):
            return True  # two can't have the same seat
        return (look or worker.late) and worker.executor is not None and not await self._engine.alive(worker.executor)

    async def _bury(self, dead: Sequence[Worker]) -> None:
        if names := [worker.worker_id for worker in dead]:
            freed = await self._chunks.free(names)
            for name in names:
                await self._keys.drop_unsettled(name)
            await self._fleet.forget(names)
            logger.warning("silent processes: %d; chunks freed: %d", len(names), freed)

    async def _look(self) -> None:
        unfinished = await self._runs.unfinished()
        living: set[str | None] | None = None
        for run in unfinished:
            if run.executor is None and self._shares:
                await self._join(run)
            elif run.executor == self._engine.executor:
                await self._go_on_with(run)
            elif self._adopts:
                if living is None:
                    living = {worker.executor for worker in await self._fleet.others()} - {None}
                if run.executor not in living and await self.take_over(run):
                    self.wake()

    async def _join(self, run: StoredRun) -> None:
        """Work on a run beside whoever else does, if there is something to do."""
        system = self._systems.get(run.system)
        if self._work.is_at(run) or system is None or system.open is None:
            return
        if await self._may_ask(run) and (await self._chunks.hands(run, str(self._fleet.me))).needed:
            await self._engine.start(f"{run.workflow_id}:{self._fleet.me}:{next(self._joins)}")

    async def _go_on_with(self, run: StoredRun) -> None:
        """See that a run of this process's own is worked on."""
        if self._work.is_at(run) or not await self._may_ask(run):
            return
        if not await self._engine.start(run.workflow_id) and await self.take_over(run):  # it ended before the run did
            self.wake()

    async def _may_ask(self, run: StoredRun) -> bool:
        """Whether it is the run's turn; one that is to end needs no turn."""
        return run.status not in BUSY or await self._runs.turn(run, self._room)
