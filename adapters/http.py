"""The one client through which every remote is called: time-outs, retries, budget, breaker and error translation."""

from __future__ import annotations

import copy
import time
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import httpx

from adapters.breaker import BreakerRegistry, BreakerSnapshot, CircuitBreaker, Transition
from adapters.limits import Lane, Limiter
from adapters.reply import Reply
from layers.ports import Clock

__all__ = [
    "BreakerRegistry",
    "BreakerSnapshot",
    "CallEvent",
    "CircuitBreaker",
    "JsonClient",
    "Reply",
    "Transition",
    "new_http_client",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallEvent:
    """One attempt, for whoever measures. `kind` is `ok` or the error's kind; times are in seconds."""

    dependency: str
    lane: Lane
    attempt: int
    kind: str
    status: int | None
    seconds: float
    queued: float


def new_http_client(
    *,
    connect_timeout: float,
    read_timeout: float | None = None,
    proxy: str | None = None,
) -> httpx.AsyncClient:
    """An httpx client over a fast transport. Close it with `aclose`."""
    raise NotImplementedError


class JsonClient:
    """Calls one remote."""

    def __init__(  # noqa: PLR0913
        self,
        name: str,
        http: httpx.AsyncClient,
        breaker: CircuitBreaker,
        *,
        limiter: Limiter,
        timeout: float,
        max_response_bytes: int,
        attempts: int = 3,
        retry_after_from: Callable[[Reply], float | None] | None = None,
        propagate: Callable[[dict[str, str]], None] | None = None,
        observe: Callable[[CallEvent], None] | None = None,
        lane: Lane = "evaluate",
        clock: Clock = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.name = name
        self._breaker = breaker
        self._lane = lane

    async def call(
        self,
        method: str,
        url: str,
        *,
        read: Callable[[Reply], T],
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        expect: Container[int] = (),
        deadline: float | None = None,
    ) -> T:
        """Send one request and return what `read` makes of the reply. Raises `DependencyError`."""
        raise NotImplementedError

    def on(self, lane: Lane) -> JsonClient:
        """The same remote, breaker and budget, in another lane."""
        other = copy.copy(self)
        other._lane = lane
        return other

    def guarded_by(self, breaker: CircuitBreaker) -> JsonClient:
        """The same remote and budget, behind another breaker."""
        other = copy.copy(self)
        other._breaker = breaker
        return other
