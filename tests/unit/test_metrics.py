"""Figures from counts: known values, honest gaps, and what must hold for any counts."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from app.runs.metrics import score, wilson
from app.runs.report import derive_report
from app.runs.tally import Tally, TallyBuilder
from layers.profile import BinaryCollapse, SystemProfile
from tests.runs import record

LABELS = st.sampled_from(["low", "medium", "high", "unknown"])
PAIRS = st.lists(st.tuples(LABELS, LABELS), max_size=60)
FAILURES = st.lists(st.tuples(LABELS, st.sampled_from(["timeout", "refused"])), max_size=20)


def tally_of(pairs, failures=(), rest=0) -> Tally:
    return Tally(len(pairs) + len(failures) + rest, Counter(pairs), Counter(failures))


def by_label(scores) -> dict:
    return {row.label: row for row in scores.per_label}


def test_known_values() -> None:
    """Counted by hand, and what scikit-learn's classification_report says of the same ten pairs."""
    pairs = [
        *[("cat", "cat")] * 3,
        ("cat", "dog"),
        *[("dog", "dog")] * 2,
        *[("dog", "cat")] * 2,
        ("bird", "bird"),
        ("bird", "cat"),
    ]
    scores = score(tally_of(pairs))
    rows = by_label(scores)
    assert scores.accuracy == pytest.approx(0.6)
    assert (rows["cat"].precision, rows["cat"].recall, rows["cat"].support) == (0.5, 0.75, 4)
    assert rows["cat"].f1 == pytest.approx(0.6)
    assert rows["dog"].precision == pytest.approx(2 / 3)
    assert rows["dog"].f1 == pytest.approx(4 / 7)
    assert (rows["bird"].precision, rows["bird"].recall) == (1.0, 0.5)
    assert scores.macro.precision == pytest.approx(0.7222222222)
    assert scores.macro.recall == pytest.approx(0.5833333333)
    assert scores.macro.f1 == pytest.approx(0.6126984127)
    assert scores.weighted.precision == pytest.approx(0.6666666667)
    assert scores.weighted.recall == pytest.approx(0.6)
    assert scores.weighted.f1 == pytest.approx(0.6019047619)
    assert scores.confusion.labels == ("bird", "cat", "dog")
    assert scores.confusion.matrix == ((1, 1, 0), (0, 3, 1), (0, 2, 2))
    assert scores.undefined == ()


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.2775327998),
        (10, 10, 0.7224672002, 1.0),
        (5, 10, 0.2365931022, 0.7634068978),
        (23, 25, 0.7503389, 0.9777796),
    ],
)
def test_wilson_known_values(successes, n, low, high) -> None:
    """Values that published tables and scipy agree on."""
    interval = wilson(successes, n)
    assert interval is not None
    assert interval.low == pytest.approx(low, abs=1e-6)
    assert interval.high == pytest.approx(high, abs=1e-6)


@settings(deadline=None)
@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_agrees_with_scipy(counts) -> None:
    """An independent implementation says the same."""
    successes, n = counts
    interval = wilson(successes, n)
    expected = binomtest(successes, n).proportion_ci(method="wilson")
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_a_label_never_predicted_has_no_precision() -> None:
    """Undefined is null with a reason; what is known of the label stays a number."""
    scores = score(tally_of([("high", "low"), ("low", "low")]))
    row = by_label(scores)["high"]
    assert (row.precision, row.recall, row.f1, row.support) == (None, 0.0, 0.0, 1)
    (gap,) = [gap for gap in scores.undefined if gap.label is not None]
    assert (gap.metric, gap.label, gap.reason) == ("precision", "high", "the label was never predicted")


def test_a_label_that_only_failed_examples_have_is_shown_as_unknown() -> None:
    """Nobody looked at it: neither right nor wrong, and not left out."""
    scores = score(tally_of([("low", "low")], [("high", "timeout")]))
    row = by_label(scores)["high"]
    assert (row.precision, row.recall, row.f1, row.support) == (None, None, None, 0)
    assert {gap.metric for gap in scores.undefined if gap.label == "high"} == {"precision", "recall", "f1"}


def test_nothing_scored_is_null_and_not_zero() -> None:
    report = derive_report(tally_of([], [("high", "timeout")] * 3), SystemProfile(name="x"), binary=False)
    assert (report.total, report.n_failed, report.accuracy, report.intervals.accuracy) == (3, 3, None, None)
    assert (report.accuracy_bounds.worst, report.accuracy_bounds.best) == (0.0, 1.0)
    assert report.failures_by_kind == {"timeout": 3}
    assert {"accuracy", "macro.f1", "weighted.recall"} <= {gap.metric for gap in report.undefined}


def test_bounds_count_every_unscored_example_both_ways() -> None:
    """Three right of four scored, four failed and two without a record yet."""
    bounds = score(tally_of([("a", "a")] * 3 + [("a", "b")], [("a", "timeout")] * 4, rest=2)).accuracy_bounds
    assert (bounds.worst, bounds.best) == (0.3, 0.9)


def test_labels_compare_exactly() -> None:
    assert score(tally_of([("High", "high")])).correct == 0


def test_case_folds_only_where_the_profile_says_so() -> None:
    for fold_case, correct in ((False, 0), (True, 1)):
        builder = TallyBuilder(SystemProfile(name="x", fold_case=fold_case), 1)
        builder.add(record("HIGH", "high" if fold_case else "High"))
        assert score(builder.tally()).correct == correct


def test_binary_stands_beside_strict() -> None:
    """Everything but exactly `low` becomes `high`, `unknown` included; the strict reading is unchanged."""
    collapse = BinaryCollapse(keep=frozenset({"low"}), negative="low", positive="high")
    profile = SystemProfile(name="x", binary=collapse)
    pairs = [("high", "critical"), ("high", "unknown"), ("low", "low"), ("low", "Low")]
    report = derive_report(tally_of(pairs), profile, binary=True)
    assert report.accuracy == 0.25
    assert report.binary is not None
    assert report.binary.accuracy == 0.75
    assert report.binary.confusion.labels == ("low", "high")
    assert derive_report(tally_of(pairs), profile, binary=False).binary is None


def test_labels_stand_in_the_profiles_order() -> None:
    profile = SystemProfile(name="x", labels=("low", "medium", "high"))
    report = derive_report(tally_of([("high", "zebra"), ("low", "ant")]), profile, binary=False)
    assert report.confusion.labels == ("low", "high", "ant", "zebra")


@settings(deadline=None)
@given(PAIRS, FAILURES, st.integers(0, 5))
def test_counts_add_up_and_every_figure_is_a_share(pairs, failures, rest) -> None:
    """No example is lost, no figure leaves 0..1, nothing is NaN, and each null has its reason."""
    scores = score(tally_of(pairs, failures, rest))
    assert scores.total == scores.n_scored + scores.n_failed + rest
    assert sum(map(sum, scores.confusion.matrix)) == scores.n_scored
    assert sum(row.support for row in scores.per_label) == scores.n_scored
    assert sum(scores.confusion.matrix[i][i] for i in range(len(scores.confusion.labels))) == scores.correct
    figures = {("accuracy", None): scores.accuracy}
    for name in ("precision", "recall", "f1"):
        figures |= {(name, row.label): getattr(row, name) for row in scores.per_label}
        figures |= {(f"{kind}.{name}", None): getattr(getattr(scores, kind), name) for kind in ("macro", "weighted")}
    figures |= {(f"accuracy_bounds.{end}", None): getattr(scores.accuracy_bounds, end) for end in ("worst", "best")}
    assert all(value is None or (0 <= value <= 1 + 1e-12 and not math.isnan(value)) for value in figures.values())
    agreed = {(name, None): getattr(scores, name) for name in ("balanced_accuracy", "matthews", "kappa")}
    assert all(value is None or -1 - 1e-12 <= value <= 1 + 1e-12 for value in agreed.values())
    figures |= agreed
    assert {key for key, value in figures.items() if value is None} == {
        (gap.metric, gap.label) for gap in scores.undefined
    }
    if scores.accuracy is not None:
        interval, bounds = scores.intervals.accuracy, scores.accuracy_bounds
        assert interval.low <= scores.accuracy <= interval.high
        assert bounds.worst <= scores.accuracy + 1e-12
        assert scores.accuracy <= bounds.best + 1e-12


@settings(deadline=None)
@given(PAIRS, st.randoms())
def test_the_order_of_examples_does_not_matter(pairs, random) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)
    assert score(tally_of(pairs)) == score(tally_of(shuffled))


@settings(deadline=None)
@given(PAIRS.filter(bool))
def test_f1_is_the_harmonic_mean_where_both_parts_are_there(pairs) -> None:
    for row in score(tally_of(pairs)).per_label:
        if row.precision and row.recall:
            assert row.f1 == pytest.approx(2 * row.precision * row.recall / (row.precision + row.recall))
