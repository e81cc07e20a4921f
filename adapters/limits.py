"""The budget of one remote: how many calls may be under way, how many a minute, and a share kept for `/evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from layers.errors import DependencyUnavailable

Lane = Literal["evaluate", "run"]


class OverBudget(DependencyUnavailable):
    """Our own budget refused the call, so it was never sent and says nothing about the remote's health."""

    counts = False


@dataclass(frozen=True, slots=True)
class LimiterSnapshot:
    """`limit` is the rate in force (requests a minute, None = unlimited), `used` what was sent in the last minute."""

    slots: int
    in_use: int
    waiting: int
    limit: int | None
    used: int
    paused_for: float


class Limiter(Protocol):
    """A remote's budget. One process keeps it in memory; many may keep it in their store behind the same shape."""

    async def acquire(self, lane: Lane, deadline: float | None, confirm: Callable[[], None]) -> None:
        """Wait for a slot and a turn. `confirm` is called after a wait, before anything is spent; it may raise.

        Raises `OverBudget` when the turn would come after `deadline` (seconds on the limiter's clock).
        """

    def release(self, lane: Lane) -> None:
        """Give the slot back."""

    def learn(self, status: int, headers: Mapping[str, str], retry_after: float | None) -> None:
        """What the remote said about its own limits."""
