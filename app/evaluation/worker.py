"""Works off what was accepted, a few pieces at a time, for as long as the process lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from app.errors import ServiceError, Unavailable, Unprocessable
from app.evaluation.standing import ErasedMeanwhile
from app.evaluation.work import LEASE_SECONDS, Work, WorkStore

logger = logging.getLogger(__name__)

Perform = Callable[[Work], Awaitable[str]]
"""Do one piece of work; the id of the evaluation that answers it. Raises `ServiceError`."""

Within = Callable[[str, str | None], AbstractContextManager[object]]
"""What surrounds a piece of work, by its id and the `traceparent` of whoever asked for it."""


SOON_SECONDS = 0.25
"""How long work that nobody waits for is gathered: taking a piece costs the store as much as taking sixteen."""


class Worker:
    """Takes work from the store and performs it. `concurrency` pieces at once; `poll` seconds between looks at the
    store for what other processes accepted or left behind. `within` is entered for each piece."""

    def __init__(
        self,
        store: WorkStore,
        perform: Perform,
        *,
        concurrency: int = 16,
        poll: float = 5.0,
        soon: float = SOON_SECONDS,
        within: Within = lambda _id, _caller: nullcontext(),
    ) -> None:
        self._store = store
        self._perform = perform
        self._slots = anyio.Semaphore(concurrency)
        self._busy: set[str] = set()
        self._poll = poll
        self._soon = soon
        self._within = within
        self._wake = anyio.Event()
        self._alarm: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """There is work: look at once."""
        self._wake.set()

    def wake_soon(self) -> None:
        """There is work that nobody waits for: look at it in a moment, together with what comes until then."""
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(self._soon, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._wake.set()

    async def run(self) -> None:
        """Work for ever. What is unfinished when this is cancelled is let go of and done by whoever comes next."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._keep_leases)
                await self._quietly(self._store.release_dead)
                while True:
                    self._wake = anyio.Event()
                    await self._quietly(lambda: self._start_all(group))
                    with anyio.move_on_after(self._poll):
                        await self._wake.wait()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(2):
                await self._quietly(self._store.release)

    async def drain(self) -> None:
        """Work until there is nothing left to take and all of it is done."""
        async with anyio.create_task_group() as group:
            await self._start_all(group)

    async def _start_all(self, group: TaskGroup) -> None:
        more = True
        while more:
            works, more = await self._take()
            for work in works:
                self._busy.add(work.work_id)
                group.start_soon(self._do, work)
                await anyio.lowlevel.checkpoint()  # one at a time, or requests would wait for all of them

    async def _take(self) -> tuple[list[Work], bool]:
        """Claim as much as there are free slots, at least one; each piece holds its slot. Also whether there may be
        more."""
        await self._slots.acquire()
        free = 1 + self._slots.value
        try:
            works = await self._store.claim(free)
        except BaseException:
            self._slots.release()
            raise
        for _ in works[1:]:
            self._slots.acquire_nowait()
        if not works:
            self._slots.release()
        return works, len(works) == free

    async def _do(self, work: Work) -> None:
        try:
            with self._within(work.work_id, work.traceparent):
                await self._settle(work)
        finally:
            self._busy.discard(work.work_id)
            self._slots.release()

    async def _settle(self, work: Work) -> None:
        try:
            await self._store.finish(work.work_id, await self._perform(work))
        except Unavailable:
            # Nothing can be noted; once its lease has run out the work is taken again. The store tells of its trouble.
            logger.debug("accepted work %s waits for the store", work.work_id)
        except ErasedMeanwhile:
            pass  # whoever erased it has noted so
        except Unprocessable as exc:
            await self._fail(work, "unprocessable", exc.detail)
        except ServiceError as exc:
            await self._fail(work, "refused", exc.detail)
        except Exception as exc:
            logger.exception("accepted work %s crashed", work.work_id)
            await self._fail(work, "crashed", type(exc).__name__)

    async def _fail(self, work: Work, kind: str, message: str) -> None:
        await self._quietly(lambda: self._store.fail(work.work_id, kind, message))

    async def _keep_leases(self) -> None:
        while True:
            await anyio.sleep(LEASE_SECONDS / 3)
            await self._quietly(lambda: self._store.renew(self._busy))

    async def _quietly(self, action: Callable[[], Awaitable[None]]) -> None:
        """A store that is away for a while must not end the worker."""
        try:
            await action()
        except Unavailable:
            logger.debug("the worker waits for the store")  # which has told of its trouble, once
        except Exception:
            logger.exception("the worker could not reach its store")
