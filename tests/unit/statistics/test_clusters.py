"""Clustered examples: drawing patterns is drawing clusters, and what a clustered example counts for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runs.statistics import bootstrap
from app.runs.statistics.clusters import (
    effective_size,
    find_clusters,
    resample_clusters,
    resamples_for,
    sum_by_cluster,
    variance_of_mean,
)

observations = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), min_size=1, max_size=60)


@given(observations)
def test_patterns_hold_every_cluster_whatever_the_order(rows: list[tuple[int, int]]) -> None:
    """The multiset of clusters' counts is kept, equal ones once with their number."""
    names, cells = np.array(rows).T
    found = find_clusters(names, cells, 4)
    dense = found.patterns.toarray()
    kept = sorted(tuple(dense[p]) for p, size in enumerate(found.sizes) for _ in range(size))
    expected = sorted(tuple(np.bincount(cells[names == name], minlength=4)) for name in set(names))
    assert kept == expected
    assert len({tuple(row) for row in dense}) == len(dense)


def test_drawing_patterns_spreads_figures_like_drawing_clusters() -> None:
    """Same mean and same spread of accuracy as resampling the clusters one by one."""
    rng = np.random.default_rng(3)
    names = rng.integers(0, 60, size=600)
    cells = np.where(rng.random(600) < 0.3 + 0.5 * (names % 2), 0, 1)
    stacked = np.zeros((60, 2, 2))
    np.add.at(stacked, (names, cells // 2, cells % 2), 1.0)
    one = bootstrap.accuracy(bootstrap.resample(stacked, resamples=4_000, seed=1))
    other = bootstrap.accuracy(resample_clusters(find_clusters(names, cells, 4), 2, resamples=4_000, seed=2))
    assert other.mean() == pytest.approx(one.mean(), abs=0.005)
    assert other.std() == pytest.approx(one.std(), rel=0.08)


def test_many_different_clusters_get_fewer_resamples() -> None:
    few = find_clusters(np.arange(100), np.zeros(100, dtype=np.int64), 4)
    assert resamples_for(few) == bootstrap.RESAMPLES
    size = np.arange(1, 1_001)
    many = find_clusters(np.repeat(size, size), np.zeros(size.sum(), dtype=np.int64), 4)
    assert len(many.sizes) == 1_000
    assert resamples_for(many) <= bootstrap.RESAMPLES


def test_a_cluster_of_copies_counts_once() -> None:
    """Forty clusters of ten equal examples know as much as forty examples, a little less for being few."""
    names = np.repeat(np.arange(40), 10)
    right = np.repeat(np.arange(40) % 4 != 0, 10).astype(np.float64)
    size = effective_size(sum_by_cluster(names, right))
    assert 34 < size < 40


def test_single_examples_count_in_full() -> None:
    rng = np.random.default_rng(5)
    right = (rng.random(5_000) < 0.8).astype(np.float64)
    assert effective_size(sum_by_cluster(np.arange(5_000), right)) == pytest.approx(5_000, rel=0.002)


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_without_variance_a_cluster_is_taken_for_one_example(right: float) -> None:
    sums = sum_by_cluster(np.repeat(np.arange(200), 5), np.full(1_000, right))
    assert effective_size(sums) == pytest.approx(200, rel=0.02)


def test_one_cluster_tells_nothing_of_its_variance() -> None:
    sums = sum_by_cluster(np.zeros(50, dtype=np.int64), np.ones(50))
    assert variance_of_mean(sums) is None
    assert effective_size(sums) == 1.0


@given(observations)
def test_the_effective_size_stays_between_one_and_n(rows: list[tuple[int, int]]) -> None:
    names, cells = np.array(rows).T
    assert 1 <= effective_size(sum_by_cluster(names, (cells == 0).astype(np.float64))) <= len(rows)
