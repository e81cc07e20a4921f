"""Giving up on work whose caller has hung up, at no cost to work that is done at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import anyio
from starlette.requests import ClientDisconnect
from starlette.types import Receive

T = TypeVar("T")

GRACE = 0.05
"""Seconds before anybody looks whether the caller is still there."""


async def unless_gone(receive: Receive, work: Awaitable[T], *, grace: float = GRACE) -> T:
    """Await `work`; cancel it and raise `ClientDisconnect` when the caller hangs up after `grace` seconds or more.

    The request's body must have been read: what `receive` says next can only be that the caller is gone.
    """
    loop = asyncio.get_running_loop()
    watchers: list[asyncio.Task[None]] = []
    with anyio.CancelScope() as scope:
        timer = loop.call_later(grace, lambda: watchers.append(loop.create_task(_watch(receive, scope))))
        try:
            return await work
        finally:
            timer.cancel()
            for watcher in watchers:
                watcher.cancel()
    raise ClientDisconnect


async def _watch(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
