"""Shares: the interval, and how many trials would tell it from a threshold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runs.statistics.proportion import trials_needed, wilson, wilson_of_share


@given(st.floats(0.02, 0.98), st.floats(0.02, 0.98), st.sampled_from([0.9, 0.95, 0.99]))
def test_the_trials_needed_are_the_fewest_that_leave_the_threshold_out(
    share: float, threshold: float, level: float
) -> None:
    """At that n the interval lies on one side of the threshold, at one trial less it does not."""
    if abs(share - threshold) < 1e-3:
        return
    n = trials_needed(share, threshold, level=level)
    assert n is not None

    def apart(size: int) -> bool:
        low, high = wilson_of_share(share, size, level=level)
        return low >= threshold - 1e-9 or high <= threshold + 1e-9

    assert apart(n)
    assert n <= 2 or not apart(n - 2)


def test_a_share_at_the_threshold_is_never_told_apart() -> None:
    assert trials_needed(0.9, 0.9) is None


def test_a_count_that_is_no_proportion_is_refused() -> None:
    for successes, n in ((0, 0), (3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="not a proportion"):
            wilson(successes, n)
