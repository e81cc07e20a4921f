"""Ask about many examples at once: so many at a time, each alone in its failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import anyio

from app.runs.asking import Asker, Item
from app.runs.gate import Stopped
from app.runs.limits import Limits
from app.runs.model import Record, RunFailure

Keep = Callable[[Item, Record], Awaitable[None]]
"""Makes a record durable; an example counts as done when this has returned."""


@dataclass
class Execution:
    """One stretch of a run. `failure` is set when it had to end before its time."""

    asker: Asker
    limits: Limits
    keep: Keep
    failure: RunFailure | None = None

    async def run(self, items: Iterator[Item], concurrency: int) -> None:
        """Work through `items`, in order of starting, until they end or the gate is stopped.

        Whoever was asked when it stops is waited for: its answer is recorded, not thrown away.
        """
        with self.asker.gate.listening(self.check):
            await self._run(items, concurrency)

    async def _run(self, items: Iterator[Item], concurrency: int) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(concurrency):
                group.start_soon(self._work, items)

    async def _work(self, items: Iterator[Item]) -> None:
        gate = self.asker.gate
        # The iterator is shared: taking the next one never yields to another task.
        while not gate.stopped and (item := next(items, None)) is not None:
            try:
                record = await self.asker.ask(item)
            except Stopped:
                return
            await self.keep(item, record)
            self.asker.standing.add(record)
            self.check()

    def check(self) -> None:
        """End the run if it can't go on."""
        if self.failure is None and (failure := self.limits.broken(self.asker.standing, waiting=self.asker.gate.held)):
            self.failure = failure
            self.asker.gate.stop()
