"""What asking the same again says: how often a system agrees with itself, and how often it is right every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from app.runs.figures import RepeatFigures, Repeats
from app.runs.metrics import wilson


@dataclass
class RepeatSums:
    """Adds up examples that were each asked `k` times. All that is kept is a handful of sums."""

    k: int
    n: int = 0
    complete: int = 0
    all_right: int = 0
    any_right: int = 0
    any_right_complete: int = 0
    answered: int = 0
    agreement: float = 0.0
    within: float = 0.0
    noise: float = 0.0
    shares: float = 0.0
    squares: float = 0.0

    def add(self, expected: str, scored: Sequence[str | None]) -> None:
        """One example that has records: its labels, None = that repeat failed."""
        labels = [label for label in scored if label is not None]
        right, m = labels.count(expected), len(labels)
        self.n += 1
        self.all_right += right == self.k
        self.any_right += right > 0
        if m == self.k:
            self.complete += 1
            self.any_right_complete += right > 0
        if m < 2:
            return
        share = right / m
        pairs = sum(count * (count - 1) for count in Counter(labels).values())
        self.answered += 1
        self.agreement += pairs / (m * (m - 1))
        self.within += share * (1 - share) * m / (m - 1)
        self.noise += share * (1 - share) / (m - 1)
        self.shares += share
        self.squares += share * share

    def figures(self, binary: RepeatSums | None = None) -> Repeats | None:
        """None when no example has a record; `binary` are the sums of the other reading of the same answers."""
        if not self.n:
            return None
        other = binary.reading() if binary else None
        return Repeats(**dict(self.reading()), k=self.k, n_examples=self.n, binary=other)

    def reading(self) -> RepeatFigures:
        """The figures of one example or more. What needs two answers to one question is null when none has them.

        The variance of being right, p (1 - p), is split as in a one-way analysis of variance with random effects:
        within an example, unbiased; between examples, what is left of the shares' variance, at least 0.
        """
        m = self.answered
        between = None
        if m > 1:
            spread = max(0.0, self.squares - self.shares**2 / m) / (m - 1)
            between = max(0.0, spread - self.noise / m)
        return RepeatFigures(
            n_complete=self.complete,
            pass_all=self.all_right / self.complete if self.complete else None,
            pass_all_interval=wilson(self.all_right, self.complete),
            pass_all_worst=self.all_right / self.n,
            pass_any=self.any_right_complete / self.complete if self.complete else None,
            pass_any_interval=wilson(self.any_right_complete, self.complete),
            pass_any_worst=self.any_right / self.n,
            n_agreement=m,
            agreement=self.agreement / m if m else None,
            variance_within=self.within / m if m else None,
            variance_between=between,
        )
