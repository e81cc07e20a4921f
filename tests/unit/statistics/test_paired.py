"""Paired comparison: known answers, properties, and the sizes that tell what could have been seen."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from app.runs.statistics.multiple import holm
from app.runs.statistics.paired import (
    PairedCounts,
    mcnemar,
    minimum_detectable_difference,
    paired_difference,
    pairs_needed,
)

counts = st.integers(0, 400)


@pytest.mark.parametrize(
    ("corrected", "broke", "exact"),
    [(20, 26, 0.4614), (8, 22, 0.0161), (1, 7, 0.0703), (6, 12, 0.2379), (1, 2, 1.0), (0, 0, 1.0), (5, 5, 1.0)],
)
def test_the_exact_test_gives_the_known_answers(corrected: int, broke: int, exact: float) -> None:
    assert mcnemar(corrected, broke).exact == pytest.approx(exact, abs=5e-5)


@given(counts, counts)
def test_the_exact_test_is_the_two_sided_binomial_test_at_one_half(corrected: int, broke: int) -> None:
    if corrected + broke == 0:
        return
    expected = binomtest(corrected, corrected + broke, 0.5).pvalue
    assert mcnemar(corrected, broke).exact == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("corrected", "broke", "mid"), [(1, 7, 0.0391), (8, 22, 0.0107), (5, 5, 0.8770), (0, 0, 1.0)])
def test_mid_p_takes_half_of_what_was_observed_off_each_side(corrected: int, broke: int, mid: float) -> None:
    """The first is Fagerland's published example (2013)."""
    assert mcnemar(corrected, broke).mid == pytest.approx(mid, abs=5e-5)


@given(counts, counts)
def test_mid_p_lies_between_zero_and_the_exact_p_and_ignores_the_direction(corrected: int, broke: int) -> None:
    result = mcnemar(corrected, broke)
    assert 0 <= result.mid <= result.exact <= 1
    assert result == mcnemar(broke, corrected)


def test_the_paired_interval_gives_newcombes_published_example() -> None:
    """Newcombe 1998, table II, method 10: 36/12/2/0 of 50 gives 0.20 with 0.0569 to 0.3404."""
    difference, low, high = paired_difference(PairedCounts(36, 12, 2, 0))
    assert (difference, low, high) == pytest.approx((0.20, 0.0569, 0.3404), abs=5e-5)


@given(counts, counts, counts, counts)
def test_the_paired_interval_holds_the_difference_and_turns_with_the_sides(a: int, b: int, c: int, d: int) -> None:
    one = PairedCounts(a, b, c, d)
    if one.n == 0:
        with pytest.raises(ValueError, match="no pairs"):
            paired_difference(one)
        return
    difference, low, high = paired_difference(one)
    assert -1 <= low <= difference + 1e-12
    assert difference - 1e-12 <= high <= 1
    turned = paired_difference(PairedCounts(a, c, b, d))
    assert turned == pytest.approx((-difference, -high, -low), abs=1e-12)


def test_the_detectable_difference_and_the_size_needed_are_each_others_inverse() -> None:
    difference = minimum_detectable_difference(1_000, 0.1)
    assert difference is not None
    needed = pairs_needed(difference, 0.1)
    assert needed is not None
    assert abs(needed - 1_000) <= 1


def test_the_size_needed_is_connors_and_finds_the_difference_in_80_of_100_cases() -> None:
    """312 pairs for 0.05 where a tenth changes: by hand from the formula, and by drawing such tables."""
    assert pairs_needed(0.05, 0.1) == 312
    assert minimum_detectable_difference(312, 0.1) == pytest.approx(0.05, abs=5e-5)
    draws = np.random.default_rng(11).multinomial(312, [0.075, 0.025, 0.9], size=4_000)
    found = np.abs(draws[:, 0] - draws[:, 1]) >= 1.959964 * np.sqrt(draws[:, 0] + draws[:, 1])
    assert found.mean() == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(("n", "share"), [(0, 0.1), (100, 0.0), (4, 0.5)])
def test_too_few_pairs_detect_nothing(n: int, share: float) -> None:
    assert minimum_detectable_difference(n, share) is None


def test_a_difference_larger_than_what_changed_needs_no_size() -> None:
    assert pairs_needed(0.2, 0.1) is None
    assert pairs_needed(0.0, 0.1) is None


def test_holm_gives_the_textbook_answer_in_the_order_given() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))


@given(st.lists(st.floats(0, 1), max_size=30))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(values: list[float]) -> None:
    adjusted = holm(values)
    assert all(before <= after <= 1 for before, after in zip(values, adjusted, strict=True))
    ranked = [after for _, after in sorted(zip(values, adjusted, strict=True))]
    assert ranked == sorted(ranked)


def test_holm_of_one_value_is_the_value() -> None:
    assert holm([0.2]) == (0.2,)
    assert holm([]) == ()
    assert math.isclose(holm([0.5, 0.6])[0], 1.0)
