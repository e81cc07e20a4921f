"""Ask about many examples at once: so many at a time, each alone in its failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from app.runs.asking import Asker, Item
from app.runs.gate import Stopped
from app.runs.limits import Limits
from app.runs.model import Record, RunFailure
from app.runs.slots import Slots

Keep = Callable[[Item, Record], Awaitable[None]]
"""Makes a record durable; an example counts as done when this has returned."""


@dataclass
class Execution:
    """Asks for one run, `concurrency` at a time over all its stretches. `failure`: why it had to end early.

    Up to `behind` answers are made durable while the next examples are asked about already; 0 = none.
    """

    asker: Asker
    limits: Limits
    keep: Keep
    concurrency: int
    behind: int = 0
    failure: RunFailure | None = None

    def __post_init__(self) -> None:
        self._slots = Slots(self.concurrency)
        self._behind = anyio.Semaphore(self.behind, fast_acquire=True)

    async def run(self, items: Iterator[Item], rank: int = 0) -> None:
        """Work through `items`, until they end or the gate is stopped. Of several stretches the lowest rank goes first.

        Whoever was asked when it stops is waited for: its answer is recorded, not thrown away.
        """
        with self.asker.gate.listening(self.check):
            async with anyio.create_task_group() as group:
                for _ in range(self.concurrency):
                    group.start_soon(self._work, items, rank, group)

    async def _work(self, items: Iterator[Item], rank: int, group: TaskGroup) -> None:
        more = True
        while more:
            async with self._slots.hold(rank):
                more = await self._ask_on(items, rank, group)

    async def _ask_on(self, items: Iterator[Item], rank: int, group: TaskGroup) -> bool:
        """Ask until the slot is wanted for an earlier stretch: then True, there may be more to ask."""
        # A slot is kept from one example to the next: given back in between it would go to a later stretch.
        # The iterator is shared: taking the next one never yields to another task.
        while not self.asker.gate.stopped and (item := next(items, None)) is not None:
            try:
                record = await self.asker.ask(item)
            except Stopped:
                return False
            if self.behind:
                await self._behind.acquire()
                group.start_soon(self._keep_behind, item, record)
            else:
                await self._keep(item, record)
            if self._slots.wanted_before(rank):
                return True
        return False

    async def _keep_behind(self, item: Item, record: Record) -> None:
        try:
            await self._keep(item, record)
        finally:
            self._behind.release()

    async def _keep(self, item: Item, record: Record) -> None:
        await self.keep(item, record)
        self.asker.standing.add(record)
        self.check()

    def check(self) -> None:
        """End the run if it can't go on."""
        if self.failure is None and (failure := self.limits.broken(self.asker.standing, waiting=self.asker.gate.held)):
            self.failure = failure
            self.asker.gate.stop()
