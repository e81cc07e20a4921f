"""The port to whatever makes runs durable: it only has to deliver each chunk at least once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

Chunk: TypeAlias = Callable[[str, int], Awaitable[int | None]]
"""`chunk(workflow_id, start)` does what comes next from unit `start` on and answers where to go on; None = nowhere.

Done again after a crash it skips what has a record, so delivering it twice does no harm.
"""


class RunEngine(Protocol):
    """Drives runs chunk by chunk and goes on after a crash or a restart.

    `executor` names this process among all that work on the same store, from `launch` on; None = it works on none.
    """

    @property
    def executor(self) -> str | None: ...

    async def alive(self, executor: str) -> bool:
        """Whether the process of that name is still there."""
        ...

    async def launch(self, chunk: Chunk) -> None:
        """Begin to work, with what an earlier process left undone. Call it on the event loop that chunks belong to."""
        ...

    async def start(self, workflow_id: str) -> bool:
        """Do one chunk after another until there is none, from unit 0 on. The same `workflow_id` again changes nothing.

        False = that workflow has already ended, so that going on needs a new id.
        """
        ...

    async def close(self) -> None:
        """Stop at once and leave what is undone to the next `launch`."""
        ...


class IdleEngine:
    """For a process that only reads: it takes no run and works on none."""

    executor: str | None = None

    async def alive(self, executor: str) -> bool:
        """Leave everybody in peace."""
        return True

    async def launch(self, chunk: Chunk) -> None:
        """Do nothing."""

    async def start(self, workflow_id: str) -> bool:
        """Leave the run to a process that works."""
        return True

    async def close(self) -> None:
        """Do nothing."""
