"""Count records as they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from app.runs.model import Progress, Record
from layers.profile import SystemProfile

Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class Tally:
    """What is counted: `scored[expected, predicted]`, `failed[expected, kind]`, and all examples there are.

    `n_total` may exceed both together: the rest has no record yet and counts as unscored.
    """

    n_total: int
    scored: Mapping[Pair, int] = field(default_factory=dict)
    failed: Mapping[Pair, int] = field(default_factory=dict)

    @property
    def n_scored(self) -> int:
        return sum(self.scored.values())

    @property
    def n_failed(self) -> int:
        return sum(self.failed.values())

    def collapsed(self, collapse: Callable[[str], str]) -> Tally:
        """The same counts with every label replaced by what `collapse` makes of it."""
        scored: Counter[Pair] = Counter()
        failed: Counter[Pair] = Counter()
        for (expected, predicted), n in self.scored.items():
            scored[collapse(expected), collapse(predicted)] += n
        for (expected, kind), n in self.failed.items():
            failed[collapse(expected), kind] += n
        return Tally(self.n_total, scored, failed)


class TallyBuilder:
    """Counts of `n_total` examples, a handful of numbers however many there are."""

    def __init__(self, profile: SystemProfile, n_total: int) -> None:
        self._fold = profile.fold
        self._n_total = n_total
        self._scored: Counter[Pair] = Counter()
        self._failed: Counter[Pair] = Counter()
        self._n_scored = 0
        self._n_failed = 0

    def add(self, record: Record) -> None:
        expected = self._fold(record.expected_label)
        if record.scored_label is not None:
            self._scored[expected, record.scored_label] += 1
            self._n_scored += 1
        else:
            self._failed[expected, record.error.kind if record.error else "internal"] += 1
            self._n_failed += 1

    def tally(self) -> Tally:
        return Tally(self._n_total, dict(self._scored), dict(self._failed))

    def progress(self) -> Progress:
        return Progress(
            n_total=self._n_total,
            n_done=self._n_scored + self._n_failed,
            n_scored=self._n_scored,
            n_failed=self._n_failed,
        )
