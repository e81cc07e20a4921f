"""A client, a budget and a breaker for each remote the operator named; nothing for those he did not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import httpx

from adapters.breaker import BreakerRegistry, CircuitBreaker, Transition
from adapters.http import CallEvent, JsonClient, Reply
from adapters.limits import Limiter, LocalLimiter
from adapters.shared_limits import SharedLimiter, States
from app.settings import NetworkSettings

Dial = Callable[[float], JsonClient]
"""A remote's client with a time-out (seconds, retries included)."""


@dataclass(frozen=True)
class Hooks:
    """What telemetry wants to hear of calls, and to add to them."""

    observe: Callable[[CallEvent], None] | None = None
    propagate: Callable[[dict[str, str]], None] | None = None
    on_transition: Callable[[Transition], None] | None = None


@dataclass
class Remotes:
    """Builds clients at start. `registry` is what there is once all were built; nothing is added later.

    With `states` each remote's rate limit is one budget for all processes that share them.
    """

    network: NetworkSettings
    http: httpx.AsyncClient
    hooks: Hooks = field(default_factory=Hooks)
    states: States | None = None
    _breakers: dict[str, CircuitBreaker] = field(default_factory=dict)

    def client(
        self,
        name: str,
        *,
        timeout: float,
        slots: int,
        rate_per_minute: float | None = None,
        retry_after_from: Callable[[Reply], float | None] | None = None,
    ) -> JsonClient:
        """A client of the remote `name`, with a breaker of that name. `timeout` in seconds, retries included."""
        return self.dial(name, slots=slots, rate_per_minute=rate_per_minute, retry_after_from=retry_after_from)(timeout)

    def dial(
        self,
        name: str,
        *,
        slots: int,
        rate_per_minute: float | None = None,
        retry_after_from: Callable[[Reply], float | None] | None = None,
    ) -> Dial:
        """Clients of the remote `name`, one for each time-out that is wanted; breaker and budget are the remote's."""
        breaker, limiter = self.breaker(name), self._limiter(name, slots, rate_per_minute)

        @cache
        def client(timeout: float) -> JsonClient:
            return JsonClient(
                name,
                self.http,
                breaker,
                limiter=limiter,
                timeout=timeout,
                max_response_bytes=self.network.max_response_bytes,
                retry_after_from=retry_after_from,
                propagate=self.hooks.propagate,
                observe=self.hooks.observe,
            )

        return client

    def _limiter(self, name: str, slots: int, rate_per_minute: float | None) -> Limiter:
        share = self.network.evaluate_share
        if self.states is None:
            return LocalLimiter(name, slots=slots, rate_per_minute=rate_per_minute, evaluate_share=share)
        return SharedLimiter(name, self.states, slots=slots, rate_per_minute=rate_per_minute, evaluate_share=share)

    def breaker(self, name: str) -> CircuitBreaker:
        """A new breaker. Raises `ValueError` when there is one of that name already."""
        if name in self._breakers:
            raise ValueError(f"two remotes are called {name}")
        self._breakers[name] = CircuitBreaker(
            name,
            window=self.network.breaker_window,
            minimum_calls=self.network.breaker_minimum_calls,
            failure_share=self.network.breaker_failure_share,
            recovery_timeout=self.network.breaker_recovery,
            on_transition=self.hooks.on_transition,
        )
        return self._breakers[name]

    def registry(self) -> BreakerRegistry:
        """All breakers there are, fixed."""
        return BreakerRegistry(self._breakers.values())
