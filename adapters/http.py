"""The one client through which every remote is called: time-outs, retries, budget, breaker and error translation."""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import anyio
import httpx

from adapters.breaker import CircuitBreaker, Permit
from adapters.exchange import DAILY_QUOTA, delay_named, error_for, is_good, send, write_request
from adapters.limits import Lane, Limiter, OverBudget
from adapters.reply import Reply
from adapters.retry import retry_decision, retrying
from adapters.transport import new_http_client
from layers.errors import CircuitOpen, DependencyError, DependencyUnavailable
from layers.ports import Clock
from layers.withdrawal import unless_withdrawn

__all__ = ["DAILY_QUOTA", "CallEvent", "JsonClient", "Reply", "new_http_client"]

T = TypeVar("T")
Watch = Callable[[], Callable[[bytes], bool]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CallEvent:
    """One attempt, for whoever measures.

    `kind` is `ok`, an error's kind, `cancelled`, or `bug` for an exception of ours. `seconds` is the whole attempt,
    `queued` the part of it spent waiting for the budget. `status` is None when there was no whole answer.
    """

    dependency: str
    lane: Lane
    attempt: int
    kind: str
    status: int | None
    seconds: float
    queued: float


@dataclass(slots=True)
class _Call:
    """One call under way: what is sent, how long it may take, and what the present attempt has come to."""

    request: httpx.Request
    expect: Container[int]
    end: float
    watch: Watch | None = None
    attempt: int = 0
    status: int | None = None
    queued: float = 0.0


class JsonClient:
    """Calls one remote: retry( breaker( budget( HTTP ) ) ), within one time-out for all of it.

    `timeout` (seconds) covers every attempt, the back-off between them and waiting for the budget. `attempts` is how
    often a call may be sent. `max_response_bytes` bounds a decoded body. `retry_after_from` reads a delay in seconds
    from an error reply's body; it may return `DAILY_QUOTA`, which opens the breaker. `propagate` adds trace headers to
    a request's, `observe` is told of every attempt. `clock` is monotonic; `deadline`s are points on it.

    A question that waits for the budget can be taken back, see `layers.withdrawal`.

    Raises the `DependencyError` family only, plus what `read` raises of its own: that is our bug, and no evidence.
    """

    def __init__(  # noqa: PLR0913 - the one client; every knob has its reason above
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
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.name = name
        self._http = http
        self._breaker = breaker
        self._limiter = limiter
        self._timeout = timeout
        self._max_response_bytes = max_response_bytes
        self._attempts = attempts
        self._retry_after_from = retry_after_from
        self._propagate = propagate
        self._observe = observe
        self._lane: Lane = lane
        self._clock = clock
        self._wall = wall
        self._sleep = sleep

    async def call(  # noqa: PLR0913 - all of one request, by name
        self,
        method: str,
        url: str,
        *,
        read: Callable[[Reply], T],
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        expect: Container[int] = (),
        deadline: float | None = None,
        repeatable: bool = True,
        watch: Watch | None = None,
    ) -> T:
        """Send one request and return what `read` makes of the reply; `read` runs inside the breaker.

        A 2xx, and every status in `expect`, is handed to `read`; all else is raised. `deadline` (on the client's
        clock) can only shorten the time-out. A request that is not `repeatable` is sent again only after failures
        that the remote surely never worked on (not connected, 429). `watch` is for streams that a remote may keep open:
        for each attempt it gives a function that is told of each piece of the body and says when enough has come.
        """
        end = self._clock() + self._timeout
        sent = dict(headers or {})
        if self._propagate:
            self._propagate(sent)
        request = write_request(self._http, self._breaker.name, method, url, json, sent)
        call = _Call(request, expect, end if deadline is None else min(end, deadline), watch)
        try:
            return await self._once(call, read)
        except DependencyError as exc:
            if self._attempts <= 1 or retry_decision(exc, repeatable=repeatable) is False:
                raise
            return await self._retry(call, read, exc, repeatable=repeatable)

    def outlook(self, n: int) -> float:
        """Seconds until the remote's rate limit may have let `n` more requests of this lane through."""
        return self._limiter.outlook(self._lane, n)

    def on(self, lane: Lane) -> JsonClient:
        """The same remote, breaker and budget, in another lane."""
        other = copy.copy(self)
        other._lane = lane
        return other

    def guarded_by(self, breaker: CircuitBreaker) -> JsonClient:
        """The same remote and budget, behind another breaker, whose name its errors then carry."""
        other = copy.copy(self)
        other._breaker = breaker
        return other

    # --- attempts ---------------------------------------------------------------------------------------------------

    async def _retry(self, call: _Call, read: Callable[[Reply], T], first: DependencyError, *, repeatable: bool) -> T:
        """tenacity takes over from the first failure; a call that goes well never pays for it."""
        told: DependencyError | None = None
        last = first

        async def attempt() -> T:
            nonlocal told, last
            if told is None:
                told = first
                raise first
            try:
                return await self._once(call, read)
            except CircuitOpen:
                raise
            except DependencyError as exc:
                last = exc
                raise

        policy = retrying(
            attempts=self._attempts, end=call.end, repeatable=repeatable, clock=self._clock, sleep=self._sleep
        )
        try:
            return await policy(attempt)
        except CircuitOpen:  # it opened between two attempts: what really happened says more
            raise last from None

    async def _once(self, call: _Call, read: Callable[[Reply], T]) -> T:
        call.attempt += 1
        call.status, call.queued = None, 0.0
        started = self._clock()
        kind = "bug"
        try:
            result = await self._breaker.guard(lambda permit: self._attempt(call, read, permit))
            kind = "ok"
            return result
        except DependencyError as exc:
            kind = exc.kind
            raise
        except asyncio.CancelledError:
            kind = "cancelled"
            raise
        finally:
            self._tell(call, kind, started)

    async def _attempt(self, call: _Call, read: Callable[[Reply], T], permit: Permit) -> T:
        reply = await self._exchange(call, permit)
        call.status = reply.status
        good = is_good(reply.status, call.expect)
        delay = None
        if not good or reply.status == 429:
            delay = delay_named(reply, self._retry_after_from, self._wall())
        self._limiter.learn(reply.status, reply.headers, None if delay == DAILY_QUOTA else delay)
        if good:
            return read(reply)
        raise error_for(reply, delay, call.request.headers)

    async def _exchange(self, call: _Call, permit: Permit) -> Reply:
        asked, name = self._clock(), self._breaker.name
        if asked >= call.end:
            raise OverBudget(name, "timeout", "its deadline had passed before it could be sent")
        if not self._limiter.take_now(self._lane):
            await unless_withdrawn(name, self._limiter.acquire(self._lane, call.end, permit.confirm))
        left = 0.0
        try:
            now = self._clock()
            call.queued, left = now - asked, call.end - now
            async with asyncio.timeout(left):
                return await send(
                    self._http,
                    call.request,
                    name,
                    expect=call.expect,
                    limit=self._max_response_bytes,
                    done=call.watch() if call.watch else None,
                )
        except TimeoutError:
            # Where our own queue took the larger part of the time, the remote is not to blame.
            error = OverBudget if call.queued > left else DependencyUnavailable
            raise error(name, "timeout", "no whole answer within the time-out") from None
        finally:
            self._limiter.release(self._lane)

    def _tell(self, call: _Call, kind: str, started: float) -> None:
        if self._observe is None:
            return
        seconds = self._clock() - started
        event = CallEvent(self._breaker.name, self._lane, call.attempt, kind, call.status, seconds, call.queued)
        try:
            self._observe(event)
        except Exception:
            log.exception("the observer of calls to %s failed", self.name)
