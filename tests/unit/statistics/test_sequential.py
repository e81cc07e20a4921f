"""The test that may be watched: valid at any stopping time, and able to decide."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaln

from app.runs.statistics.sequential import EProcess


def log_e_paths(broke_share: float, *, streams: int, pairs: int, seed: int) -> np.ndarray:
    """Log e-values of many streams after each pair, shape (streams, pairs); the class's formula, vectorised."""
    broke = np.cumsum(np.random.default_rng(seed).random((streams, pairs)) < broke_share, axis=1)
    n = np.arange(1, pairs + 1)
    return n * math.log(2.0) + betaln(1 + n - broke, 1 + broke)


def share_decided(paths: np.ndarray, alpha: float) -> float:
    return float((paths.max(axis=1) >= math.log(1 / alpha)).mean())


def test_false_alarms_over_null_streams_watched_after_every_pair_stay_within_the_level() -> None:
    assert share_decided(log_e_paths(0.5, streams=2_000, pairs=5_000, seed=20261130), 0.05) <= 0.05


def test_a_broke_share_of_seven_tenths_is_found_within_two_hundred_pairs() -> None:
    assert share_decided(log_e_paths(0.7, streams=2_000, pairs=200, seed=7), 0.05) >= 0.90


@given(st.lists(st.booleans(), max_size=60))
def test_the_class_walks_the_same_path_as_the_formula(changes: list[bool]) -> None:
    process = EProcess()
    peak = 0.0
    for broke in changes:
        process = process.add(broke=int(broke), corrected=int(not broke))
        peak = max(peak, process.log_e)
    n, k = len(changes), sum(changes)
    assert process.log_e == pytest.approx(n * math.log(2) + betaln(1 + n - k, 1 + k), abs=1e-9)
    assert process.peak == pytest.approx(peak)
    assert 0 < process.p_value <= 1


@given(st.integers(0, 12))
def test_the_e_value_has_mean_one_under_the_null(n: int) -> None:
    mean = sum(math.comb(n, k) * 0.5**n * math.exp(EProcess(n - k, k).log_e) for k in range(n + 1))
    assert mean == pytest.approx(1.0)


def test_a_decision_once_reached_stays() -> None:
    decided = EProcess().add(broke=20)
    assert decided.decided(0.05)
    assert decided.add(corrected=20).decided(0.05)
