"""When a run can't go on: its system was never reached, or too much has failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.runs.model import Record, RunFailure

UNREACHABLE: frozenset[str] = frozenset({"refused", "dns", "tls", "timeout", "disconnected", "server_error"})
"""Kinds of failure after which nothing says that the system is there at all."""

FIRST_VERDICT = 100
"""Examples that must be done before the share of failures ends a run early; a smaller run is judged at its end."""


@dataclass
class Standing:
    """What a run has seen so far. `said` is the last failure's own sentence; `throttled`: the system said "later"."""

    n_scored: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    said: str = ""
    throttled: bool = False

    @classmethod
    def of(cls, n_scored: int, failures: Mapping[str, int]) -> Standing:
        """From counts; the sentences are with the records."""
        return cls(n_scored, Counter(failures))

    @property
    def n_failed(self) -> int:
        return self.failures.total()

    @property
    def reached(self) -> bool:
        """Whether anything says that the system is there."""
        return self.n_scored > 0 or self.throttled or not set(self.failures) <= UNREACHABLE

    def add(self, record: Record) -> None:
        if record.error is None:
            self.n_scored += 1
        else:
            self.failures[record.error.kind] += 1
            self.said = record.error.message


@dataclass(frozen=True)
class Limits:
    """`n_total` examples there are; after `unreachable_limit` unreachable ones and no answer a run gives up, and when
    more than `max_failed_share` of what was done has failed."""

    system: str
    n_total: int
    unreachable_limit: int = 20
    max_failed_share: float = 0.5

    def broken(self, seen: Standing, *, waiting: bool = False) -> RunFailure | None:
        """Why the run can't go on; None = it can. `waiting`: the system's circuit is open.

        An open circuit is an outage to sit out, unless the run itself opened it and never had one answer.
        """
        n = seen.n_failed
        if n > 0 and not seen.reached and (waiting or n >= min(self.unreachable_limit, self.n_total)):
            return self._unreachable(seen)
        done = seen.n_scored + n
        if done >= min(FIRST_VERDICT, self.n_total) and n > self.max_failed_share * done:
            return self._too_many(seen, done)
        return None

    def _unreachable(self, seen: Standing) -> RunFailure:
        which = f"the first {seen.n_failed} examples" if seen.n_failed > 1 else "the first example"
        message = f"{self.system} could not be reached: {which} failed ({_kinds(seen)}){_said(seen)}"
        return RunFailure(kind="unreachable", message=message)

    def _too_many(self, seen: Standing, done: int) -> RunFailure:
        message = (
            f"{seen.n_failed} of {done} examples failed ({_kinds(seen)}), more than the tolerated share of "
            f"{self.max_failed_share:g}{_said(seen)}"
        )
        return RunFailure(kind="too_many_failures", message=message)


def _kinds(seen: Standing) -> str:
    return ", ".join(f"{kind}: {n}" for kind, n in seen.failures.most_common(5))


def _said(seen: Standing) -> str:
    return f"; the last one: {seen.said[:300]}" if seen.said else ""
