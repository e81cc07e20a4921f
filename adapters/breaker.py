"""A circuit breaker per dependency: it stops calling what is sick, and asks again with one call at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeVar

from adapters.outcomes import OutcomeWindow
from layers.errors import CircuitOpen, DependencyError, DependencyUnavailable
from layers.ports import Clock

T = TypeVar("T")
BreakerState = Literal["closed", "open", "half_open"]

LONGEST_OPEN = 86_400.0
"""A remote may name a day at most: what is sick is asked again."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of state, for whoever counts them. `failures` of `calls` were in the window when it happened."""

    name: str
    before: BreakerState
    after: BreakerState
    failures: int
    calls: int


@dataclass(frozen=True, slots=True)
class BreakerSnapshot:
    """What `GET /breakers` shows. `failures` of `calls` in the window; times are UTC and None while closed.

    `retry_at` is when the next probe may go out; it lies in the past once the breaker is half-open.
    """

    name: str
    state: BreakerState
    failures: int
    calls: int
    opened_at: datetime | None
    retry_at: datetime | None


class Permit:
    """The right to make one call, given by a breaker in one of its states (a generation)."""

    __slots__ = ("_breaker", "generation", "probe")

    def __init__(self, breaker: CircuitBreaker, generation: int, *, probe: bool) -> None:
        self._breaker = breaker
        self.generation = generation
        self.probe = probe

    def confirm(self) -> None:
        """Ask the breaker again, after waiting. Raises `CircuitOpen` when it would no longer let the call through.

        A probe keeps its permit; a call from an earlier state asks anew, and may become the probe.
        """
        if self.generation != self._breaker.generation:
            fresh = self._breaker.admit()
            self.generation, self.probe = fresh.generation, fresh.probe


class CircuitBreaker:
    """Closed until a share of the calls in a sliding window failed, then open, then half-open with one probe.

    - Opens when at least `minimum_calls` outcomes lie in the last `window` seconds and at least `failure_share` of
      them failed; stays open for `recovery_timeout` seconds. Then one call is the probe, all others get `CircuitOpen`.
    - A failure is a `DependencyError` whose class says `counts`. One that does not count is no outcome; but for a
      probe it shows that the remote answers again and closes the circuit, unless the call was never sent.
    - Cancellation and our own bugs are no evidence; they only give the probe's permit back.
    - A result that arrives after the state has changed belongs to an earlier generation and changes nothing.
    - A used-up daily quota (`detail["quota"] == "daily"`) opens at once, for `quota_timeout` seconds.

    There are no locks: everything happens on one event loop, and nothing here awaits between reading and changing
    the state. For the same reason a breaker belongs to one loop, and N worker processes have N breakers.
    """

    def __init__(  # noqa: PLR0913 - each is one knob, with a safe default
        self,
        name: str,
        *,
        window: float = 60.0,
        minimum_calls: int = 5,
        failure_share: float = 0.5,
        recovery_timeout: float = 30.0,
        quota_timeout: float = 3600.0,
        clock: Clock = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_transition: Callable[[Transition], None] | None = None,
    ) -> None:
        self.name = name
        self.generation = 0
        self._minimum_calls = minimum_calls
        self._failure_share = failure_share
        self._recovery_timeout = recovery_timeout
        self._quota_timeout = quota_timeout
        self._clock = clock
        self._wall = wall
        self._on_transition = on_transition
        self._state: BreakerState = "closed"
        self._outcomes = OutcomeWindow(window)
        self._retry_at = 0.0
        self._opened_at: datetime | None = None
        self._retry_at_wall: datetime | None = None
        self._probing = False

    async def call(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Await `fn` if the circuit lets it through. Raises `CircuitOpen`, or what `fn` raised."""
        return await self.guard(lambda _permit: fn())

    async def guard(self, fn: Callable[[Permit], Awaitable[T]]) -> T:
        """As `call`, for a call that waits before it goes out: it is handed its permit to `confirm` after the wait."""
        permit = self.admit()
        try:
            result = await fn(permit)
        except DependencyError as exc:
            self._failed(permit, exc)
            raise
        except BaseException:  # cancelled, or our own bug: says nothing about the remote's health
            self._give_back(permit)
            raise
        self._succeeded(permit)
        return result

    def admit(self) -> Permit:
        """A permit for one call. Raises `CircuitOpen`. Every permit of a probe must be settled: prefer `guard`."""
        if self._state == "closed":
            return Permit(self, self.generation, probe=False)
        wait = self._retry_at - self._clock()
        if self._state == "open" and wait > 0:
            raise CircuitOpen(self.name, wait)
        if self._probing:
            raise CircuitOpen(self.name)
        if self._state == "open":
            self._move("half_open")
        self._probing = True
        return Permit(self, self.generation, probe=True)

    def state(self) -> BreakerState:
        """`half_open` from the moment a probe would be admitted, though nobody may have asked yet."""
        return "half_open" if self._state == "open" and self._clock() >= self._retry_at else self._state

    def snapshot(self) -> BreakerSnapshot:
        calls, failures = self._outcomes.counts(self._clock())
        return BreakerSnapshot(self.name, self.state(), failures, calls, self._opened_at, self._retry_at_wall)

    def reset(self) -> None:
        """Close and forget, on an operator's word. Calls in flight become late results."""
        self._close()

    def open_for(self, seconds: float) -> None:
        """Open at once, whatever the window says; the next probe goes out after `seconds` (a day at most)."""
        seconds = min(seconds, LONGEST_OPEN)
        now = self._wall()
        self._retry_at = self._clock() + seconds
        self._opened_at, self._retry_at_wall = now, now + timedelta(seconds=seconds)
        self._move("open")

    # --- outcomes ---------------------------------------------------------------------------------------------------

    def _succeeded(self, permit: Permit) -> None:
        if permit.generation != self.generation:
            return
        if permit.probe:
            self._close()
        else:
            self._outcomes.add(self._clock(), failed=False)

    def _failed(self, permit: Permit, exc: DependencyError) -> None:
        if permit.generation != self.generation:
            return
        if exc.detail.get("quota") == "daily":
            self.open_for(max(exc.retry_after or 0.0, self._quota_timeout))
        elif exc.counts:
            self._outcomes.add(self._clock(), failed=True)
            if permit.probe or self._too_many_failed():
                self.open_for(self._recovery_timeout)
        elif _never_sent(exc):
            self._give_back(permit)
        elif permit.probe:
            self._close()

    def _give_back(self, permit: Permit) -> None:
        if permit.probe and permit.generation == self.generation:
            self._probing = False

    def _too_many_failed(self) -> bool:
        calls, failures = self._outcomes.counts(self._clock())
        return calls >= self._minimum_calls and failures >= self._failure_share * calls

    # --- states -----------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        self._opened_at = self._retry_at_wall = None
        self._move("closed")
        self._outcomes.clear()

    def _move(self, after: BreakerState) -> None:
        before, self._state = self._state, after
        self.generation += 1
        self._probing = False
        if before == after or self._on_transition is None:
            return
        calls, failures = self._outcomes.counts(self._clock())
        try:
            self._on_transition(Transition(self.name, before, after, failures, calls))
        except Exception:
            log.exception("the observer of breaker %s failed", self.name)


def _never_sent(exc: DependencyError) -> bool:
    """Not tried, or refused by our own budget: the remote has said nothing."""
    return isinstance(exc, CircuitOpen) or (isinstance(exc, DependencyUnavailable) and not exc.counts)


class BreakerRegistry(Mapping[str, CircuitBreaker]):
    """The breakers by dependency name, fixed when built.

    An unknown name is a `KeyError` that lists the known ones: a breaker made on demand for a mistyped name would
    stay closed for ever. Two breakers of one name are a `ValueError`.
    """

    def __init__(self, breakers: Iterable[CircuitBreaker]) -> None:
        self._breakers: dict[str, CircuitBreaker] = {}
        for breaker in breakers:
            if breaker.name in self._breakers:
                raise ValueError(f"two breakers are named {breaker.name}")
            self._breakers[breaker.name] = breaker

    def __getitem__(self, name: str) -> CircuitBreaker:
        try:
            return self._breakers[name]
        except KeyError:
            raise KeyError(f"no breaker is named {name!r}; known: {', '.join(sorted(self._breakers))}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._breakers)

    def __len__(self) -> int:
        return len(self._breakers)
