"""How many of the calls of the last while failed: the memory of a circuit breaker."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

SLICES = 60
"""Outcomes closer together than this part of the window are kept as one entry: memory stays flat under load."""


@dataclass(slots=True)
class _Slice:
    start: float
    calls: int = 0
    failures: int = 0


class OutcomeWindow:
    """Outcomes of the last `seconds`, forgotten a slice (a sixtieth of the window) at a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._slices: deque[_Slice] = deque()
        self._calls = self._failures = 0

    def __len__(self) -> int:
        """Entries kept."""
        return len(self._slices)

    def add(self, now: float, *, failed: bool) -> None:
        self._forget_old(now)
        if not self._slices or now - self._slices[-1].start >= self._seconds / SLICES:
            self._slices.append(_Slice(now))
        last = self._slices[-1]
        last.calls += 1
        last.failures += failed
        self._calls += 1
        self._failures += failed

    def counts(self, now: float) -> tuple[int, int]:
        """Calls, and how many of them failed."""
        self._forget_old(now)
        return self._calls, self._failures

    def clear(self) -> None:
        self._slices.clear()
        self._calls = self._failures = 0

    def _forget_old(self, now: float) -> None:
        while self._slices and self._slices[0].start <= now - self._seconds:
            old = self._slices.popleft()
            self._calls -= old.calls
            self._failures -= old.failures
