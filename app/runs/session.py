"""What one process remembers of a run while it works on it; all of it can be had again from the store."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from app.runs.asking import Asker
from app.runs.gate import Gate
from app.runs.limits import Limits, Standing
from app.runs.store import StoredRun
from layers.ports import Clock, SystemUnderTest

RATE_WINDOW = 30.0
"""Seconds over which the rate is measured: long enough for a throttled system, short enough to follow a change."""


@dataclass
class Meter:
    """How many examples a second were finished lately."""

    clock: Clock = time.monotonic
    _marks: deque[tuple[float, int]] = field(default_factory=deque)

    def mark(self, done: int) -> None:
        """Note that `done` examples are through by now."""
        now = self.clock()
        # One mark a second is enough to know the rate; the first and the last are always kept.
        if len(self._marks) >= 2 and now - self._marks[-2][0] < 1.0:
            self._marks.pop()
        self._marks.append((now, done))
        while len(self._marks) > 2 and now - self._marks[1][0] > RATE_WINDOW:
            self._marks.popleft()

    def rate(self) -> float | None:
        """Examples per second; None = not known yet."""
        if len(self._marks) < 2:
            return None
        (begin, first), (_, last) = self._marks[0], self._marks[-1]
        elapsed = self.clock() - begin
        return (last - first) / elapsed if elapsed > 0 and last > first else None


class Session:
    """One run being worked on here: its system, its gate, its standing."""

    def __init__(self, run: StoredRun, system: SystemUnderTest, standing: Standing) -> None:
        config = run.config
        self.run = run
        self.gate = Gate()
        self.meter = Meter()
        self.meter.mark(standing.n_scored + standing.n_failed)
        self.asker = Asker(system, config.profile, self.gate, standing, attempt=run.attempts)
        self.limits = Limits(config.system, run.n_total, config.unreachable_limit, config.max_failed_share)

    @property
    def standing(self) -> Standing:
        return self.asker.standing

    @property
    def immediate(self) -> bool:
        """Whether the system answers without waiting for anybody, so that no limit on concurrency is worth having."""
        return bool(getattr(self.asker.system, "immediate", False))
