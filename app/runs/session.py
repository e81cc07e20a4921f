"""What one process remembers of a run while it works on it; all of it can be had again from the store."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio

from app.errors import Unprocessable
from app.runs.adaptive import Adaptive
from app.runs.asking import Asker
from app.runs.executor import Execution, Keep, Kept
from app.runs.gate import Gate
from app.runs.limits import Limits, Standing
from app.runs.observe import UnderWay
from app.runs.store import StoredRun
from layers.ports import Clock, System, SystemUnderTest

Outlook: TypeAlias = Callable[[int], float]

RATE_WINDOW = 30.0
"""Seconds over which the rate is measured: long enough for a throttled system, short enough to follow a change."""


SHARE_BEHIND = 4
"""One answer for so many slots may be on its way to the disk while its slot asks on. Waiting for each commit would cost
a tenth of the throughput at 50 ms; a killed process may have to ask these few again, beside those it was asking."""


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

    def __init__(
        self, run: StoredRun, system: SystemUnderTest, standing: Standing, most: int, outlook: Outlook | None = None
    ) -> None:
        config = run.config
        self.run = run
        self.gate = Gate()
        self.meter = Meter()
        self.standing = standing
        self._active = 0
        self._idle = anyio.Event()
        # A system that waits for nobody is asked one after the other: more at once would only be more tasks.
        self.immediate = immediate = bool(getattr(system, "immediate", False))
        self.concurrency = most if immediate else min(config.concurrency, most)
        asker = Asker(system, config.profile, self.gate, standing, attempt=run.attempts)
        behind = self.concurrency if immediate else self.concurrency // SHARE_BEHIND
        adaptive = None if immediate else Adaptive(self.concurrency, outlook)
        self.execution = Execution(asker, limits_of(run), 1 if immediate else self.concurrency, behind, adaptive)
        self._mark(0)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count one chunk as under way."""
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1
            if self._active == 0:
                self._idle.set()
                self._idle = anyio.Event()

    def under_way(self) -> UnderWay:
        """How far it is."""
        done = self.standing.n_scored + self.standing.n_failed
        return UnderWay(self.run.system, self.run.n_total, done, self.meter.rate())

    async def drained(self) -> None:
        """Wait until no chunk is under way."""
        if self._active:
            await self._idle.wait()

    def keeping(self, keep: Keep) -> Keep:
        """`keep`, with a mark for the rate whenever something was kept."""

        async def kept(batch: Kept) -> Kept:
            stored = await keep(batch)
            self._mark(len(stored))
            return stored

        return kept

    def _mark(self, more: int) -> None:
        self.meter.mark(self.standing.n_scored + self.standing.n_failed + more)


def limits_of(run: StoredRun) -> Limits:
    """When this run gives up, as it was configured."""
    config = run.config
    return Limits(config.system, run.n_total, config.unreachable_limit, config.max_failed_share)


class Sessions:
    """The sessions of this process, one for each run."""

    def __init__(
        self,
        systems: Mapping[str, System],
        standing: Callable[[StoredRun], Awaitable[Standing]],
        most: int,
    ) -> None:
        self._systems = systems
        self._standing = standing
        self._most = most
        self._sessions: dict[str, Session] = {}
        self._lock = anyio.Lock()

    def all(self) -> list[Session]:
        """Those there are at the moment."""
        return list(self._sessions.copy().values())

    def get(self, run_id: str) -> Session | None:
        return self._sessions.get(run_id)

    def stop(self) -> None:
        """Ask nobody any more, in any run."""
        for session in self._sessions.values():
            session.gate.stop()

    def drop(self, session: Session) -> None:
        """Forget it, unless another has taken its place."""
        if self._sessions.get(session.run.run_id) is session:
            del self._sessions[session.run.run_id]

    async def of(self, run: StoredRun) -> Session:
        """The session of the run's present workflow.

        After a pause a new workflow may begin while the old one's last answers are on their way: those are waited for.
        Raises `Unprocessable` when the system can no longer be asked.
        """
        while (session := self.get(run.run_id)) and session.run.workflow_id != run.workflow_id:
            await session.drained()
            self.drop(session)
        async with self._lock:
            session = self.get(run.run_id)
            if session is None:
                system = self._open(run)
                outlook = self._systems[run.system].outlook
                session = Session(run, system, await self._standing(run), self._most, outlook)
                self._sessions[run.run_id] = session
            return session

    def _open(self, run: StoredRun) -> SystemUnderTest:
        system = self._systems.get(run.system)
        if system is None or system.open is None:
            why = system.why_closed if system else None
            raise Unprocessable(why or f"the system {run.system} can no longer be asked")
        pipeline = system.pipelines.get(run.config.options.pipeline)
        if run.config.plan != (pipeline.plan if pipeline else None):
            raise Unprocessable(f"the pipeline of {run.system} is not the one that this run was accepted with")
        return (pipeline.open if pipeline else system.open)(run.config.options.driver)
