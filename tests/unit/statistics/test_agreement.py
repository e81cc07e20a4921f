"""Agreement and resampling, against independent counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from app.runs.statistics import bootstrap
from app.runs.statistics.agreement import Undefined, balanced_accuracy, cohen_kappa, matthews_correlation

MATRIX = np.array([[20.0, 5.0], [10.0, 15.0]])
matrices = arrays(np.int64, st.integers(2, 4).map(lambda k: (k, k)), elements=st.integers(0, 30)).map(
    lambda m: m.astype(np.float64)
)


def test_kappa_gives_the_textbook_answer() -> None:
    """20 / 5 / 10 / 15: observed 0.7, by chance 0.5."""
    assert cohen_kappa(MATRIX) == pytest.approx(0.4)


def test_matthews_of_two_labels_is_the_phi_coefficient() -> None:
    phi = (20 * 15 - 5 * 10) / np.sqrt(25 * 25 * 30 * 20)
    assert matthews_correlation(MATRIX) == pytest.approx(phi)


def test_balanced_accuracy_is_the_mean_recall_of_labels_that_occur() -> None:
    assert balanced_accuracy(MATRIX) == pytest.approx((20 / 25 + 15 / 25) / 2)
    assert balanced_accuracy(np.array([[3.0, 1.0], [0.0, 0.0]])) == pytest.approx(0.75)


@pytest.mark.parametrize("figure", [cohen_kappa, matthews_correlation])
@pytest.mark.parametrize(
    ("matrix", "reason"),
    [
        (np.zeros((2, 2)), "no example was scored"),
        (np.array([[3.0, 1.0], [0.0, 0.0]]), "every example expects the same label"),
        (np.array([[3.0, 0.0], [2.0, 0.0]]), "every prediction is the same label"),
    ],
)
def test_a_rater_with_one_label_leaves_agreement_undefined_with_the_reason(figure, matrix, reason) -> None:
    with pytest.raises(Undefined, match=reason):
        figure(matrix)


@given(matrices)
def test_agreement_stays_in_range_and_a_perfect_rater_gets_one(matrix: np.ndarray) -> None:
    for figure in (cohen_kappa, matthews_correlation):
        try:
            assert -1 - 1e-9 <= figure(matrix) <= 1 + 1e-9
        except Undefined:
            continue
    perfect = np.diag(np.arange(1.0, 4.0))
    assert cohen_kappa(perfect) == matthews_correlation(perfect) == balanced_accuracy(perfect) == pytest.approx(1.0)


def test_resampling_is_repeatable_and_keeps_the_number_of_clusters() -> None:
    clusters = np.zeros((6, 2, 2))
    clusters[:3, 0, 0] = 1
    clusters[3:, 1, 0] = 1
    draws = bootstrap.resample(clusters, resamples=200, seed=3)
    assert draws.shape == (200, 2, 2)
    assert (draws.sum(axis=(1, 2)) == 6).all()
    assert (draws == bootstrap.resample(clusters, resamples=200, seed=3)).all()


def test_examples_that_move_together_widen_the_interval() -> None:
    """Ten clusters of twenty equal examples carry the information of ten examples, not of two hundred."""
    clusters = np.zeros((10, 2, 2))
    clusters[:7, 0, 0] = 20
    clusters[7:, 0, 1] = 20
    clustered = bootstrap.percentile_interval(bootstrap.resample(clusters), bootstrap.f1_of(0))
    naive = bootstrap.percentile_interval(bootstrap.resample_cells(clusters.sum(axis=0)), bootstrap.f1_of(0))
    assert clustered is not None
    assert naive is not None
    assert clustered[1] - clustered[0] > 2 * (naive[1] - naive[0])


def test_an_interval_of_a_figure_that_hardly_ever_exists_is_none() -> None:
    draws = np.zeros((100, 2, 2))
    draws[:, 0, 0] = 5
    assert bootstrap.percentile_interval(draws, bootstrap.kappa) is None
    assert bootstrap.percentile_interval(draws, bootstrap.macro_f1) == (1.0, 1.0)
