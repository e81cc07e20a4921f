"""Does a confidence of 0.8 mean right in 80 of 100 cases? Sums that can be added up while records stream by."""

from __future__ import annotations

from dataclasses import dataclass

BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """Predictions whose confidence lies in [low, high), the last bin including 1.

    `confidence` and `accuracy` are means in 0..1; None in an empty bin.
    """

    low: float
    high: float
    n: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class BinSums:
    """What one bin has added up: count, sum of confidences, sum of squared errors, number correct."""

    n: int = 0
    confidence: float = 0.0
    squared_error: float = 0.0
    correct: int = 0

    def add(self, confidence: float, *, correct: bool) -> BinSums:
        """With one more prediction."""
        error = (confidence - float(correct)) ** 2
        return BinSums(
            self.n + 1, self.confidence + confidence, self.squared_error + error, self.correct + int(correct)
        )


def bin_of(confidence: float) -> int:
    """The index of the bin of a confidence in 0..1."""
    return min(BINS - 1, int(confidence * BINS))


def reliability(sums: tuple[BinSums, ...]) -> tuple[Bin, ...]:
    """The bins of a reliability diagram, in order."""
    return tuple(
        Bin(
            low=index / BINS,
            high=(index + 1) / BINS,
            n=one.n,
            confidence=one.confidence / one.n if one.n else None,
            accuracy=one.correct / one.n if one.n else None,
        )
        for index, one in enumerate(sums)
    )


def brier_score(sums: tuple[BinSums, ...]) -> float | None:
    """Mean squared difference between confidence and correctness, 0 best, 1 worst (Brier, Mon. Weather Rev. 78, 1950).

    Of the predicted label only; None without predictions.
    """
    n = sum(one.n for one in sums)
    return sum(one.squared_error for one in sums) / n if n else None


def expected_calibration_error(sums: tuple[BinSums, ...]) -> float | None:
    """Mean gap between confidence and accuracy over equal-width bins, weighted by their size, in 0..1.

    Naeini, Cooper and Hauskrecht, AAAI 2015. It depends on the binning and is biased upwards for small n: shown beside
    the bins, never alone. None without predictions.
    """
    n = sum(one.n for one in sums)
    return sum(abs(one.confidence - one.correct) for one in sums) / n if n else None
