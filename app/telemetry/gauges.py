"""What is looked at from time to time rather than counted: the queue of accepted work, and what the store does."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio

from app.telemetry.metrics import Metrics

LOOK_EVERY_S = 10.0
log = logging.getLogger("arbiter.telemetry")

Backlog = Callable[[], Awaitable[int]]


class QueueGauge:
    """How much accepted work waits, counted every ten seconds. A count that fails is shown as its growing age."""

    def __init__(self, metrics: Metrics, backlog: Backlog, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._backlog = backlog
        self._clock = clock
        self._depth: int | None = None
        self._counted_at = 0.0
        self._failing = False
        metrics.queue_depth.show(lambda: [] if self._depth is None else [(self._depth, {"queue": "evaluations"})])
        metrics.queue_age.show(
            lambda: [] if self._depth is None else [(self._clock() - self._counted_at, {"queue": "evaluations"})]
        )

    async def run(self) -> None:
        """Count for ever."""
        while True:
            await self.look()
            await anyio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Count once. What is wrong with the store is told once, not every ten seconds."""
        try:
            self._depth = await self._backlog()
            self._counted_at = self._clock()
        except Exception as exc:
            if not self._failing:
                log.warning("the queue of accepted work can't be counted: %s", type(exc).__name__)
            self._failing = True
        else:
            self._failing = False


class StoreCounts(Protocol):
    """What the store's writer has done since its start; plain numbers that any thread may read."""

    @property
    def commits(self) -> int: ...
    @property
    def jobs(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def busy_seconds(self) -> float: ...


def show_store(metrics: Metrics, counts: StoreCounts) -> None:
    """Show what the writer does: jobs / commits is how many share a transaction, busy is its load."""
    metrics.store_commits.show(lambda: [(counts.commits, {})])
    metrics.store_jobs.show(lambda: [(counts.jobs, {})])
    metrics.store_failures.show(lambda: [(counts.failures, {})])
    metrics.store_seconds.show(lambda: [(counts.busy_seconds, {})])
