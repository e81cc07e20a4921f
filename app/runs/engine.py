"""The port to whatever makes runs durable: it only has to deliver each step at least once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

AHEAD = 2
"""Chunks under way at once: the next one fills the slots that the last examples of the one before leave empty."""


class Work(Protocol):
    """The steps of a run. Each may be done again after a crash: what has a record is not asked again."""

    async def plan(self, workflow_id: str) -> int | None:
        """How many questions the first chunks should have; None = there is nothing to do."""
        ...

    async def chunk(self, workflow_id: str, size: int) -> int | None:
        """Ask `size` questions that nobody else asks. The size of a later chunk; None = go no further."""
        ...

    async def conclude(self, workflow_id: str) -> None:
        """Nothing is under way here any more: say how the run ended, if it did."""
        ...

    def halt(self) -> None:
        """The process ends: begin nothing more. What is under way is about to be cancelled and will be done again."""
        ...


class RunEngine(Protocol):
    """Drives runs chunk by chunk and goes on after a crash or a restart.

    `executor` names this process among all that work on the same store, from `launch` on; None = it works on none.
    """

    @property
    def executor(self) -> str | None: ...

    async def alive(self, executor: str) -> bool:
        """Whether the process of that name is still there."""
        ...

    async def launch(self, work: Work) -> None:
        """Begin to work, with what an earlier process left undone. Call it on the event loop that `work` belongs to."""
        ...

    async def start(self, workflow_id: str) -> bool:
        """Do a run's steps until there are none. The same `workflow_id` again changes nothing.

        False = that workflow has ended, or another version of this code began it, so that going on needs a new id.
        """
        ...

    async def close(self) -> None:
        """Stop at once and leave what is undone to the next `launch`."""
        ...


async def drive(
    plan: Callable[[], Awaitable[int | None]],
    chunk: Callable[[int], Awaitable[int | None]],
    conclude: Callable[[], Awaitable[None]],
) -> None:
    """One run's steps in their order, `AHEAD` chunks at a time.

    `chunk` is called in the same order with the same arguments whenever the same results come back, which is what an
    engine needs that replays a run from recorded results.
    """
    size = await plan()
    running: deque[asyncio.Task[int | None]] = deque()
    async with asyncio.TaskGroup() as group:
        while size is not None:
            while len(running) < AHEAD:
                running.append(group.create_task(_await(chunk(size))))
            size = await running.popleft()
    await conclude()


async def _await(step: Awaitable[int | None]) -> int | None:
    return await step


class IdleEngine:
    """For a process that only reads: it takes no run and works on none."""

    executor: str | None = None

    async def alive(self, executor: str) -> bool:
        """Leave everybody in peace."""
        return True

    async def launch(self, work: Work) -> None:
        """Do nothing."""

    async def start(self, workflow_id: str) -> bool:
        """Leave the run to a process that works."""
        return True

    async def close(self) -> None:
        """Do nothing."""
