"""Questions that wait for their turn and may be taken back before they are sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Protocol, TypeVar

import anyio

from layers.errors import Withdrawn

T = TypeVar("T")


class Asker(Protocol):
    """Whoever asks, and may stop wanting to know."""

    stopped: bool

    def on_stop(self, listener: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `listener` when it stops, for as long as the block lasts."""
        ...


ASKER: ContextVar[Asker | None] = ContextVar("asker", default=None)
"""For whom the present task asks; None = for somebody who will wait for whatever comes."""


async def unless_withdrawn(dependency: str, wait: Awaitable[T]) -> T:
    """Await a question's turn. Raises `Withdrawn` when the one who asks stops meanwhile."""
    asker = ASKER.get()
    if asker is None:
        return await wait
    with anyio.CancelScope() as scope, asker.on_stop(scope.cancel):
        if asker.stopped:
            scope.cancel()
        return await wait
    raise Withdrawn(dependency)
