"""What lies behind a report's counts: slices, calibration, intervals, and examples that belong together."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from app.runs.analysis import MAX_DISTINCT, MAX_TEXT, Analysis, Seen, group_number
from app.runs.figures import Scores
from app.runs.intervals import MIN_CARRYING, SAME, TOO_FEW
from app.runs.metrics import MAX_MATRIX, score
from app.runs.model import EvalReport
from app.runs.report import derive_report
from app.runs.run_eval import run_eval
from app.runs.slices import MAX_VALUES
from app.runs.statistics.multiple import holm
from app.runs.statistics.proportion import wilson
from app.runs.tally import Tally
from layers.model import EvalExample
from layers.profile import BinaryCollapse, SystemProfile
from tests.runs import prediction

COLLAPSE = BinaryCollapse(keep=frozenset({"low"}), negative="low", positive="high")
PROFILE = SystemProfile(name="x", labels=("low", "medium", "high"), binary=COLLAPSE)
LABELS = st.sampled_from(["low", "medium", "high"])
ROWS = st.lists(st.tuples(LABELS, st.one_of(st.none(), LABELS), st.floats(0, 1), st.integers(0, 4)), max_size=50)


def seen(expected: str, scored: str | None, confidence: float = 0.5) -> Seen:
    return Seen(expected, scored, None if scored else "timeout", confidence if scored else None)


def report_of(rows, paths=(), profile=PROFILE, *, binary=False, n_total=None, groups=None, repeats=1) -> EvalReport:
    """`rows` are (expected, scored, confidence, value at /input/kind)."""
    analysis = Analysis(profile, len(rows) if n_total is None else n_total, paths, repeats=repeats)
    for position, (expected, scored, confidence, value) in enumerate(rows):
        example = {"input": {"kind": value}, "metadata": {}}
        if groups is not None:
            example["group"] = groups[position]
        analysis.add(position, example, [seen(expected, scored, confidence)])
    return derive_report(analysis.tally(), profile, binary=binary, breakdown=analysis.breakdown())


# --- slices -----------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(ROWS)
def test_the_parts_of_a_slice_add_up_to_the_whole(rows) -> None:
    report = report_of(rows, ["/input/kind"])
    (cut,) = report.slices
    assert sum(part.support for part in cut.values) == report.total
    assert sum(part.correct for part in cut.values) == report.correct
    assert sum(part.n_failed for part in cut.values) == report.n_failed
    for part in cut.values:
        if part.n_scored:
            assert part.interval.low <= part.accuracy <= part.interval.high
            assert part.accuracy_worst <= part.accuracy
        else:
            assert part.accuracy is part.interval is part.p_value is None


def test_a_part_that_stands_out_is_flagged_with_holms_correction() -> None:
    """Fisher's test of the part against the rest, adjusted over every part of every path."""
    rows = [("low", "low" if n % 10 or value else "high", 0.5, value) for value in (0, 1, 2) for n in range(100)]
    rows += [("low", "high" if n % 2 else "low", 0.5, 3) for n in range(100)]
    (cut,) = report_of(rows, ["/input/kind"]).slices
    parts = {part.value: part for part in cut.values}
    right = {0: 90, 1: 100, 2: 100, 3: 50}
    exact = [fisher_exact([[right[v], 100 - right[v]], [340 - right[v], right[v] - 40]]).pvalue for v in range(4)]
    assert [parts[v].p_value for v in range(4)] == pytest.approx(exact)
    assert [parts[v].p_adjusted for v in range(4)] == pytest.approx(holm(exact))
    assert [parts[v].flag for v in range(4)] == [None, "better", "better", "worse"]


def test_values_of_different_types_are_different_parts() -> None:
    values = [1, 1.0, True, "1", None, "true"]
    (cut,) = report_of([("low", "low", 0.5, value) for value in values], ["/input/kind"]).slices
    assert len(cut.values) == len(values)


@pytest.mark.parametrize("value", [{"a": 1}, [1], "x" * (MAX_TEXT + 1)])
def test_what_is_no_single_short_value_belongs_to_no_part(value) -> None:
    (cut,) = report_of([("low", "low", 0.5, value)], ["/input/kind"]).slices
    assert (cut.values, cut.n_without, cut.reason) == ((), 1, "no example has a single value here")


def test_a_path_with_too_many_values_is_given_up_and_says_so() -> None:
    """An identifier is no slice, and must not fill memory."""
    rows = [("low", "low", 0.5, number) for number in range(MAX_DISTINCT + 10)]
    (cut,) = report_of(rows, ["/input/kind"]).slices
    assert (cut.values, cut.reason) == ((), "there are too many different values here")


def test_only_the_most_frequent_values_are_shown() -> None:
    rows = [("low", "low", 0.5, number) for number in range(MAX_VALUES + 5)] + [("low", "low", 0.5, 7)]
    (cut,) = report_of(rows, ["/input/kind"]).slices
    assert (len(cut.values), cut.n_omitted, cut.values[0].value) == (MAX_VALUES, 5, 7)


def test_a_report_is_cut_along_what_was_predicted() -> None:
    """What brought no prediction belongs to no part, and an example of the same name is not looked at."""
    analysis = Analysis(PROFILE, 5, ["/prediction/metadata/by"])
    for position, (scored, by) in enumerate([("low", "a"), ("high", "a"), ("low", "b"), (None, None)]):
        given = None if by is None else {"label": scored, "metadata": {"by": by}}
        answer = Seen("low", scored, None if scored else "timeout", 0.5 if scored else None, given)
        analysis.add(position, {"prediction": {"metadata": {"by": "recorded"}}}, [answer])
    report = derive_report(analysis.tally(), PROFILE, binary=False, breakdown=analysis.breakdown())
    (cut,) = report.slices
    assert cut.path == "/prediction/metadata/by"
    assert {part.value: (part.support, part.correct) for part in cut.values} == {"a": (2, 1), "b": (1, 1)}
    assert (cut.n_without, report.n_failed) == (1, 1)


def test_slices_have_both_readings_of_the_labels() -> None:
    (cut,) = report_of([("high", "medium", 0.5, "a")], ["/input/kind"], binary=True).slices
    assert (cut.values[0].accuracy, cut.values[0].binary.accuracy) == (0.0, 1.0)
    assert [(row.label, row.recall) for row in cut.values[0].per_label] == [("medium", None), ("high", 0.0)]
    assert [(row.label, row.recall) for row in cut.values[0].binary.per_label] == [("high", 1.0)]


def test_repeats_have_both_readings_of_the_labels() -> None:
    """Medium for high is wrong strictly and right in two labels; a failed repeat is neither in both."""
    analysis = Analysis(PROFILE, 6, repeats=2)
    for position, answers in enumerate([("high", "medium"), ("medium", "medium"), ("high", None)]):
        analysis.add(position, None, [seen("high", label) for label in answers])
    found = derive_report(analysis.tally(), PROFILE, binary=True, breakdown=analysis.breakdown()).repeats
    assert (found.n_complete, found.pass_all, found.pass_any, found.agreement) == (2, 0.0, 0.5, 0.5)
    two = found.binary
    assert (two.n_complete, two.pass_all, two.pass_any, two.agreement) == (2, 1.0, 1.0, 1.0)
    assert (two.pass_all_worst, two.pass_any_worst) == (pytest.approx(2 / 3), 1.0)
    strict = derive_report(analysis.tally(), PROFILE, binary=False, breakdown=analysis.breakdown()).repeats
    assert strict == found.model_copy(update={"binary": None})


def test_every_rate_of_a_part_has_its_n_and_its_interval() -> None:
    """Precision over those that were given the label, recall over those that expect it; Wilson's, as for the whole."""
    pairs = [("high", "high", "a")] * 6 + [("low", "high", "a")] * 2 + [("high", "low", "a")]
    pairs += [("low", "low", "b")] * 9
    made = report_of([(*pair[:2], 0.5, pair[2]) for pair in pairs], ["/input/kind"])
    part = next(value for value in made.slices[0].values if value.value == "a")
    high = next(row for row in part.per_label if row.label == "high")
    ends = part.label_intervals[part.per_label.index(high)]
    assert (high.n_predicted, high.support, ends.label) == (8, 7, "high")
    assert (part.interval.low, part.interval.high) == pytest.approx(wilson(6, 9))
    assert ((ends.precision.low, ends.precision.high), (ends.recall.low, ends.recall.high)) == (
        pytest.approx(wilson(6, 8)),
        pytest.approx(wilson(6, 7)),
    )
    assert {row.label: row.n_predicted for row in made.per_label} == {"low": 10, "high": 8}


def test_an_example_without_a_record_is_in_its_part_all_the_same() -> None:
    analysis = Analysis(PROFILE, 2, ["/input/kind"])
    analysis.add(0, {"input": {"kind": "a"}}, [seen("low", "low")])
    analysis.add(1, {"input": {"kind": "a"}}, [])
    (cut,) = derive_report(analysis.tally(), PROFILE, binary=False, breakdown=analysis.breakdown()).slices
    assert (cut.values[0].support, cut.values[0].accuracy, cut.values[0].accuracy_worst) == (2, 1.0, 0.5)


# --- intervals --------------------------------------------------------------------------------------------------------


def _gaps(scores: Scores) -> dict[tuple[str, str | None], str]:
    return {(gap.metric, gap.label): gap.reason for gap in scores.undefined}


def test_an_interval_that_all_resamples_agree_on_is_none() -> None:
    """Where nothing was wrong, resampling finds nothing wrong either, which is no certainty."""
    report = report_of([("low", "low", 0.5, "a")] * 30 + [("high", "high", 0.5, "a")] * 30)
    assert [row.f1 for row in report.intervals.per_label] == [None, None]
    assert (report.intervals.macro.f1, report.intervals.kappa, report.intervals.matthews) == (None, None, None)
    gaps = _gaps(report)
    for metric, label in (("f1_interval", "low"), ("f1_interval", "high"), ("macro.f1_interval", None)):
        assert gaps[metric, label] == SAME
    assert report.intervals.accuracy.low < 0.97
    assert (report.macro.f1, report.kappa) == (1.0, 1.0)


@pytest.mark.parametrize("n", [1, MIN_CARRYING - 1, MIN_CARRYING])
def test_a_label_on_few_examples_has_no_interval_of_f1(n: int) -> None:
    """Expected or predicted, both count as carrying it."""
    rows = [("low", "low", 0.5, "a")] * 100 + [("high", "low", 0.5, "a")] * (n // 2)
    report = report_of([*rows, *[("high", "high", 0.5, "a")] * (n - n // 2)])
    high = next(row for row in report.intervals.per_label if row.label == "high")
    assert (high.f1 is None) == (n < MIN_CARRYING)
    assert (_gaps(report).get(("f1_interval", "high")) == TOO_FEW) == (n < MIN_CARRYING)


@settings(deadline=None)
@given(ROWS)
def test_a_missing_interval_of_a_figure_has_a_reason_and_no_interval_is_a_point(rows) -> None:
    report = report_of(rows, binary=True)
    for scores in filter(None, (report, report.binary)):
        gaps = _gaps(scores)
        if scores.intervals.resampling is None:
            continue
        for figures, row in zip(scores.per_label, scores.intervals.per_label, strict=True):
            assert (row.f1 is None and figures.f1 is not None) == (("f1_interval", row.label) in gaps)
            assert row.f1 is None or row.f1.low < row.f1.high
        for name in ("balanced_accuracy", "matthews", "kappa"):
            missing = getattr(scores.intervals, name) is None and getattr(scores, name) is not None
            assert missing == ((f"{name}_interval", None) in gaps)


# --- calibration ------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(ROWS)
def test_calibration_is_what_the_confidences_say(rows) -> None:
    """Brier score and bins from sums are those computed one by one, in both readings."""
    report = report_of(rows, binary=True)
    scored = [(e, s, c) for e, s, c, _ in rows if s is not None]
    if not scored:
        assert report.calibration is None
        assert any(gap.metric == "calibration" for gap in report.undefined)
        return
    for made, right in (
        (report.calibration, [e == s for e, s, _ in scored]),
        (report.calibration.binary, [PROFILE.collapse(e) == PROFILE.collapse(s) for e, s, _ in scored]),
    ):
        brier = np.mean([(c - hit) ** 2 for (_, _, c), hit in zip(scored, right, strict=True)])
        assert made.brier_score == pytest.approx(brier, abs=1e-9)
        assert made.n == sum(one.n for one in made.bins) == len(scored)
        assert sum(one.n * (one.accuracy or 0) for one in made.bins) == pytest.approx(sum(right))


@pytest.mark.parametrize("means", ["score", "none"])
def test_a_confidence_that_is_no_certainty_is_not_calibrated(means) -> None:
    """An anomaly score of 0.1 on a healthy event says nothing of how sure anybody is."""
    report = report_of([("low", "low", 0.1, 1)], profile=SystemProfile(name="x", confidence_means=means))
    assert report.calibration is None
    assert any(gap.metric == "calibration" for gap in report.undefined)


# --- intervals --------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(ROWS)
def test_every_resampled_interval_lies_in_the_figures_range_and_says_how_it_was_made(rows) -> None:
    report = report_of(rows, binary=True)
    for scores in (report, report.binary):
        assert isinstance(scores, Scores)
        if not scores.n_scored:
            assert scores.intervals.resampling is None
            continue
        assert scores.intervals.resampling.unit == "example"
        found = [scores.intervals.kappa, scores.intervals.matthews, scores.intervals.balanced_accuracy]
        found += [scores.intervals.macro.f1, *(row.f1 for row in scores.intervals.per_label)]
        assert all(-1 - 1e-9 <= one.low <= one.high <= 1 + 1e-9 for one in found if one is not None)
        if scores.kappa is None:
            assert scores.intervals.kappa is None


def test_intervals_of_a_large_run_hold_the_figure_and_are_the_same_every_time() -> None:
    rng = random.Random(4)
    rows = [(e, e if rng.random() < 0.8 else rng.choice(["low", "medium", "high"]), 0.5, 0)
            for e in rng.choices(["low", "medium", "high"], k=2_000)]  # fmt: skip
    one, other = report_of(rows), report_of(rows)
    assert one == other
    for name in ("kappa", "matthews", "balanced_accuracy"):
        interval = getattr(one.intervals, name)
        assert interval.low < getattr(one, name) < interval.high
        assert interval.high - interval.low < 0.06
    assert one.intervals.macro.f1.low < one.macro.f1 < one.intervals.macro.f1.high


def test_examples_in_groups_widen_the_intervals() -> None:
    """Ten copies of one example know what one example knows."""
    rng = random.Random(1)
    single = [(e, e if rng.random() < 0.7 else "low", 0.5, 0) for e in rng.choices(["medium", "high"], k=100)]
    rows = [row for row in single for _ in range(10)]
    free = report_of(rows).intervals
    tied = report_of(rows, groups=[f"g{n // 10}" for n in range(1_000)]).intervals
    assert (tied.resampling.unit, tied.resampling.n_units) == ("group", 100)
    assert tied.accuracy == free.accuracy
    for wide, narrow in (
        (tied.accuracy_clustered.interval, free.accuracy),
        (tied.kappa, free.kappa),
        (tied.macro.f1, free.macro.f1),
    ):
        assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
    assert tied.accuracy_clustered.design_effect == pytest.approx(10, rel=0.1)
    assert free.accuracy_clustered is None


def test_chance_differences_of_grouped_parts_are_not_flagged() -> None:
    """One bad customer of ten makes no part of the data bad."""
    rows = [("low", "low" if n < 450 else "high", 0.5, n >= 250) for n in range(500)]
    groups = [f"g{n // 50}" for n in range(500)]
    assert any(part.flag for part in report_of(rows, ["/input/kind"]).slices[0].values)
    assert not any(part.flag for part in report_of(rows, ["/input/kind"], groups=groups).slices[0].values)


def test_repeats_of_an_example_belong_together() -> None:
    analysis = Analysis(PROFILE, 40, repeats=4)
    for position in range(10):
        analysis.add(position, None, [seen("low", "low" if position else "high")] * 4)
    report = derive_report(analysis.tally(), PROFILE, binary=False, breakdown=analysis.breakdown())
    assert report.intervals.resampling.unit == "repeats"
    assert report.intervals.resampling.n_units == 10


def test_a_groups_number_is_the_same_in_every_process_and_nobodys_position() -> None:
    assert group_number("customer-1") == -8799564871048571743
    assert all(-(2**63) <= group_number(name) < 0 for name in ("", "a", "\ud800", "x" * 1_000))


# --- many labels ------------------------------------------------------------------------------------------------------


def test_a_system_that_invents_labels_does_not_blow_the_report_up() -> None:
    """The matrix shows the most frequent labels; agreement over thousands of them is left undefined."""
    scored = {("low", f"made up {n}"): 1 for n in range(3_000)} | {("low", "low"): 50}
    scores = score(Tally(3_050, scored))
    assert len(scores.confusion.labels) == MAX_MATRIX
    assert scores.confusion.n_omitted == 3_001 - MAX_MATRIX
    assert "low" in scores.confusion.labels
    assert scores.kappa is None
    assert any(gap.metric == "kappa" for gap in scores.undefined)


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ({("low", "low"): 3, ("low", "high"): 1}, "every example expects the same label"),
        ({("low", "low"): 3, ("high", "low"): 1}, "every prediction is the same label"),
    ],
)
def test_agreement_with_a_rater_of_one_label_is_undefined_with_its_reason(pairs, reason) -> None:
    scores = score(Tally(4, pairs))
    assert (scores.kappa, scores.matthews) == (None, None)
    assert {gap.metric: gap.reason for gap in scores.undefined if gap.metric in {"kappa", "matthews"}} == {
        "kappa": reason,
        "matthews": reason,
    }


def test_agreement_has_its_known_values() -> None:
    """20 / 5 / 10 / 15: kappa 0.4, phi 0.4082, recalls 0.8 and 0.6."""
    scores = score(Tally(50, {("a", "a"): 20, ("a", "b"): 5, ("b", "a"): 10, ("b", "b"): 15}))
    assert scores.kappa == pytest.approx(0.4)
    assert scores.matthews == pytest.approx(1 / math.sqrt(6))
    assert scores.balanced_accuracy == pytest.approx(0.7)


# --- from Python ------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_run_eval_cuts_and_calibrates_too() -> None:
    """The same report without a server."""
    examples = [
        EvalExample(id=str(n), input={"kind": "ab"[n % 2]}, expected_label="low", group=f"g{n // 2}") for n in range(20)
    ]
    report = await run_eval(lambda _: prediction("low"), examples, slices=["/input/kind"])
    assert [(part.value, part.support) for part in report.slices[0].values] == [("a", 10), ("b", 10)]
    assert report.calibration.n == 20
    assert report.intervals.resampling.n_units == 10
