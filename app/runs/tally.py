"""Count records as they come."""

from __future__ import annotations

from collections import Counter

from app.runs.metrics import Pair, Tally
from app.runs.model import Progress, Record
from layers.profile import SystemProfile


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
