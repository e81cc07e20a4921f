"""What telemetry gets to see of runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from app.runs.model import Record
from app.runs.store import StoredRun
from app.runs.tally import Tally


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A run that this process works on: `rate` in examples per second, None = not known yet."""

    system: str
    n_total: int
    n_done: int
    rate: float | None


class RunObserver(Protocol):
    """Sees what becomes of runs in this process. Never raises, and never waits."""

    def step(self, run_id: str) -> AbstractContextManager[object]:
        """What is done in the block is work on this run."""
        ...

    def recorded(self, system: str, record: Record) -> None:
        """An example's record was stored."""

    def ended(self, run: StoredRun, tally: Tally) -> None:
        """The run has come to its end, `run.status`, with these counts."""

    def follow(self, look: Callable[[], list[UnderWay]]) -> None:
        """`look` says which runs are under way; it may be called from any thread."""


class _Unwatched:
    def step(self, run_id: str) -> AbstractContextManager[object]:
        return nullcontext()

    def recorded(self, system: str, record: Record) -> None:
        pass

    def ended(self, run: StoredRun, tally: Tally) -> None:
        pass

    def follow(self, look: Callable[[], list[UnderWay]]) -> None:
        pass


UNWATCHED = _Unwatched()
"""An observer that looks away."""
