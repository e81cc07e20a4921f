"""Ask about many examples at once: so many at a time, each alone in its failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

import anyio
import anyio.lowlevel

from app.runs.adaptive import Adaptive
from app.runs.asking import Asker, Item
from app.runs.gate import Stopped
from app.runs.limits import Limits
from app.runs.model import Record, RunFailure
from app.runs.slots import Slots
from layers.withdrawal import ASKER

FLUSH_SECONDS = 1.0
"""How long a cancelled run may still take to store what was answered."""

Kept = Sequence[tuple[Item, Record]]

Keep = Callable[[Kept], Awaitable[Kept]]
"""Makes records durable and answers with what was kept; their examples count as done when it has returned."""


@dataclass
class Execution:
    """Asks for one run, at most `concurrency` at a time over all its stretches, and as many as `adaptive` says.

    Up to `behind` answers are made durable while the next examples are asked about already; 0 = none. `failure`: why it
    had to end early.
    """

    asker: Asker
    limits: Limits
    concurrency: int
    behind: int = 0
    adaptive: Adaptive | None = None
    failure: RunFailure | None = None

    def __post_init__(self) -> None:
        self._slots = Slots(self.adaptive.limit if self.adaptive else self.concurrency)
        if self.adaptive:
            self.adaptive.changed = self._slots.resize
        self._room = anyio.Semaphore(self.behind, fast_acquire=True)

    async def run(self, items: Iterator[Item], keep: Keep, rank: int = 0) -> None:
        """Ask about `items` until they end or the gate is stopped. Of several stretches the lowest rank goes first.

        Whoever was asked when it stops is waited for: its answer is recorded, not thrown away.
        """
        with self.asker.gate.listening(self._gate_moved):
            async with anyio.create_task_group() as keepers:
                answered, scope = _Answered(keep), anyio.CancelScope(shield=True)
                keepers.start_soon(self._keep_behind, answered, scope)
                try:
                    async with anyio.create_task_group() as group:
                        for _ in range(self.concurrency):
                            group.start_soon(self._work, items, rank, answered)
                except anyio.get_cancelled_exc_class():  # what was answered is kept all the same, if it can be soon
                    scope.deadline = anyio.current_time() + FLUSH_SECONDS
                    raise
                finally:
                    answered.end()

    async def _work(self, items: Iterator[Item], rank: int, answered: _Answered) -> None:
        ASKER.set(self.asker.gate)  # in this task alone
        more = True
        while more:
            async with self._slots.hold(rank):
                more = await self._ask_on(items, rank, answered)

    async def _ask_on(self, items: Iterator[Item], rank: int, answered: _Answered) -> bool:
        """Ask until the slot is wanted for an earlier stretch: then True, there may be more to ask."""
        # A slot is kept from one example to the next: given back in between it would go to a later stretch.
        # The iterator is shared: taking the next one never yields to another task.
        while not self.asker.gate.stopped and (item := next(items, None)) is not None:
            try:
                record = await self.asker.ask(item)
            except Stopped:
                return False
            if self.adaptive:
                self.adaptive.answered(record.elapsed_ms)
            if self.behind:
                await self._find_room()
                answered.add(item, record)
            else:
                await self._keep([(item, record)], answered.keep)
            if self._slots.wanted_before(rank) or self._slots.too_many:
                return True
        return False

    async def _keep_behind(self, answered: _Answered, scope: anyio.CancelScope) -> None:
        with scope:
            while batch := await answered.take():
                await self._keep(batch, answered.keep)
                for _ in batch:
                    self._room.release()

    async def _find_room(self) -> None:
        await self._room.acquire()
        if self._room.value == self.behind // 2:  # a system that waits for nobody would never let the keeper begin
            await anyio.lowlevel.checkpoint()

    async def _keep(self, batch: Kept, keep: Keep) -> None:
        for _, record in await keep(batch):
            self.asker.standing.add(record)
        self.check()

    def _gate_moved(self) -> None:
        if self.adaptive and self.asker.gate.held:
            self.adaptive.throttled()
        self.check()

    def check(self) -> None:
        """End the run if it can't go on."""
        if self.failure is None and (failure := self.limits.broken(self.asker.standing, waiting=self.asker.gate.held)):
            self.failure = failure
            self.asker.gate.stop()


class _Answered:
    """Answers that wait for their keeper, who takes all there are at a time."""

    def __init__(self, keep: Keep) -> None:
        self.keep = keep
        self._waiting: list[tuple[Item, Record]] = []
        self._ended = False
        self._some = anyio.Event()

    def add(self, item: Item, record: Record) -> None:
        self._waiting.append((item, record))
        self._some.set()

    def end(self) -> None:
        """No more will come."""
        self._ended = True
        self._some.set()

    async def take(self) -> Kept:
        """What waits, at least one; nothing = there is no more."""
        if not self._waiting and not self._ended:
            self._some = anyio.Event()
            await self._some.wait()
        batch, self._waiting = self._waiting, []
        return batch
