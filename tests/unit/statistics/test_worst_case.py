"""What unscored examples can do to a figure: nothing worse than the worst case, and not less."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.gates.floors import measure
from app.gates.measures import Part, Unmeasurable
from app.gates.worst_case import STATISTICS
from app.runs.metrics import labels_of, matrix_of, score
from app.runs.statistics import bootstrap, worst_case
from app.runs.tally import Tally

AVERAGES = sorted(STATISTICS)
ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=12)


def counted(rows) -> dict:
    found: dict = {}
    for pair in rows:
        found[pair] = found.get(pair, 0) + 1
    return found


def every_value(rows, failed, metric: str, label: str | None) -> list[float]:
    """The figure under every assignment of the failed examples to the run's labels, where it is defined."""
    labels = labels_of(Tally(0, counted(rows), {(one, "timeout"): 1 for one in failed}))
    statistic = bootstrap.f1_of(labels.index(label)) if label else STATISTICS[metric]
    values = []
    for given_labels in itertools.product(labels, repeat=len(failed)):
        full = counted([*rows, *zip(failed, given_labels, strict=True)])
        values.append(float(statistic(matrix_of(Tally(0, full), labels)[None])[0]))
    return [value for value in values if math.isfinite(value)]


def worst(rows, failed, metric: str, label: str | None) -> float | None:
    tally = Tally(len(rows) + len(failed), counted(rows), counted([(one, "timeout") for one in failed]))
    try:
        return measure(Part(tally, []), metric, label, level=0.95).observed
    except Unmeasurable:
        return None


@settings(deadline=None, max_examples=150)
@given(ROWS, st.lists(st.sampled_from("abc"), max_size=5), st.sampled_from([*AVERAGES, "f1"]))
def test_the_worst_case_is_the_smallest_of_all_values(rows, failed, metric) -> None:
    """Not above the figure under any labels that the unscored examples might have been given, and one of these."""
    label = rows[0][0] if metric == "f1" else None
    found = worst(rows, failed, metric, label)
    if found is None:
        return
    values = every_value(rows, failed, metric, label)
    assert found <= min(values) + 1e-9
    if len({one for pair in rows for one in pair} | set(failed)) > 1:
        assert found == pytest.approx(min(values), abs=1e-9)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(0, 9), min_size=9, max_size=9), st.lists(st.integers(0, 40), min_size=3, max_size=3), st.data()
)
def test_with_very_many_assignments_nothing_lies_below_the_bound(cells, failed, data) -> None:
    """Matthews' coefficient, whose worst case is then a bound and not a value that is reached."""
    matrix, counts = np.array(cells, dtype=float).reshape(3, 3), np.array(failed, dtype=float)
    if not counts.any() or not math.isfinite(float(bootstrap.matthews(matrix[None])[0])):
        return
    _, bound = worst_case.lower_matthews(matrix, counts)
    drawn = np.zeros((3, 3))
    for row, number in enumerate(failed):
        first = data.draw(st.integers(0, number))
        second = data.draw(st.integers(0, number - first))
        drawn[row] = first, second, number - first - second
    value = float(bootstrap.matthews((matrix + drawn)[None])[0])
    assert not value < bound - 1e-9


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 6), min_size=9, max_size=9), st.lists(st.integers(0, 5), min_size=3, max_size=3))
def test_the_bound_without_trying_lies_below_what_trying_finds(cells, failed) -> None:
    matrix, counts = np.array(cells, dtype=float).reshape(3, 3), np.array(failed, dtype=float)
    if not counts.any() or not math.isfinite(float(bootstrap.matthews(matrix[None])[0])):
        return
    _, lowest = worst_case.lower_matthews(matrix, counts)
    assigned, bound = worst_case.near_matthews(matrix, counts)
    assert bound <= lowest + 1e-9 <= float(bootstrap.matthews((matrix + assigned)[None])[0]) + 2e-9
    assert assigned.sum(axis=1) == pytest.approx(counts)


def test_the_bound_of_a_large_run_is_close() -> None:
    """Of two thousand 20 failed, or 200: within 0.0001, or 0.0005, of what some labels give."""
    for failures, gap in ((np.array([10.0, 6, 4]), 0.0001), (np.array([100.0, 60, 40]), 0.0005)):
        matrix = np.diag([900.0, 600, 300]) + 10
        assigned, bound = worst_case.near_matthews(matrix, failures)
        assert 0 <= float(bootstrap.matthews((matrix + assigned)[None])[0]) - bound < gap


@pytest.mark.parametrize("metric", [*AVERAGES, "f1"])
def test_one_failure_in_a_thousand_moves_a_figure_by_about_a_thousandth(metric) -> None:
    """It is no third label with an F1 of its own."""
    rows = [("a", "a")] * 500 + [("b", "b")] * 499
    found = worst(rows, ["b"], metric, "a" if metric == "f1" else None)
    assert 0.997 < found < 1.0


@pytest.mark.parametrize(
    ("metric", "value"), [("macro.f1", 198 / 199), ("macro.precision", 1.0), ("macro.recall", 0.99)]
)
def test_where_there_is_one_label_a_failure_misses_it_and_makes_no_other(metric, value) -> None:
    assert worst([("a", "a")] * 99, ["a"], metric, None) == pytest.approx(value)


def test_the_worst_case_without_failures_is_what_the_report_says() -> None:
    rows = [("a", "a")] * 30 + [("b", "b")] * 20 + [("a", "b")] * 5 + [("b", "c")] * 2
    scores = score(Tally(57, counted(rows)))
    for metric in AVERAGES:
        kind, _, name = metric.partition(".")
        said = getattr(getattr(scores, kind), name) if name else getattr(scores, metric)
        assert worst(rows, [], metric, None) == pytest.approx(said)
