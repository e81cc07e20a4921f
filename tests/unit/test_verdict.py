"""The decision table: one test for each row, and that it speaks about every case once."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from app.evaluation.plan import Plan, Trigger
from app.evaluation.verdict import TABLE, UNGROUNDED_SUSPICION, Judge, Neighbors, Panel, decide, look_up
from layers.model import (
    Cause,
    Claim,
    ConsistencyResult,
    DisagreementResult,
    EvalPrediction,
    Failed,
    Finding,
    Flag,
    HeuristicResult,
    InstrumentPath,
    JudgeVerdict,
    LayerName,
    NarrativeGroundingResult,
    Outcome,
    ProviderError,
    Rung,
    Scored,
    Skipped,
    SkipReason,
)
from layers.profile import SystemProfile

PROFILE = SystemProfile(
    name="s", labels=("low", "medium", "high", "critical"), elevated=frozenset({"high", "critical"})
)
FREE = SystemProfile(name="free")
PREDICTION = EvalPrediction(id="1", raw_output={}, label="high", confidence=0.5)

NOBODY: dict[LayerName, Finding] = {}


def judge(label: str | None, *rungs: Rung, source: InstrumentPath = InstrumentPath.OLLAMA) -> JudgeVerdict:
    claims = tuple(Claim(text="c", evidence_ids=("E1",), rung=rung) for rung in rungs)
    return JudgeVerdict(source=source, verdict_label=label, agrees=None, confidence=0.9, reasoning=None, claims=claims)


def with_problems(label: str, *problems: tuple[str, ...]) -> JudgeVerdict:
    """One claim for each tuple of problems, all of them on a rung that would do."""
    claims = tuple(Claim(text="c", evidence_ids=("E1",), rung=Rung.ANCHOR_WARRANTED, problems=p) for p in problems)
    return judge(label).model_copy(update={"claims": claims})


def sound(label: str) -> JudgeVerdict:
    return judge(label, Rung.EVIDENCE_WARRANTED, Rung.ANCHOR_WARRANTED)


def panel(*labels: str, failed: bool = False) -> DisagreementResult:
    errors = {"down": ProviderError(kind="timeout", message="late")} if failed else {}
    return DisagreementResult(
        labels_by_provider={f"p{n}": label for n, label in enumerate(labels)},
        confidence_by_provider={},
        errors_by_provider=errors,
        agreed=None if failed or not labels else len(set(labels)) == 1,
        confidence_spread=None,
    )


def neighbors(consistent: bool | None) -> ConsistencyResult:
    return ConsistencyResult(consistent=consistent, majority_label=None, embedder="e", threshold=0.9)


J, D, C = LayerName.JUDGE, LayerName.DISAGREEMENT, LayerName.CONSISTENCY
FALLBACK = judge(None, source=InstrumentPath.HEURISTICS_FALLBACK)


def outcomes_of(findings: dict[LayerName, Finding]) -> dict[LayerName, Outcome]:
    outcomes: dict[LayerName, Outcome] = {
        name: Skipped(reason=SkipReason.NOT_SELECTED, version="1") for name in LayerName
    }
    clean: dict[LayerName, Finding] = {LayerName.HEURISTICS: HeuristicResult(flagged=False)}
    for name, finding in {**clean, **findings}.items():
        outcomes[name] = Scored(finding=finding, elapsed_ms=1, version="1")
    return outcomes


def plan(trigger: Trigger) -> Plan:
    return Plan(trigger, (), 1.0)


ROWS = [
    (Trigger.NONE, NOBODY, "nothing_flagged", "pass"),
    (Trigger.BLIND, NOBODY, "could_not_look", "inconclusive"),
    (Trigger.REFUSED, NOBODY, "question_refused", "review"),
    (Trigger.SOFT, {D: panel("high", "low"), J: sound("high")}, "panel_split", "review"),
    (Trigger.DRAWN, {J: judge("high", Rung.ANCHOR_WARRANTED, Rung.UNGROUNDED)}, "judge_ungrounded", "review"),
    (Trigger.SOFT, {J: with_problems("high", (), ("contradicted_by:E8",))}, "judge_contradicted", "review"),
    (Trigger.SOFT, {J: with_problems("high", ("circular",), ("mention_only",))}, "judge_circular", "review"),
    (Trigger.SOFT, {J: sound("low")}, "judge_overturns_far", "review"),
    (Trigger.SOFT, {D: panel("critical", "critical"), J: sound("high")}, "judge_against_panel", "review"),
    (Trigger.SOFT, {D: panel("high", "high"), J: sound("critical")}, "panel_against_judge", "review"),
    (Trigger.HARD, {C: neighbors(False), J: sound("high")}, "judge_against_neighbors", "review"),
    (Trigger.SOFT, {J: sound("critical")}, "judge_overturns", "flag"),
    (Trigger.SOFT, {D: panel("high", "high"), C: neighbors(True), J: sound("high")}, "judge_confirms", "pass"),
    (Trigger.HARD, {J: sound("high")}, "defect_stands", "flag"),
    (Trigger.SOFT, {D: panel("low", "low"), J: FALLBACK}, "panel_contradicts", "flag"),
    (Trigger.SOFT, {D: panel("high", "high"), C: neighbors(False)}, "neighbors_contradict", "flag"),
    (Trigger.SOFT, {D: panel("high", "high"), C: neighbors(True)}, "panel_and_neighbors_confirm", "pass"),
    (Trigger.HARD, {D: panel("high", "high"), C: neighbors(True)}, "defect_stands_unjudged", "flag"),
    (Trigger.SOFT, {D: panel("high", "high"), C: neighbors(None)}, "only_panel_confirms", "flag"),
    (Trigger.SOFT, {C: neighbors(True)}, "only_neighbors_confirm", "flag"),
    (Trigger.SOFT, {D: panel("high", failed=True), J: FALLBACK}, "no_second_opinion", "flag"),
    (Trigger.DRAWN, {D: panel("high", "high")}, "sample_panel_confirms", "pass"),
    (Trigger.DRAWN, {C: neighbors(True)}, "sample_neighbors_confirm", "pass"),
    (Trigger.DRAWN, NOBODY, "sample_not_looked_at", "inconclusive"),
]


@pytest.mark.parametrize(
    ("trigger", "findings", "row", "disposition"), [pytest.param(*case, id=case[2]) for case in ROWS]
)
def test_each_row_says_what_it_says(
    trigger: Trigger, findings: dict[LayerName, Finding], row: str, disposition: str
) -> None:
    """From findings, over the readings, to the row's name and disposition."""
    verdict = decide(PREDICTION, PROFILE, outcomes_of(findings), plan(trigger))
    assert (verdict.decision, verdict.disposition) == (row, disposition)


def test_each_row_has_its_test() -> None:
    """A row without a case above fails here."""
    assert [case[2] for case in ROWS] == [row.name for row in TABLE]


def test_every_combination_stands_in_exactly_one_row() -> None:
    """The table is total and free of overlaps: all combinations are counted out."""
    for combination in product(Trigger, Judge, Panel, Neighbors):
        assert len([row for row in TABLE if row.matches(*combination)]) == 1, combination
        assert look_up(*combination) in TABLE


def test_the_table_in_the_docs_is_this_one() -> None:
    """Names, readings and dispositions in docs/verdict.md are those of the code, in its order."""
    text = (Path(__file__).parents[2] / "docs" / "verdict.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \| (.+?) \| \*\*(\w+)\*\* \|", text, re.MULTILINE)
    assert documented == [
        (
            row.name,
            _cell(row.trigger, Trigger),
            _cell(row.judge, Judge),
            _cell(row.panel, Panel),
            _cell(row.neighbors, Neighbors),
            row.disposition.value,
        )
        for row in TABLE
    ]


def _cell(values, kind) -> str:
    return "any" if values == frozenset(kind) else ", ".join(value.value for value in kind if value in values)


@pytest.mark.parametrize("trigger", [Trigger.SOFT, Trigger.HARD, Trigger.DRAWN])
@pytest.mark.parametrize("label", ["high", "critical", "low"])
def test_an_ungrounded_judge_neither_confirms_nor_overturns(trigger: Trigger, label: str) -> None:
    """Whatever label it gives, a judge whose pointers do not verify sends the item to a person."""
    for verdict in (judge(label), judge(label, Rung.UNGROUNDED)):
        assert decide(PREDICTION, PROFILE, outcomes_of({J: verdict}), plan(trigger)).disposition == "review"


@pytest.mark.parametrize("trigger", [Trigger.SOFT, Trigger.HARD, Trigger.DRAWN])
@pytest.mark.parametrize("label", ["high", "critical", "low"])
@pytest.mark.parametrize("false", ["contradicted_by:E8", "relation_false:1 > 2", "date_order:a before b"])
def test_a_judge_with_a_false_claim_neither_confirms_nor_overturns(trigger: Trigger, label: str, false: str) -> None:
    """One is enough, whatever else it said and whatever the others say: a pass is out of reach."""
    for others in ((), ((), ())):
        for found in ({}, {D: panel("high", "high"), C: neighbors(True)}):
            given = outcomes_of({**found, J: with_problems(label, (false,), *others)})
            verdict = decide(PREDICTION, PROFILE, given, plan(trigger))
            assert (verdict.decision, verdict.disposition) == ("judge_contradicted", "review")


@pytest.mark.parametrize("label", ["high", "critical", "low"])
def test_a_judge_that_rests_on_the_prediction_alone_decides_nothing(label: str) -> None:
    """One claim with another reason lifts that; a claim that is merely beside it takes nothing away."""
    alone = outcomes_of({J: with_problems(label, ("circular",), ("idle_pointer:E1", "mention_only"))})
    assert decide(PREDICTION, PROFILE, alone, plan(Trigger.SOFT)).decision == "judge_circular"
    beside = outcomes_of({J: with_problems(label, ("circular",), ())})
    assert decide(PREDICTION, PROFILE, beside, plan(Trigger.SOFT)).decision != "judge_circular"


def test_a_split_panel_goes_to_review_even_when_another_provider_failed() -> None:
    """Two labels that differ are a split, whatever the third one would have said, and no label wins."""
    verdict = decide(PREDICTION, PROFILE, outcomes_of({D: panel("high", "low", failed=True)}), plan(Trigger.SOFT))
    assert (verdict.decision, verdict.disposition) == ("panel_split", "review")


@pytest.mark.parametrize(
    ("profile", "one", "other", "decision"),
    [
        pytest.param(PROFILE, "high", "critical", "judge_overturns", id="next label, same side"),
        pytest.param(PROFILE, "medium", "low", "judge_overturns", id="next label below the line"),
        pytest.param(PROFILE, "medium", "high", "judge_overturns_far", id="next label across the line"),
        pytest.param(PROFILE, "low", "critical", "judge_overturns_far", id="far apart"),
        pytest.param(PROFILE, "high", "weird", "judge_overturns_far", id="a label outside the order is not elevated"),
        pytest.param(FREE, "a", "b", "judge_overturns", id="no order known"),
        pytest.param(
            SystemProfile(name="o", labels=("a", "b", "c")), "a", "c", "judge_overturns_far", id="two steps, no line"
        ),
    ],
)
def test_how_far_the_judge_goes_decides_between_flag_and_review(
    profile: SystemProfile, one: str, other: str, decision: str
) -> None:
    """A severe disagreement is for a person."""
    prediction = PREDICTION.model_copy(update={"label": one})
    assert decide(prediction, profile, outcomes_of({J: sound(other)}), plan(Trigger.SOFT)).decision == decision


def test_labels_compare_exactly_unless_the_profile_folds_case() -> None:
    """`High` is another label than `high`, but for a profile that says otherwise."""
    exact = decide(PREDICTION, FREE, outcomes_of({J: sound("High")}), plan(Trigger.SOFT))
    folded = SystemProfile(name="f", fold_case=True)
    assert exact.decision == "judge_overturns"
    assert decide(PREDICTION, folded, outcomes_of({J: sound("High")}), plan(Trigger.SOFT)).decision == "judge_confirms"


@pytest.mark.parametrize(
    ("outcome", "degraded"),
    [
        pytest.param(Skipped(reason=SkipReason.NOT_SELECTED, version="1"), False, id="not selected"),
        pytest.param(Skipped(reason=SkipReason.NO_INPUT, version="1"), False, id="nothing to look at"),
        pytest.param(Skipped(reason=SkipReason.NOT_CONFIGURED, version="1"), True, id="not configured"),
        pytest.param(Skipped(reason=SkipReason.CIRCUIT_OPEN, version="1"), True, id="circuit open"),
        pytest.param(Failed(cause=Cause(kind="timeout", message="late"), elapsed_ms=1, version="1"), True, id="failed"),
        pytest.param(Scored(finding=FALLBACK, elapsed_ms=1, version="1"), True, id="no judge answered"),
        pytest.param(Scored(finding=sound("high"), elapsed_ms=1, version="1"), False, id="a judge answered"),
    ],
)
def test_degraded_means_that_a_layer_that_should_have_spoken_did_not(outcome: Outcome, degraded: bool) -> None:
    """Nothing else makes an answer degraded."""
    outcomes = outcomes_of({}) | {J: outcome}
    assert decide(PREDICTION, PROFILE, outcomes, plan(Trigger.SOFT)).degraded is degraded


def test_assurance_is_the_lowest_rung_of_a_model_s_claims() -> None:
    """No claim at all is the lowest; without a model's verdict there is none."""

    def assurance(finding: JudgeVerdict | None = None) -> Rung | None:
        given = outcomes_of({J: finding} if finding else {})
        return decide(PREDICTION, PROFILE, given, plan(Trigger.SOFT)).assurance

    assert assurance(judge("high", Rung.EVIDENCE_WARRANTED, Rung.POINTER_LINKED)) is Rung.POINTER_LINKED
    assert assurance(judge("high")) is Rung.UNGROUNDED
    assert assurance(FALLBACK) is None
    assert assurance() is None


def test_the_instrument_path_is_who_really_answered() -> None:
    """The fallback says so; a judge that was not asked leaves it empty."""

    def path(finding: JudgeVerdict | None = None) -> str | None:
        given = outcomes_of({J: finding} if finding else {})
        return decide(PREDICTION, PROFILE, given, plan(Trigger.SOFT)).instrument_path

    assert path(sound("high")) == "ollama"
    assert path(FALLBACK) == "heuristics_fallback"
    assert path() is None


def test_no_model_moves_the_suspicion_score() -> None:
    """It is the largest of the heuristics' severity and the grounding's; nobody who looked gives null, not 0."""
    flag = Flag(rule="r", reason="r", severity=0.38, pointer="/confidence")
    heuristics = HeuristicResult(flagged=True, flags=(flag,), suspicion_score=0.38)
    grounding = NarrativeGroundingResult(ng_flagged=True, stage=2)
    h, g = LayerName.HEURISTICS, LayerName.NARRATIVE_GROUNDING

    def score(given: dict[LayerName, Outcome]) -> float | None:
        return decide(PREDICTION, PROFILE, given, plan(Trigger.SOFT)).suspicion_score

    assert score(outcomes_of({})) == 0.0
    assert score(outcomes_of({h: heuristics, J: sound("low")})) == 0.38
    assert score(outcomes_of({h: heuristics, g: grounding})) == UNGROUNDED_SUSPICION
    failed = Failed(cause=Cause(kind="crashed", message="KeyError"), elapsed_ms=1, version="1")
    assert score(outcomes_of({}) | {h: failed}) is None
    assert score(outcomes_of({g: grounding}) | {h: failed}) == UNGROUNDED_SUSPICION
