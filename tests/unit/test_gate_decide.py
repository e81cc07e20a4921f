"""The rules of gates: what blocks, what is not known well enough, and that the worst decides."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.gates.checks import JudgeCoverage
from app.gates.decide import Evidence, decide
from app.gates.fall import Fall
from app.gates.floors import Measured, judge_floor, measure
from app.gates.measures import Measure, Part, Unmeasurable
from app.gates.model import ORDER, RuleResult, Status, worst
from app.gates.policy import parse_policy
from app.gates.regressions import judge_fall
from app.runs.analysis import Analysis, Seen
from app.runs.comparison import compare
from app.runs.contrasts import Listed, Side
from app.runs.model import RunStatus
from app.runs.pairing import Answers, Pairing
from app.runs.statistics.proportion import wilson
from app.runs.tally import Tally
from layers.profile import BinaryCollapse, SystemProfile

COLLAPSE = BinaryCollapse(keep=frozenset({"low"}), negative="low", positive="high")
PROFILE = SystemProfile(name="x", labels=("low", "medium", "high"), binary=COLLAPSE)
SIDE = Side(run_id="c", name=None, system="x", status=RunStatus.SUCCEEDED, dataset_id="d")
FLOOR = '[[floors]]\nmetric = "accuracy"\nmin = {}\n'


def measured(rows, paths=(), n_total=None, profile=PROFILE) -> Measured:
    """`rows` are (expected, scored or None, value at /input/kind)."""
    analysis = Analysis(profile, len(rows) if n_total is None else n_total, paths)
    for position, (expected, scored, value) in enumerate(rows):
        seen = Seen(expected, scored, None if scored else "timeout", 0.5 if scored else None)
        analysis.add(position, {"input": {"kind": value}}, [seen])
    return Measured(analysis.tally(), analysis.breakdown(), profile)


def right(n: int, of: int, label: str = "low") -> list:
    return [(label, label if number < n else "medium", "a") for number in range(of)]


def gate(text: str, run: Measured, *, status=RunStatus.SUCCEEDED, pairing=None, **evidence) -> dict[str, RuleResult]:
    comparison = None if pairing is None else compare(pairing, SIDE, SIDE)
    given = {"duplicates": Listed(), **evidence}
    rules = decide(parse_policy(text), Evidence(status, run, pairing=pairing, comparison=comparison, **given))
    found = {rule.name: rule for rule in rules}
    assert len(found) == len(rules)
    return found


def paired(corrected: int, broke: int, both: int, unscored: int = 0, label: str = "a") -> Pairing:
    made = Pairing(PROFILE, PROFILE, ["/input/kind"])
    rows = [("-", label)] * corrected + [(label, "-")] * broke + [(label, label)] * both + [(label, None)] * unscored
    for number, (before, after) in enumerate(rows):
        example = {"input": {"kind": number % 2}}
        made.add(f"{label}{number}", example, Answers(label, (after,)), Answers(label, (before,)))
    return made


# --- the whole --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", list(itertools.combinations(ORDER, 2)))
def test_the_worst_rule_decides(pair) -> None:
    """BLOCK > MISSING > INCONCLUSIVE > WARN > PASS."""
    better, bad = pair
    assert worst([better, bad]) is worst([bad, better]) is bad
    assert [status.value for status in ORDER] == ["PASS", "WARN", "INCONCLUSIVE", "MISSING", "BLOCK"]


def test_nothing_checked_is_a_block() -> None:
    assert worst([]) is Status.BLOCK


def test_the_same_evidence_gives_the_same_answer() -> None:
    text = FLOOR.format(0.8) + "[[floors]]\nmetric = 'macro.f1'\nmin = 0.5\n"
    assert gate(text, measured(right(90, 100))) == gate(text, measured(right(90, 100)))


# --- the run itself ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "found"),
    [
        (RunStatus.SUCCEEDED, Status.PASS),
        (RunStatus.FAILED, Status.BLOCK),
        (RunStatus.CANCELLED, Status.BLOCK),
        (RunStatus.RUNNING, Status.MISSING),
        (RunStatus.PAUSED, Status.MISSING),
    ],
)
def test_only_a_run_that_succeeded_can_pass(status, found) -> None:
    """One that goes on may still bring what is missing; one that ended badly will not."""
    rules = gate(FLOOR.format(0.5), measured(right(100, 100), n_total=110), status=status)
    assert rules["run is over"].status is found
    assert rules["every example has a record"].status is (
        Status.BLOCK if status in {RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED} else Status.MISSING
    )


@pytest.mark.parametrize(("failed", "found"), [(0, Status.PASS), (2, Status.PASS), (3, Status.BLOCK)])
def test_failed_examples_over_the_limit_block(failed, found) -> None:
    rows = right(100 - failed, 100 - failed) + [("low", None, "a")] * failed
    rules = gate("max_failed_share = 0.02\n" + FLOOR.format(0.5), measured(rows))
    assert rules["failed examples"].status is found
    assert rules["failed examples"].observed == failed / 100


def test_duplicate_ids_block_and_are_named() -> None:
    rules = gate(FLOOR.format(0.5), measured(right(100, 100)), duplicates=Listed(count=1, ids=("twice",)))
    assert rules["example ids are unique"].status is Status.BLOCK
    assert "'twice'" in rules["example ids are unique"].reason


def test_missing_examples_block_beyond_what_the_policy_lets_pass() -> None:
    pairing = paired(0, 0, 100)
    for number in range(3):
        pairing.missing.add(f"gone{number}")
    for limit, found in ((3, Status.PASS), (2, Status.BLOCK)):
        rules = gate(f"max_missing = {limit}\n" + FLOOR.format(0.5), measured(right(100, 100)), pairing=pairing)
        assert rules["examples of the baseline"].status is found
        assert "'gone0'" in rules["examples of the baseline"].reason


@pytest.mark.parametrize(
    ("coverage", "found"),
    [
        (JudgeCoverage(100, 95, 95), Status.PASS),
        (JudgeCoverage(100, 89, 100), Status.BLOCK),
        (JudgeCoverage(100, 0, 0), Status.MISSING),
        (None, Status.MISSING),
    ],
)
def test_too_few_examples_seen_by_a_judge_block(coverage, found) -> None:
    """And where no record says who looked, that is missing, not zero."""
    rules = gate("min_judge_coverage = 0.9\n", measured(right(100, 100)), coverage=coverage)
    assert rules["judge coverage"].status is found


# --- floors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_right", "n", "floor", "found"),
    [
        (980, 1_000, 0.95, Status.PASS),
        (900, 1_000, 0.95, Status.BLOCK),
        (955, 1_000, 0.95, Status.INCONCLUSIVE),
        (945, 1_000, 0.95, Status.INCONCLUSIVE),
        (0, 5, 0.95, Status.BLOCK),
    ],
)
def test_a_floor_is_held_by_the_whole_interval(n_right, n, floor, found) -> None:
    """Above: pass. Below: block, however few. Around: not known, with the number that would tell."""
    rule = gate(FLOOR.format(floor), measured(right(n_right, n)))["floor accuracy"]
    assert (rule.status, rule.observed, rule.n, rule.threshold) == (found, n_right / n, n, floor)
    assert (rule.interval.low, rule.interval.high) == pytest.approx(wilson(n_right, n))
    assert (rule.n_needed is not None) == (found is Status.INCONCLUSIVE)


def test_the_number_needed_is_the_one_that_decides() -> None:
    """At the same share, so many examples pass and fewer don't."""
    needed = gate(FLOOR.format(0.9), measured(right(92, 100)))["floor accuracy"].n_needed
    for factor, found in ((1.02, Status.PASS), (0.95, Status.INCONCLUSIVE)):
        n = 100 * round(needed * factor / 100)
        assert gate(FLOOR.format(0.9), measured(right(92 * n // 100, n)))["floor accuracy"].status is found


def test_too_few_examples_are_inconclusive_even_when_all_are_right() -> None:
    rule = gate("min_n = 200\n" + FLOOR.format(0.5), measured(right(100, 100)))["floor accuracy"]
    assert (rule.status, rule.n_needed) == (Status.INCONCLUSIVE, 200)


@pytest.mark.parametrize(("n_right", "found"), [(955, Status.WARN), (945, Status.BLOCK), (990, Status.PASS)])
def test_a_point_proof_takes_the_best_estimate_and_says_so(n_right, found) -> None:
    text = FLOOR.format(0.95) + "proof = 'point'\n"
    assert gate(text, measured(right(n_right, 1_000)))["floor accuracy"].status is found


@pytest.mark.parametrize("n_right", [0, 90, 100])
def test_a_rule_that_only_warns_never_does_worse(n_right) -> None:
    text = (
        FLOOR.format(0.9) + "severity = 'warn'\n[[floors]]\nmetric='recall'\nlabel='nobody'\nmin=1\nseverity='warn'\n"
    )
    rules = gate(text, measured(right(n_right, 100)))
    assert {rules["floor accuracy"].status, rules["floor recall of nobody"].status} <= {Status.PASS, Status.WARN}


def test_unscored_examples_count_as_wrong() -> None:
    """95 of 95 right and five failed is 95 of 100."""
    rows = right(95, 95) + [("low", None, "a")] * 5
    rules = gate("max_failed_share = 1.0\n" + FLOOR.format(0.9), measured(rows))
    assert (rules["floor accuracy"].observed, rules["floor accuracy"].n) == (0.95, 100)


@pytest.mark.parametrize(
    ("metric", "label", "observed"),
    [
        ("recall", "high", 8 / 12),  # two of high failed
        ("precision", "high", 8 / 11),  # three of others failed: each could have been called high
        ("f1", "high", 16 / 23),  # 2TP / (2TP + FP + FN): 16 / (16 + 3 + 2 + 2)
        ("precision", "low", 10 / 14),
        ("balanced_accuracy", None, (10 / 13 + 8 / 12) / 2),
    ],
)
def test_the_worst_case_of_a_label_is_a_miss_or_a_false_alarm(metric, label, observed) -> None:
    rows = [("low", "low", 0)] * 10 + [("high", "high", 0)] * 8 + [("high", "low", 0)] * 2
    rows += [("high", None, 0)] * 2 + [("low", None, 0)] * 3
    found = measure(Part(measured(rows).tally, []), metric, label, level=0.95)
    assert found.observed == pytest.approx(observed)
    assert found.low <= found.observed <= found.high


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["a", "b", "c", None]), st.just(0)),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from(["accuracy", "balanced_accuracy", "macro.f1", "weighted.f1", "kappa", "matthews"]),
)
def test_failing_never_helps(rows, metric) -> None:
    """Whatever a failed example would have said, the figure is at least the worst case."""
    run = measured(rows)
    try:
        found = measure(Part(run.tally, []), metric, None, level=0.95)
    except Unmeasurable:
        return
    assert found.low - 1e-9 <= found.observed <= found.high + 1e-9
    mended = measured([(expected, scored or expected, value) for expected, scored, value in rows])
    try:
        assert found.observed <= measure(Part(mended.tally, []), metric, None, level=0.95).observed + 1e-9
    except Unmeasurable:
        return


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("metric = 'recall'\nlabel = 'nobody'\nmin = 0.5\n", "no example has this label"),
        ("metric = 'precision'\nlabel = 'high'\nmin = 0.5\n", "never predicted"),
        ("metric = 'kappa'\nmin = 0.5\n", "does not exist"),
        (
            "metric = 'accuracy'\nmin = 0.5\nslice = { path = '/input/kind', value = 'z' }\n",
            "no example has this value",
        ),
        ("metric = 'accuracy'\nmin = 0.5\nslice = { path = '/input/none' }\n", "no example has a single value"),
    ],
)
def test_what_is_not_there_is_missing_and_not_zero(rule, reason) -> None:
    run = measured(right(100, 100), paths=["/input/kind", "/input/none"])
    (found,) = [one for name, one in gate("[[floors]]\n" + rule, run).items() if name.startswith("floor")]
    assert found.status is Status.MISSING
    assert reason in found.reason


def test_nothing_scored_is_missing() -> None:
    rules = gate(FLOOR.format(0.1), measured([("low", None, "a")] * 10))
    assert (rules["floor accuracy"].status, rules["failed examples"].status) == (Status.MISSING, Status.BLOCK)


def test_a_rule_for_each_label_and_each_value_is_held_one_by_one() -> None:
    rows = [("low", "low", "a")] * 200 + [("high", "low", "b")] * 100
    text = "[[floors]]\nmetric = 'recall'\nlabel = '*'\nmin = 0.8\n"
    text += "[[floors]]\nname = 'kinds'\nmetric = 'accuracy'\nmin = 0.8\nslice = { path = '/input/kind' }\n"
    rules = gate(text, measured(rows, paths=["/input/kind"]))
    assert rules["floor recall of low"].status is Status.PASS
    assert rules["floor recall of high"].status is Status.BLOCK
    assert rules["kinds where /input/kind is a"].status is Status.PASS
    assert rules["kinds where /input/kind is b"].status is Status.BLOCK
    assert rules["kinds where /input/kind is b"].slice.value == "b"


def test_binary_floors_read_the_collapsed_labels() -> None:
    rows = [("high", "medium", "a")] * 100
    text = FLOOR.format(0.9) + "[[floors]]\nmetric = 'accuracy'\nmin = 0.9\nlabels = 'binary'\n"
    rules = gate(text, measured(rows))
    assert rules["floor accuracy"].status is Status.BLOCK
    assert rules["floor accuracy (binary)"].status is Status.PASS
    plain = gate("labels = 'binary'\n" + FLOOR.format(0.9), measured(rows, profile=SystemProfile(name="x")))
    assert plain["floor accuracy (binary)"].status is Status.MISSING


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(0, 0.4), st.floats(0, 0.4), st.floats(0, 1), st.integers(1, 500))
def test_a_floor_never_passes_below_it_nor_blocks_above_it(observed, down, up, floor, n) -> None:
    found = Measure(observed, observed - down, observed + up, n, n, lambda _: 1)
    for proof in ("interval", "point"):
        status, _, _ = judge_floor(found, floor, 100, proof)
        if status is Status.PASS:
            assert observed >= floor
            assert n >= 100
        if status is Status.BLOCK:
            assert observed < floor


# --- regressions ------------------------------------------------------------------------------------------------------


def fell(corrected: int, broke: int, both: int, tolerated: float, extra: str = "") -> RuleResult:
    text = f"[[regressions]]\ntolerated = {tolerated}\n{extra}"
    pairing = paired(corrected, broke, both)
    return gate(text, measured(right(100, 100)), pairing=pairing)["regression"]


@pytest.mark.parametrize(
    ("corrected", "broke", "both", "tolerated", "found"),
    [
        pytest.param(0, 0, 5_000, 0.01, Status.PASS, id="nothing changed"),
        pytest.param(8, 22, 2_000, 0.02, Status.WARN, id="real, and within the tolerance"),
        pytest.param(8, 22, 270, 0.02, Status.BLOCK, id="real, and larger by the best estimate"),
        pytest.param(0, 100, 200, 0.05, Status.BLOCK, id="larger beyond doubt"),
        pytest.param(20, 26, 200, 0.01, Status.INCONCLUSIVE, id="larger, and maybe chance"),
        pytest.param(20, 26, 200, 0.05, Status.INCONCLUSIVE, id="smaller, and not surely"),
        pytest.param(26, 20, 200, 0.05, Status.PASS, id="better"),
    ],
)
def test_real_and_larger_than_tolerated_are_asked_apart(corrected, broke, both, tolerated, found) -> None:
    rule = fell(corrected, broke, both, tolerated)
    assert rule.status is found
    assert rule.observed == pytest.approx((corrected - broke) / (corrected + broke + both))
    assert rule.threshold == -tolerated
    assert (rule.n_needed is not None) == (found is Status.INCONCLUSIVE)


@pytest.mark.parametrize(
    ("counts", "tolerated", "found"),
    [((20, 26, 200), 0.05, Status.PASS), ((20, 26, 200), 0.01, Status.WARN), ((8, 22, 270), 0.02, Status.BLOCK)],
)
def test_a_point_proof_lets_pass_what_may_be_chance(counts, tolerated, found) -> None:
    assert fell(*counts, tolerated, "proof = 'point'\n").status is found


def test_without_a_baseline_a_regression_is_missing() -> None:
    rule = gate("[[regressions]]\n", measured(right(100, 100)))["regression"]
    assert (rule.status, rule.observed) == (Status.MISSING, None)


def test_rules_that_found_no_part_are_told_apart_and_named_by_what_they_stand_for() -> None:
    """Without a baseline, and where there is no label and no value to stand for."""
    text = "[[regressions]]\n[[regressions]]\nlabel = '*'\n[[regressions]]\nslice = { path = '/input/kind' }\n"
    text += "[[regressions]]\nslice = { path = '/input/kind', value = true }\n[[regressions]]\nlabel = 'low'\n"
    text += "[[regressions]]\nlabels = 'binary'\n[[regressions]]\naxis = 'risk'\n"
    names = {
        "regression",
        "regression of each label",
        "regression for each /input/kind",
        "regression where /input/kind is true",
        "regression of low",
        "regression (binary)",
        "regression on axis risk",
    }
    assert names <= gate(text, measured(right(9, 9), paths=["/input/kind"])).keys()
    nobody = Pairing(PROFILE, PROFILE, ["/input/kind"])
    assert names <= gate(text, measured(right(9, 9), paths=["/input/kind"]), pairing=nobody).keys()
    floors = "[[floors]]\nmetric = 'accuracy'\nmin = 0\nslice = { path = '/input/none' }\n"
    floors += "[[floors]]\nmetric = 'recall'\nlabel = '*'\nmin = 0\n"
    assert {"floor accuracy for each /input/none", "floor recall of each label"} <= gate(
        floors, measured([], paths=["/input/none"])
    ).keys()


def test_what_the_candidate_failed_counts_as_broken() -> None:
    """Failing is no way around a regression."""
    pairing = paired(0, 0, 100, unscored=100)
    rule = gate("[[regressions]]\ntolerated = 0.1\n", measured(right(100, 100)), pairing=pairing)["regression"]
    assert (rule.status, rule.observed) == (Status.BLOCK, -0.5)


def test_labels_values_and_axes_are_held_one_by_one() -> None:
    pairing = paired(0, 0, 2_000)
    for number in range(60):
        pairing.add(f"b{number}", {"input": {"kind": 7}}, Answers("b", ("-",)), Answers("b", ("b",)))
    text = "[[regressions]]\nlabel = '*'\ntolerated = 0.02\n[[regressions]]\nlabel = 'nobody'\n"
    text += "[[regressions]]\nname = 'kinds'\nslice = { path = '/input/kind' }\ntolerated = 0.02\n"
    text += "[[regressions]]\naxis = 'risk'\n[[regressions]]\nlabels = 'binary'\nname = 'two labels'\ntolerated = 0.5\n"
    rules = gate(text, measured(right(100, 100), paths=["/input/kind"]), pairing=pairing)
    assert rules["regression of a"].status is Status.PASS
    assert rules["regression of b"].status is Status.BLOCK
    assert rules["regression of nobody"].status is Status.MISSING
    assert rules["kinds where /input/kind is 7"].status is Status.BLOCK
    assert rules["kinds where /input/kind is 0"].status is Status.PASS
    assert rules["regression on axis risk"].status is Status.MISSING
    assert rules["two labels"].status is Status.PASS


def test_many_labels_are_adjusted_for_looking_often() -> None:
    """Two against ten is real alone (p = 0.039) and chance among twenty labels."""
    text = "[[regressions]]\nlabel = '*'\ntolerated = 0.01\nproof = 'point'\n"
    alone, many = paired(2, 10, 90, label="bad"), paired(2, 10, 90, label="bad")
    for label, number in itertools.product(range(19), range(20)):
        side = Answers(f"fine{label}", (f"fine{label}",))
        many.add(f"{label}-{number}", None, side, side)
    run = measured(right(100, 100))
    assert gate(text, run, pairing=alone)["regression of bad"].status is Status.BLOCK
    assert gate(text, run, pairing=many)["regression of bad"].status is Status.WARN


@settings(deadline=None)
@given(
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 300),
    st.floats(0, 0.3),
    st.sampled_from(["interval", "point"]),
)
def test_a_run_that_is_not_worse_is_never_blocked_nor_a_worse_one_waved_through(
    corrected, broke, both, tolerated, proof
) -> None:
    if corrected + broke + both == 0:
        return
    rule = fell(corrected, broke, both, tolerated, f"proof = '{proof}'\n")
    difference = (corrected - broke) / (corrected + broke + both)
    if rule.status is Status.BLOCK:
        assert difference < -tolerated
    if rule.status is Status.PASS:
        assert difference >= -tolerated - 1e-12


def test_too_few_pairs_are_inconclusive_unless_the_fall_is_beyond_doubt() -> None:
    few = Fall(difference=0.0, low=-0.001, high=0.001, sure=0.001, n=10, p_value=1.0, needed=lambda _: 1)
    assert judge_fall(few, 0.01, 100, "interval", real=False)[:2] == (Status.INCONCLUSIVE, 100)
    sure = Fall(difference=-0.9, low=-1.0, high=-0.6, sure=-0.6, n=10, p_value=0.004, needed=lambda _: 1)
    assert judge_fall(sure, 0.01, 100, "interval", real=True)[0] is Status.BLOCK


def test_grouped_examples_need_more_to_pass() -> None:
    """Fifty copies of twenty examples hold no floor that twenty examples don't."""
    analysis = Analysis(PROFILE, 1_000)
    for position in range(1_000):
        scored = "low" if position % 20 else "high"
        analysis.add(position, {"group": str(position % 20)}, [Seen("low", scored, None, 0.5)])
    tied = Measured(analysis.tally(), analysis.breakdown(), PROFILE)
    free = Measured(Tally(1_000, tied.tally.scored), measured([]).breakdown, PROFILE)
    text = FLOOR.format(0.9) + "[[floors]]\nmetric = 'recall'\nlabel = 'low'\nmin = 0.9\n"
    for name in ("floor accuracy", "floor recall of low"):
        assert gate(text, free)[name].status is Status.PASS
        assert gate(text, tied)[name].status is Status.INCONCLUSIVE
