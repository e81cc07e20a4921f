"""How many questions a system is asked at once: more while it bears them, fewer when it does not."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from layers.ports import Clock

FIRST = 16
"""Questions at once to begin with; doubled with each round until the system first objects."""

ROUND = 8
"""Answers that are looked at together, at least: fewer would be led by chance."""

SLACK_MS = 50.0
"""Added latency that may well be this process's own."""

TOLERATED = 2.0
"""How many times as long as at its best an answer may take on average before the system counts as burdened."""

BACK_OFF = 0.7
"""What is left of the number when the system is burdened; half of it after a throttle."""

FAR = 10_000
"""Questions over which a rate limit is looked at: its bursts don't count."""

HEADROOM = 2.0
"""How many times as many as a rate limit can use are asked at once."""


@dataclass
class Adaptive:
    """Additive increase, multiplicative decrease (Chiu and Jain, 1989), with a doubling start.

    `cap` is the operator's. `outlook(n)` says when the rate limit will have let n more questions through: more at once
    than it can use would only wait. A system that stays slow although it is asked less is slow by itself: that is its
    new measure, and the number grows again. `changed` is told of each new number.
    """

    cap: int
    outlook: Callable[[int], float] | None = None
    changed: Callable[[int], None] = lambda _: None
    clock: Clock = time.monotonic
    limit: int = field(init=False)
    _starting: bool = field(init=False, default=True)
    _n: int = field(init=False, default=0)
    _total_ms: float = field(init=False, default=0.0)
    _best_ms: float = field(init=False, default=math.inf)
    _burdened_ms: float | None = field(init=False, default=None)
    _throttled_at: float = field(init=False, default=-math.inf)

    def __post_init__(self) -> None:
        self.limit = min(self.cap, FIRST)

    def answered(self, elapsed_ms: float) -> None:
        """An answer came after so long, its waiting for a turn included."""
        self._n += 1
        self._total_ms += elapsed_ms
        if self._n >= max(ROUND, self.limit):
            mean, self._n, self._total_ms = self._total_ms / self._n, 0, 0.0
            self._look(mean)

    def throttled(self) -> None:
        """The system said "later", or can't be reached. A burst of it within a second is one lesson."""
        now = self.clock()
        if now - self._throttled_at >= 1.0:
            self._throttled_at, self._starting = now, False
            self._n, self._total_ms = 0, 0.0
            self._set(self.limit * 0.5)

    def _look(self, mean: float) -> None:
        if self._burdened_ms is not None and mean > 0.9 * self._burdened_ms:
            self._best_ms = mean  # asking less did not help
        self._best_ms = min(self._best_ms, mean)
        if mean > TOLERATED * self._best_ms + SLACK_MS:
            self._burdened_ms, self._starting = mean, False
            self._set(self.limit * BACK_OFF)
        else:
            self._burdened_ms = None
            self._set(min(self._usable(mean), self.limit * 2 if self._starting else self.limit + 1))

    def _usable(self, mean_ms: float) -> float:
        """By Little's law: what the rate limit lets through in the time of an answer, and some more."""
        wait = self.outlook(FAR) if self.outlook is not None else 0.0
        return math.inf if wait <= 0 else HEADROOM * (mean_ms / 1000) * FAR / wait

    def _set(self, wanted: float) -> None:
        limit = max(1, int(min(self.cap, wanted)))
        if limit != self.limit:
            self.limit = limit
            self.changed(limit)
