"""Two runs compared: pairs by id, known answers, honest about what is missing, chance told from size."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from app.runs.comparison import compare, contrast, sequential
from app.runs.contrasts import Side
from app.runs.model import RunStatus
from app.runs.pairing import MAX_AXES, MAX_LISTED, Answers, Outcomes, Pairing, axis_label, outcome
from app.runs.statistics.multiple import holm
from layers.profile import BinaryCollapse, SystemProfile

PLAIN = SystemProfile(name="x")
BINARY = SystemProfile(name="x", binary=BinaryCollapse(keep=frozenset({"low"}), negative="low", positive="high"))
SIDE = Side(run_id="c", name=None, system="x", status=RunStatus.SUCCEEDED, dataset_id="d")
OUTCOMES = st.sampled_from([True, False, None])


def answers(expected: str, *scored: str | None, **axes: tuple[str, str | None]) -> Answers:
    return Answers(expected, scored, {axis: (want, (got,)) for axis, (want, got) in axes.items()})


def pairing(corrected: int, broke: int, *, both: int = 0, profile: SystemProfile = PLAIN) -> Pairing:
    made = Pairing(profile, profile)
    rows = [("b", "a")] * corrected + [("a", "b")] * broke + [("a", "a")] * both
    for number, (before, after) in enumerate(rows):
        made.add(f"e{number}", None, answers("a", after), answers("a", before))
    return made


def outcomes(*pairs: tuple[bool | None, bool | None]) -> Outcomes:
    made = Outcomes()
    for before, after in pairs:
        made.add(before, after)
    return made


@pytest.mark.parametrize(
    ("corrected", "broke", "exact"), [(20, 26, 0.4614), (8, 22, 0.0161), (1, 7, 0.0703), (6, 12, 0.2379), (1, 2, 1.0)]
)
def test_the_known_answers_come_through(corrected: int, broke: int, exact: float) -> None:
    """Two-sided exact; only 8 against 22 is real at 5 %, and it is a fall."""
    made = compare(pairing(corrected, broke, both=50), SIDE, SIDE).strict
    assert (made.corrected, made.broke, made.n) == (corrected, broke, 50 + corrected + broke)
    assert made.p_exact == pytest.approx(exact, abs=5e-5)
    assert made.p_mid is not None
    assert made.p_mid <= made.p_exact
    assert made.real == (exact < 0.05)
    assert made.verdict == ("worse" if made.real else "no_difference_shown")


@settings(deadline=None)
@given(st.lists(st.tuples(OUTCOMES, OUTCOMES), max_size=60))
def test_counts_add_up_and_swapping_the_runs_turns_the_difference(pairs) -> None:
    made, turned = contrast(outcomes(*pairs), 0.05), contrast(outcomes(*[(b, a) for a, b in pairs]), 0.05)
    unscored = made.unscored
    assert made.n + unscored.baseline + unscored.candidate + unscored.both == len(pairs)
    assert (made.corrected, made.broke, made.p_exact) == (turned.broke, turned.corrected, turned.p_exact)
    if made.n:
        assert made.difference == pytest.approx(-turned.difference)
        assert made.difference == pytest.approx(made.accuracy - made.baseline_accuracy)
        assert made.interval.low <= made.difference + 1e-12
        assert made.difference <= made.interval.high + 1e-12
        if made.corrected + made.broke:
            assert made.p_exact == pytest.approx(binomtest(made.broke, made.corrected + made.broke).pvalue)
    else:
        assert made.verdict == "nothing_to_compare"


@settings(deadline=None)
@given(st.lists(st.tuples(OUTCOMES, OUTCOMES), min_size=1, max_size=60))
def test_the_worst_case_is_never_better_than_any_way_the_unscored_could_have_gone(pairs) -> None:
    """Pairs that neither scored say nothing; of the others the candidate's count as wrong, the baseline's as right."""
    made = contrast(outcomes(*pairs), 0.05)
    counted = [(a, b) for a, b in pairs if (a, b) != (None, None)]
    if not counted:
        assert made.worst_case is None
        return
    assert made.worst_case.n == len(counted)
    worst = sum(bool(b) - (a is not False) for a, b in counted) / len(counted)
    assert made.worst_case.difference == pytest.approx(worst)
    if not any(None in pair for pair in counted):
        assert made.worst_case.difference == pytest.approx(made.difference)


def test_examples_are_paired_by_id_and_not_by_order() -> None:
    """What was added in another order gives the same comparison."""
    rows = [("e1", "a", "b"), ("e2", "b", "b"), ("e3", "a", "a")]
    made = []
    for order in (rows, rows[::-1]):
        one = Pairing(PLAIN, PLAIN)
        for example_id, before, after in order:
            one.add(example_id, None, answers("a", after), answers("a", before))
        made.append(compare(one, SIDE, SIDE))
    assert made[0] == made[1]
    assert made[0].pairs.broke.ids == ("e1",)


def test_an_example_whose_label_was_changed_is_listed_and_not_compared() -> None:
    """Two truths make no pair."""
    one = Pairing(PLAIN, PLAIN)
    one.add("e1", None, answers("a", "a"), answers("b", "a"))
    made = compare(one, SIDE, SIDE)
    assert (made.pairs.relabelled.count, made.pairs.relabelled.ids, made.strict.n) == (1, ("e1",), 0)


def test_lists_of_ids_are_bounded_and_counted_in_full() -> None:
    made = compare(pairing(0, 3 * MAX_LISTED), SIDE, SIDE).pairs.broke
    assert (made.count, len(made.ids)) == (3 * MAX_LISTED, MAX_LISTED)


def test_labels_are_adjusted_among_each_other() -> None:
    """Each label's recall is compared; Holm keeps the family's error rate."""
    one = Pairing(PLAIN, PLAIN)
    for label, (corrected, broke) in {"a": (2, 12), "b": (3, 9), "c": (5, 5)}.items():
        for number in range(corrected + broke):
            after, before = (label, "-") if number < corrected else ("-", label)
            one.add(f"{label}{number}", None, answers(label, after), answers(label, before))
    rows = {row.label: row for row in compare(one, SIDE, SIDE).per_label}
    exact = {label: binomtest(c, c + b).pvalue for label, (c, b) in {"a": (2, 12), "b": (3, 9), "c": (5, 5)}.items()}
    adjusted = dict(zip(exact, holm(list(exact.values())), strict=True))
    assert {label: row.p_adjusted for label, row in rows.items()} == pytest.approx(adjusted)
    assert [rows[label].real for label in "abc"] == [adjusted[label] < 0.05 for label in "abc"]


def test_slices_hold_the_pairs_of_one_value() -> None:
    one = Pairing(PLAIN, PLAIN, ["/input/kind", "/input/none"])
    for number in range(30):
        example = {"input": {"kind": "x" if number % 3 else 1}}
        one.add(f"e{number}", example, answers("a", "b" if number % 3 else "a"), answers("a", "a"))
    cut, empty = compare(one, SIDE, SIDE).slices
    assert [(row.value, row.n, row.broke) for row in cut.values] == [("x", 20, 20), (1, 10, 0)]
    assert cut.values[0].verdict == "worse"
    assert (empty.values, empty.n_without) == ((), 30)
    assert empty.reason is not None


def test_binary_labels_are_compared_beside_the_strict_ones() -> None:
    """high for critical is wrong strictly and right in two labels."""
    one = Pairing(BINARY, BINARY)
    one.add("e1", None, answers("critical", "high"), answers("critical", "critical"))
    made = compare(one, SIDE, SIDE)
    assert (made.strict.broke, made.binary.broke, made.binary.both_right) == (1, 0, 1)
    assert compare(pairing(1, 1), SIDE, SIDE).binary is None


def test_label_axes_are_compared_axis_by_axis() -> None:
    one = Pairing(PLAIN, PLAIN)
    for number in range(12):
        after = answers("a", "a", risk=("low", "high"), kind=("x", "x"))
        before = answers("a", "a", risk=("low", "low"), kind=("x", None if number == 0 else "y"))
        one.add(f"e{number}", None, after, before)
    kind, risk = compare(one, SIDE, SIDE).axes
    assert (risk.axis, risk.broke, risk.verdict) == ("risk", 12, "worse")
    assert (kind.axis, kind.corrected, kind.unscored.baseline, kind.verdict) == ("kind", 11, 1, "better")
    assert compare(one, SIDE, SIDE).strict.both_right == 12


def test_an_axis_on_which_the_truth_was_changed_is_not_compared() -> None:
    """As with the label itself; an axis that only one run knows makes no pair either."""
    one = Pairing(PLAIN, PLAIN)
    after = answers("a", "a", risk=("low", "low"), kind=("x", "x"), new=("y", "y"))
    one.add("e1", None, after, answers("a", "a", risk=("high", "low"), kind=("x", "x")))
    assert [(row.axis, row.n) for row in compare(one, SIDE, SIDE).axes] == [("kind", 1)]


def test_axes_are_bounded() -> None:
    one = Pairing(PLAIN, PLAIN)
    side = answers("a", "a", **{f"axis{n}": ("x", "x") for n in range(100)})
    one.add("e1", None, side, side)
    assert len(one.axes) == MAX_AXES


@pytest.mark.parametrize(
    ("prediction", "axis", "label"),
    [
        ({"metadata": {"labels": {"risk": "high"}}, "raw_output": {"risk": "low"}}, "risk", "high"),
        ({"raw_output": {"risk": "low"}}, "risk", "low"),
        ({"raw_output": {"is_threat": True}}, "is_threat", "true"),
        ({"raw_output": {"grade": 3}}, "grade", "3"),
        ({"raw_output": {"a": {"b": "deep"}}}, "/a/b", "deep"),
        ({"raw_output": {"a": {"b": "deep"}}}, "a", None),
        ({"metadata": {"labels": "none"}, "raw_output": {}}, "risk", None),
        ({}, "risk", None),
    ],
)
def test_a_predictions_label_on_an_axis_is_found_where_it_may_stand(prediction, axis, label) -> None:
    assert axis_label(prediction, axis) == label


@pytest.mark.parametrize(
    ("scored", "right"),
    [
        (("a",), True),
        (("a", "b", "a"), True),
        (("a", "b"), False),
        ((None, "a"), True),
        ((None, None), None),
        ((), None),
    ],
)
def test_of_several_repeats_more_than_half_decide(scored, right) -> None:
    """A tie is no success, and what failed has no vote."""
    assert outcome("a", scored) is right


def test_pairs_in_groups_are_not_taken_for_independent() -> None:
    """Twenty pairs of one customer are one observation: chance by pairs, nothing by customers."""
    alone, grouped = Pairing(PLAIN, PLAIN), Pairing(PLAIN, PLAIN)
    for number in range(40):
        example = {"input": {}, "group": f"g{number // 20}"}
        before, after = ("a", "b") if number < 20 else ("a", "a")
        for one, given_example in ((alone, None), (grouped, example)):
            one.add(f"e{number}", given_example, answers("a", after), answers("a", before))
    assert compare(alone, SIDE, SIDE).strict.real
    made = compare(grouped, SIDE, SIDE).strict
    assert made.grouped is not None
    assert made.grouped.n_groups == 2
    assert not made.real
    assert made.grouped.interval.low <= made.interval.low
    assert made.grouped.interval.high >= made.interval.high


def test_one_group_tells_nothing_of_the_variance() -> None:
    one = Pairing(PLAIN, PLAIN)
    for number in range(20):
        one.add(f"e{number}", {"group": "only"}, answers("a", "b"), answers("a", "a"))
    made = compare(one, SIDE, SIDE).strict
    assert (made.grouped.p_value, made.real) == (1.0, False)


def test_groups_that_all_change_alike_leave_no_doubt() -> None:
    one = Pairing(PLAIN, PLAIN)
    for number in range(40):
        one.add(f"e{number}", {"group": str(number)}, answers("a", "b"), answers("a", "a"))
    assert compare(one, SIDE, SIDE).strict.real


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(0, 200), st.floats(0, 30))
def test_a_decision_that_was_reached_stays(corrected: int, broke: int, peak: float) -> None:
    """The largest e-value ever seen counts, and it never shrinks."""
    made = sequential(corrected, broke, 0.05, peak)
    assert made.peak_log >= max(peak, made.e_value_log if made.e_value_log > 0 else 0.0)
    assert made.decided == (made.peak_log >= math.log(20))
    assert made.p_value == pytest.approx(math.exp(-made.peak_log))
    again = sequential(corrected, broke, 0.05, made.peak_log)
    assert again == made


def test_the_smallest_difference_that_could_be_seen_shrinks_with_the_size() -> None:
    small, large = (compare(pairing(n, n, both=8 * n), SIDE, SIDE).strict.minimum_detectable for n in (10, 100))
    assert 0 < large < small < 1
