"""How sure a gate is of a figure, and how many examples or pairs would tell."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.gates.fall import fall_of
from app.gates.floors import Measured, measure
from app.gates.measures import Part
from app.gates.model import Status
from app.runs.analysis import Analysis, Seen
from app.runs.model import RunStatus
from app.runs.statistics.paired import PairedCounts, paired_difference_at
from app.runs.statistics.proportion import wilson
from tests.unit.test_gate_decide import FLOOR, PROFILE, fell, gate, measured, paired, right

OF_ALL = [
    "macro.precision",
    "macro.recall",
    "macro.f1",
    "weighted.precision",
    "weighted.f1",
    "balanced_accuracy",
    "kappa",
    "matthews",
]


def perfect(n: int) -> list:
    return [(("low", "high")[number % 2],) * 2 + ("a",) for number in range(n)]


def floor_of(metric: str, least: float, label: str | None = None, extra: str = "") -> str:
    return (
        f"{extra}[[floors]]\nmetric = '{metric}'\nmin = {least}\n"
        + (f"label = '{label}'\n" if label else "")
        + "name = 'it'\n"
    )


@pytest.mark.parametrize(("metric", "label"), [*((name, None) for name in OF_ALL), ("f1", "low")])
@pytest.mark.parametrize("n", [2, 4, 20])
def test_a_few_examples_that_are_all_right_prove_nothing(metric, label, n) -> None:
    """No resample differs, so resampling can't tell: that is inconclusive, or a warning by point."""
    rule = gate(floor_of(metric, 0.95, label), measured(perfect(n)))["it"]
    assert (rule.status, rule.observed, rule.n) == (Status.INCONCLUSIVE, 1.0, n)
    assert rule.interval.low < 0.95
    assert rule.interval.high == 1.0
    by_point = gate(floor_of(metric, 0.95, label, "proof = 'point'\n"), measured(perfect(n)))["it"]
    assert (by_point.status, by_point.n_needed) == (Status.WARN, rule.n_needed)


@pytest.mark.parametrize("metric", [*OF_ALL, "weighted.recall"])
@pytest.mark.parametrize("rows", [[("low", "low", "a")], [("low", "low", "a"), ("low", "high", "a")] * 2])
def test_examples_of_one_label_prove_as_little(metric, rows) -> None:
    """Not even precision, which can't be wrong while nobody expects another label."""
    rule = gate(floor_of(metric, 0.95), measured(rows))["it"]
    if metric in {"kappa", "matthews"}:
        assert rule.status is Status.MISSING
    else:
        assert rule.status is not Status.PASS
        assert rule.interval.low < 0.9


@pytest.mark.parametrize(("metric", "label"), [*((name, None) for name in OF_ALL), ("f1", "low")])
def test_as_many_as_needed_that_are_all_right_pass(metric, label) -> None:
    needed = gate(floor_of(metric, 0.95, label), measured(perfect(4)))["it"].n_needed
    more, fewer = 2 * round(needed * 1.02 / 2 + 1), 2 * round(needed * 0.9 / 2)
    assert gate(floor_of(metric, 0.95, label), measured(perfect(more)))["it"].status is Status.PASS
    assert gate(floor_of(metric, 0.95, label), measured(perfect(fewer)))["it"].status is Status.INCONCLUSIVE


@pytest.mark.parametrize("metric", ["macro.f1", "weighted.f1", "macro.precision"])
def test_two_wrong_examples_are_no_sure_block(metric) -> None:
    rule = gate(floor_of(metric, 0.1), measured([("low", "high", "a")] * 2))["it"]
    assert (rule.status, rule.observed) == (Status.INCONCLUSIVE, 0.0)


@pytest.mark.parametrize("metric", ["kappa", "matthews"])
def test_an_agreement_with_somebody_who_says_one_thing_is_missing(metric) -> None:
    """As in the report; over so many scored examples it is not defined."""
    rows = [("low", "low", "a")] * 2 + [("high", "low", "a")] * 2
    rule = gate(floor_of(metric, 0.0), measured(rows))["it"]
    assert (rule.status, rule.n, rule.interval) == (Status.MISSING, 4, None)
    assert "every prediction is the same label" in rule.reason


def test_a_figure_without_n_would_be_none_over_all_scored() -> None:
    rule = gate(floor_of("kappa", 0.5), measured(right(200, 200)))["it"]
    assert (rule.status, rule.n) == (Status.MISSING, 200)


def test_failed_examples_are_resampled_with_the_others() -> None:
    """Thirty of 300 failed: as wide as when all 300 are drawn, the worst case of the failed ones included."""
    rng = np.random.default_rng(3)
    expected = np.arange(300) % 2
    predicted = np.where(np.arange(300) % 10 == 0, -1, np.where(rng.random(300) < 0.9, expected, 1 - expected))
    names = ["low", "high"]
    rows = [(names[e], None if p < 0 else names[p], "a") for e, p in zip(expected, predicted, strict=True)]

    def f1_of_low(chosen):
        e, p = expected[chosen], predicted[chosen]
        hits = ((e == 0) & (p == 0)).sum()
        return 2 * hits / ((e == 0).sum() + (p == 0).sum() + ((p < 0) & (e == 1)).sum())

    drawn = [f1_of_low(rng.integers(0, 300, 300)) for _ in range(4_000)]
    found = measure(Part(measured(rows).tally, []), "f1", "low", level=0.95)
    assert found.observed == pytest.approx(f1_of_low(np.arange(300)))
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(drawn, [2.5, 97.5])), abs=0.006)


def test_failures_alone_make_an_interval_with_a_width() -> None:
    rows = perfect(90) + [("low", None, "a"), ("high", None, "a")] * 5
    found = measure(Part(measured(rows).tally, []), "macro.f1", None, level=0.95)
    assert found.low < found.observed - 0.03
    assert found.high > found.observed + 0.03


def test_failures_of_groups_are_drawn_with_their_group() -> None:
    """Ten groups of ten, one of which failed as a whole, say less than ten failures here and there."""

    def width(group) -> float:
        analysis = Analysis(PROFILE, 100)
        for position in range(100):
            label = ("low", "high")[position % 2]
            failed = position >= 90
            seen = Seen(label, None if failed else label, "timeout" if failed else None, None)
            analysis.add(position, {"group": group(position)}, [seen])
        run = Measured(analysis.tally(), analysis.breakdown(), PROFILE)
        found = measure(run.whole("strict"), "macro.f1", None, level=0.95)
        assert found.observed == pytest.approx(0.9)
        return found.high - found.low

    assert width(lambda position: str(position // 10)) > 1.5 * width(str)


@pytest.mark.parametrize(("n", "needed"), [(50, 189), (100, 189), (150, 189)])
def test_with_nothing_changed_the_number_needed_does_not_hang_on_how_many_there_are(n, needed) -> None:
    rule = fell(0, 0, n, 0.02)
    assert (rule.status, rule.n_needed) == (Status.INCONCLUSIVE, needed)
    assert fell(0, 0, needed, 0.02).status is Status.PASS
    assert fell(0, 0, round(0.9 * needed), 0.02).status is Status.INCONCLUSIVE


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 12), st.integers(0, 12), st.integers(20, 120), st.integers(0, 20), st.floats(0.01, 0.2))
def test_so_many_pairs_in_the_same_shares_pass_and_a_tenth_fewer_do_not(
    corrected, broke, both_right, both_wrong, tolerated
) -> None:
    """By the very method that the rule decides with; shares are kept exactly, by counting pairs in fractions."""
    grid = {
        (True, True): both_right,
        (False, True): corrected,
        (True, False): broke,
        (False, False): both_wrong,
    }
    pairing = paired(0, 0, 0)
    pairing.strict.grid.update(grid)
    fall = fall_of(pairing.strict, pairing, 0.05, 1)
    if fall.low >= -tolerated or fall.difference <= -tolerated + 1e-3:
        return
    needed = fall.needed(tolerated)
    counts = PairedCounts(both_right, corrected, broke, both_wrong)
    assert paired_difference_at(counts, needed)[1] >= -tolerated
    assert paired_difference_at(counts, max(counts.n, 0.9 * needed))[1] < -tolerated


@pytest.mark.parametrize(
    ("corrected", "broke", "both", "tolerated", "fewer"), [(20, 26, 200, 0.01, 0.9), (2, 6, 100, 0.02, 0.7)]
)
def test_a_fall_that_may_be_chance_says_how_many_pairs_would_block(corrected, broke, both, tolerated, fewer) -> None:
    """Of a few changed pairs one more or less, which shares don't allow for, is much."""
    rule = fell(corrected, broke, both, tolerated)
    assert rule.status is Status.INCONCLUSIVE
    factor = rule.n_needed / (corrected + broke + both)
    for more, found in ((1.02, Status.BLOCK), (fewer, Status.INCONCLUSIVE)):
        counts = [round(cell * factor * more) for cell in (corrected, broke, both)]
        assert fell(*counts, tolerated).status is found


def test_what_lies_exactly_on_the_line_is_told_by_no_number() -> None:
    floor = gate(FLOOR.format(0.95), measured(right(95, 100)))["floor accuracy"]
    fall = fell(0, 2, 98, 0.02)
    for rule in (floor, fall):
        assert (rule.status, rule.n_needed) == (Status.INCONCLUSIVE, None)
        assert "exactly" in rule.reason


def test_only_what_was_asked_counts_and_the_rest_is_missing() -> None:
    """A run that was cancelled after 33 of 400, three of which failed."""
    rows = [*perfect(30), *[("low", None, "a")] * 3]
    rules = gate(FLOOR.format(0.5), measured(rows, n_total=400), status=RunStatus.CANCELLED)
    failed = rules["failed examples"]
    assert (failed.observed, failed.n, failed.reason) == (3 / 33, 33, "3 of 33 examples failed")
    assert failed.interval.high == pytest.approx(wilson(3, 33)[1])
    assert rules["floor accuracy"].n == 33
    lacking = rules["every example has a record"]
    assert (lacking.status, lacking.observed, lacking.n) == (Status.BLOCK, 367, 400)
    assert "over the 33 that were asked" in lacking.reason


def test_a_baseline_that_was_never_set_is_named() -> None:
    rule = gate("baseline = 'production'\n[[regressions]]\n", measured(right(9, 9)))["regression"]
    assert (rule.status, "the baseline production" in rule.reason) == (Status.MISSING, True)
