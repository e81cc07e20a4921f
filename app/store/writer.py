"""The batching writer: what waits is written in one transaction and answered after its COMMIT."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from app.errors import Unavailable
from app.store.health import Health
from app.store.trouble import CONTRADICTS, Contradiction, is_trouble

MAX_BATCH = 512
"""Jobs in one transaction: bounds how long the first of them waits for the last."""

Handler = Callable[[Connection, Sequence[Any]], Sequence[Any]]


class Job:
    """One caller's item, the handler it goes to, and the future that the caller awaits."""

    __slots__ = ("error", "future", "handler", "item", "loop", "result")

    def __init__(self, handler: Handler, item: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.handler = handler
        self.item = item
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None


def call_each(conn: Connection, fns: Sequence[Callable[[Connection], Any]]) -> list[Any]:
    """The handler of plain functions: call one after another."""
    return [fn(conn) for fn in fns]


@dataclass(slots=True)
class Counts:
    """What the writer has done since its start; it alone changes them, any thread may read them."""

    commits: int = 0
    jobs: int = 0
    failures: int = 0
    busy_seconds: float = 0.0


class Writer:
    """One thread, one connection. It is called once per turn of the event loop, not for each job, and only if it rests.

    A batch is first tried without savepoints; only when something in it fails is it rolled back and done again with
    each job in a savepoint of its own, so that a failure reaches its caller alone. A job may therefore run twice.
    """

    def __init__(
        self,
        engine: Engine,
        health: Health,
        *,
        check: Callable[[], None] = lambda: None,
        after_commit: Callable[[], None] = lambda: None,
    ) -> None:
        """`check` is called before a transaction; what it raises, every job gets."""
        self._engine = engine
        self._check = check
        self._after_commit = after_commit
        self.counts = Counts()
        self.health = health
        self._jobs: deque[Job] = deque()
        self._resting = False
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._about_to_call = False
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="arbiter-writer", daemon=True)
        self._thread.start()

    def submit(self, handler: Handler, item: Any) -> asyncio.Future[Any]:
        """Queue one job; its future is resolved after the COMMIT. Cancelling it never disturbs the batch."""
        if self._closed:
            raise Unavailable("the store is closed")
        loop = asyncio.get_running_loop()
        job = Job(handler, item, loop)
        self._jobs.append(job)
        if loop is not self._loop:
            self._call()
        elif not self._about_to_call:
            self._about_to_call = True
            loop.call_soon(self._call)
        return job.future

    async def close(self) -> None:
        """Write what waits, then stop the thread."""
        self._closed = True
        self._calls.put(None)
        await asyncio.to_thread(self._thread.join)

    def _call(self) -> None:
        """Wake the thread, unless it is at work: then it looks for more by itself, and a call is a costly thing."""
        self._about_to_call = False
        if self._resting:
            self._resting = False
            self._calls.put(None)

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while jobs := self._next():
            self._write([job for job in jobs if not job.future.cancelled()])

    def _next(self) -> list[Job]:
        """What waits, up to a full batch; nothing = the writer was closed."""
        while not self._jobs and not self._closed:
            self._resting = True
            if not self._jobs:  # one that came before we rested has called nobody
                self._calls.get()
        jobs: list[Job] = []
        with contextlib.suppress(IndexError):
            while len(jobs) < MAX_BATCH:
                jobs.append(self._jobs.popleft())
        return jobs

    def _write(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        started = time.perf_counter()
        self.counts.jobs += len(jobs)
        try:
            done = self._transact(jobs)
            self.counts.commits += done
            self.counts.failures += not done
        except BaseException as exc:
            self.counts.failures += 1
            error = self._translate(exc)
            for job in jobs:
                job.error = job.error or error
        self.counts.busy_seconds += time.perf_counter() - started
        _resolve_all(jobs)

    def _transact(self, jobs: list[Job]) -> bool:
        """Whether it was committed; a job that failed alone has its error and nothing was written."""
        self._check()
        with self._engine.connect() as conn:
            transaction = conn.begin()
            try:
                for handler, group in _grouped(jobs):
                    _run_group(conn, handler, group)
            except Exception as exc:
                transaction.rollback()
                if len(jobs) == 1:
                    jobs[0].error = self._translate(exc)
                    return False
                transaction = conn.begin()
                for job in jobs:
                    self._run_alone(conn, job)
            transaction.commit()
        if any(job.error is None for job in jobs):
            self.health.worked("write")
        self._after_commit()
        return True

    def _run_alone(self, conn: Connection, job: Job) -> None:
        conn.exec_driver_sql("SAVEPOINT job")
        try:
            (job.result,) = job.handler(conn, [job.item])
        except Exception as exc:
            try:
                conn.exec_driver_sql("ROLLBACK TO SAVEPOINT job")
            except DBAPIError:  # a full disk undoes the whole transaction, so that all of its jobs failed
                raise exc from None
            job.error = self._translate(exc)
        conn.exec_driver_sql("RELEASE SAVEPOINT job")

    def _translate(self, exc: BaseException) -> BaseException:
        if isinstance(exc, Contradiction):
            return self.health.refused(CONTRADICTS, "write", exc)
        return self.health.failed(exc, "write") if isinstance(exc, DBAPIError) and is_trouble(exc) else exc


def _grouped(jobs: list[Job]) -> Iterable[tuple[Handler, list[Job]]]:
    groups: dict[Handler, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.handler, []).append(job)
    return groups.items()


def _run_group(conn: Connection, handler: Handler, jobs: list[Job]) -> None:
    results = handler(conn, [job.item for job in jobs])
    for job, result in zip(jobs, results, strict=True):
        job.result = result


def _resolve_all(jobs: list[Job]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, group in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve, group)


def _resolve(jobs: list[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)
