"""How many requests a window allows, and when the next one may go: the arithmetic of a rate limit."""

from __future__ import annotations

import math
from collections import deque

MARGIN = 0.5
"""Seconds added to the window: two requests may reach the remote closer together than they left here."""
BACK_DOWN = 0.8
"""What a 429 leaves of the rate."""
RECOVERY_STEP = 1.1
"""What every quiet minute gives back (one request a minute at least)."""


class Window:
    """When the requests of the last `seconds` were sent, oldest first."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._times: deque[float] = deque()

    def __len__(self) -> int:
        return len(self._times)

    def add(self, now: float) -> None:
        self._times.append(now)

    def forget_old(self, now: float) -> None:
        while self._times and self._times[0] + self._seconds <= now:
            self._times.popleft()

    def free_at(self, limit: int, ahead: int, now: float) -> float:
        """When one more request keeps every window within `limit`, after `ahead` others went as early as they may."""
        self.forget_old(now)
        rounds, ahead = divmod(ahead, limit)
        index = len(self._times) + ahead - limit
        first = now if index < 0 else self._times[index] + self._seconds
        return first + rounds * self._seconds


class AdaptiveRate:
    """The number of requests a window allows: what was configured, what the remote tells, what 429s have taught."""

    def __init__(self, per_minute: float | None) -> None:
        self._configured = None if per_minute is None else max(1, math.floor(per_minute))
        self.window = 60.0 / min(1.0, per_minute or 1.0) + MARGIN
        self._told: int | None = None
        self._learned: int | None = None
        self._learned_at = 0.0

    def remembered(self) -> tuple[int | None, int | None, float]:
        """What the remote told and what 429s taught, and when, for `restore`."""
        return self._told, self._learned, self._learned_at

    def restore(self, told: int | None, learned: int | None, learned_at: float) -> None:
        self._told, self._learned, self._learned_at = told, learned, learned_at

    def limit(self, now: float) -> int | None:
        ceiling = self._ceiling()
        if ceiling is None or self._learned is None:
            return ceiling
        minutes = min(int((now - self._learned_at) // 60), 1000)
        grown = int(max(self._learned + minutes, self._learned * RECOVERY_STEP**minutes))
        if grown < ceiling:
            return grown
        self._learned = None
        return ceiling

    def told(self, limit: int | None, *, throttled: bool) -> None:
        """Without a configured rate only a 429 makes a header believable: its window need not be a minute."""
        if limit and (throttled or self._ceiling() is not None):
            self._told = limit

    def back_down(self, now: float) -> None:
        """A 429 came: allow a fifth less. Those of one burst (a second) are one lesson."""
        limit = self.limit(now)
        if limit is not None and (self._learned is None or now - self._learned_at >= 1.0):
            self._learned, self._learned_at = max(1, int(limit * BACK_DOWN)), now

    def _ceiling(self) -> int | None:
        if self._told is None or self._configured is None:
            return self._told if self._configured is None else self._configured
        return min(self._told, self._configured)
