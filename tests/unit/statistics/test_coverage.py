"""Every interval method held to how often it really holds the truth, dips included."""

import numpy as np
import pytest

from app.runs.statistics.bootstrap import percentiles
from tests.bench import coverage
from tests.bench.coverage import (
    DOCUMENT,
    FIGURES,
    GROUPS,
    PAIRS,
    SHARES,
    SIZES,
    bootstrap_coverage,
    cluster_coverage,
    grouped_difference_coverage,
    paired_coverage,
    paired_table,
    wilson_coverage,
    wilson_dip,
    wilson_table,
)


def floor_of(n: int) -> float:
    return 0.90 if n < 200 else 0.92


@pytest.mark.parametrize("n", SIZES)
def test_wilson_covers_what_it_is_known_to_cover_on_the_grid(n: int) -> None:
    """Exact: every outcome is added up. No point of the grid lies below the documented dips."""
    cover = [wilson_coverage(n, p) for p in SHARES]
    assert min(cover) >= floor_of(n)


@pytest.mark.parametrize("n", SIZES)
def test_wilson_dips_where_hardly_a_success_is_seen_and_no_deeper_than_documented(n: int) -> None:
    """Between 0.838 and 0.85 for every n, near p = 0.18 / n."""
    dip, where = wilson_dip(n)
    assert 0.838 <= dip < 0.85
    assert 0.16 < n * where < 0.19


def test_wilson_covers_its_level_on_average() -> None:
    """Over the shares between 0.05 and 0.5 it is neither too narrow nor too wide."""
    for n in SIZES:
        mean = float(np.mean([wilson_coverage(n, p) for p in np.linspace(0.05, 0.5, 46)]))
        assert mean == pytest.approx(0.95, abs=0.012)


def test_wilson_mirrors_shares_above_one_half() -> None:
    for p in SHARES:
        assert wilson_coverage(50, p) == pytest.approx(wilson_coverage(50, 1 - p), abs=1e-9)


@pytest.mark.parametrize("pairs", PAIRS, ids=lambda pairs: pairs.name)
@pytest.mark.parametrize("n", [20, 50])
def test_the_paired_interval_never_falls_short(n: int, pairs: coverage.Pairs) -> None:
    """Exact: over every table of n pairs."""
    assert paired_coverage(n, pairs) >= 0.945


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_the_bootstrap_covers_from_two_hundred_examples_on(figure: coverage.Figure) -> None:
    """400 simulated runs: a standard error of 0.011, so the tolerance of 0.03 has three of them on top."""
    cover = bootstrap_coverage(figure, 200, runs=400, resamples=500, seed=5)
    assert cover == pytest.approx(0.95, abs=0.03 + 0.03)


def test_a_figure_of_a_rare_label_is_too_narrow_with_few_examples() -> None:
    """The dip that the document warns of is there: if this fails, the warning can go."""
    rare = next(figure for figure in FIGURES if figure.name == "Matthews, label of 10 %")
    assert bootstrap_coverage(rare, 50, runs=400, resamples=500, seed=5) < 0.92


@pytest.mark.parametrize("groups", GROUPS[1:3], ids=lambda groups: groups.name)
def test_grouped_examples_are_covered_only_when_groups_are_respected(groups: coverage.Groups) -> None:
    """Blind to groups, Wilson falls far short; at the effective size it holds."""
    cover = cluster_coverage(groups, runs=200, resamples=200, seed=3)
    assert cover.blind < 0.85
    assert cover.effective == pytest.approx(0.95, abs=0.035 + 0.045)
    assert grouped_difference_coverage(groups, runs=300, seed=4) == pytest.approx(0.95, abs=0.035 + 0.04)


def test_percentiles_leave_out_what_is_undefined() -> None:
    values = np.concatenate([np.linspace(0, 1, 101), np.full(50, np.nan)])
    assert percentiles(values) == pytest.approx((0.025, 0.975))
    assert percentiles(np.concatenate([values, np.full(100, np.nan)])) is None


def test_the_document_shows_the_exact_tables() -> None:
    """Fails when a method changed and `python -m tests.bench.coverage` was not run."""
    text = DOCUMENT.read_text(encoding="utf-8")
    for line in (*wilson_table(), *paired_table((20, 50))[2:]):
        assert line.rstrip("|").rstrip() in text


@pytest.mark.slow
def test_the_document_shows_what_simulation_gives() -> None:
    """The whole grid, to the digit: seeds are fixed."""
    assert coverage.tables() in DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("n", [200, 500, 1_000])
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_the_bootstrap_keeps_its_tolerance(figure: coverage.Figure, n: int) -> None:
    assert bootstrap_coverage(figure, n, runs=2_000, resamples=1_000, seed=n) == pytest.approx(0.95, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("groups", GROUPS, ids=lambda groups: groups.name)
def test_groups_keep_their_tolerance(groups: coverage.Groups) -> None:
    assert cluster_coverage(groups, runs=2_000, resamples=200, seed=9).effective == pytest.approx(0.95, abs=0.035)
    assert grouped_difference_coverage(groups, runs=2_000, seed=9) == pytest.approx(0.95, abs=0.035)
