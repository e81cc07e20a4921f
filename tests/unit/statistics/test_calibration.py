"""Calibration sums: they add up to the textbook figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runs.statistics.calibration import (
    BINS,
    BinSums,
    bin_of,
    brier_score,
    expected_calibration_error,
    reliability,
)


def sums_of(rows: list[tuple[float, bool]]) -> tuple[BinSums, ...]:
    bins = [BinSums()] * BINS
    for confidence, correct in rows:
        index = bin_of(confidence)
        bins[index] = bins[index].add(confidence, correct=correct)
    return tuple(bins)


ROWS = [(0.9, True), (0.95, False), (0.2, False), (1.0, True)]


def test_the_brier_score_is_the_mean_squared_error() -> None:
    assert brier_score(sums_of(ROWS)) == pytest.approx((0.01 + 0.9025 + 0.04 + 0.0) / 4)


def test_the_calibration_error_weighs_each_bins_gap_by_its_size() -> None:
    gap_high = abs((0.9 + 0.95 + 1.0) / 3 - 2 / 3)
    assert expected_calibration_error(sums_of(ROWS)) == pytest.approx(gap_high * 3 / 4 + 0.2 / 4)


def test_a_confidence_of_one_falls_into_the_last_bin_and_empty_bins_say_so() -> None:
    bins = reliability(sums_of(ROWS))
    assert bins[-1].n == 3
    assert bins[0].accuracy is None


def test_without_predictions_there_is_no_score() -> None:
    assert brier_score(sums_of([])) is None
    assert expected_calibration_error(sums_of([])) is None


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1))
def test_scores_stay_in_range(rows: list[tuple[float, bool]]) -> None:
    sums = sums_of(rows)
    assert 0 <= (brier_score(sums) or 0) <= 1
    assert 0 <= (expected_calibration_error(sums) or 0) <= 1 + 1e-9
    assert sum(one.n for one in reliability(sums)) == len(rows)
