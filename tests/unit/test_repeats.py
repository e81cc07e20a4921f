"""Asking again: agreement, being right every time, and where the variance comes from."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runs.repeats import RepeatSums

ROWS = st.lists(st.lists(st.sampled_from(["a", "b", None]), min_size=3, max_size=3), max_size=30)


def sums_of(rows, k=3) -> RepeatSums:
    sums = RepeatSums(k)
    for row in rows:
        sums.add("a", row)
    return sums


def test_figures_of_a_small_run_counted_by_hand() -> None:
    """aaa, aab, bbb: right every time 1 of 3, once 2 of 3; pairs agree 1, 1/3, 1."""
    made = sums_of([["a", "a", "a"], ["a", "a", "b"], ["b", "b", "b"]]).figures()
    assert (made.k, made.n_examples, made.pass_all, made.pass_any) == (3, 3, pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert made.agreement == pytest.approx((1 + 1 / 3 + 1) / 3)
    assert made.variance_within == pytest.approx((0 + 1 / 3 + 0) / 3)


def test_a_failed_repeat_is_not_wrong_but_unknown() -> None:
    """As in accuracy. The worst case counts it as wrong, over all examples."""
    made = sums_of([["a", "a", None]]).figures()
    assert (made.n_complete, made.pass_all, made.pass_all_interval, made.pass_any) == (0, None, None, None)
    assert (made.pass_all_worst, made.pass_any_worst, made.agreement, made.n_agreement) == (0.0, 1.0, 1.0, 1)
    more = sums_of([["a", "a", None], ["b", None, None], ["a", "a", "a"], ["b", "a", "a"]]).figures()
    assert (more.n_complete, more.pass_all, more.pass_any) == (2, 0.5, 1.0)
    assert (more.pass_all_worst, more.pass_any_worst) == (0.25, 0.75)


def test_one_answer_agrees_with_nothing() -> None:
    made = sums_of([["a", None, None]]).figures()
    assert (made.agreement, made.variance_within, made.variance_between) == (None, None, None)
    assert sums_of([]).figures() is None


@given(ROWS.filter(bool))
def test_figures_stay_in_their_ranges(rows) -> None:
    made = sums_of(rows).figures()
    assert 0 <= made.pass_all_worst <= made.pass_any_worst <= 1
    assert made.pass_all_worst <= made.n_complete / made.n_examples
    if made.n_complete:
        assert 0 <= made.pass_all <= made.pass_any <= 1
        assert made.pass_all_interval.low <= made.pass_all <= made.pass_all_interval.high
        assert made.pass_any_interval.low <= made.pass_any <= made.pass_any_interval.high
    for value in (made.agreement, made.variance_within, made.variance_between):
        assert value is None or -1e-12 <= value <= 1


def test_the_variance_is_told_apart_where_it_comes_from() -> None:
    """Examples half of which are always right, and answers that are right by chance alone."""
    rng = random.Random(2)
    steady = sums_of([["ab"[n % 2]] * 3 for n in range(400)]).figures()
    assert (steady.variance_within, steady.variance_between) == (0.0, pytest.approx(0.25, abs=0.001))
    noisy = sums_of([[rng.choice("ab") for _ in range(3)] for _ in range(4_000)]).figures()
    assert noisy.variance_within == pytest.approx(0.25, abs=0.01)
    assert noisy.variance_between == pytest.approx(0.0, abs=0.01)
