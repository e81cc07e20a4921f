"""The compliance row is computed from what was recorded, and a broken principle shows."""

import copy

import pytest

from app.evaluation.verdict import TABLE, Judge
from layers import compliance as compliance_module
from layers.compliance import PLAN_KEYS, Recorded, compliance, row_so_far, so_far, summary
from layers.model import Evidence, EvidenceRole
from layers.pointers import verify_claims
from layers.provenance import Recorder

EVIDENCE = [Evidence(id="E1", role=EvidenceRole.RAW_OUTPUT, pointer="/confidence", text="0.62")]
CLAIMS = [
    {"text": "The confidence is 0.62", "evidence_ids": ["E1"]},
    {"text": "The confidence is 0.63", "evidence_ids": ["E1"]},
]


def judged() -> Recorded:
    verification = verify_claims(CLAIMS, EVIDENCE).as_json()
    return Recorded(
        stages={
            "preflight": [{"status": "clear"}],
            "retrieval_plan": [{"layer": "consistency", **dict.fromkeys(PLAN_KEYS)}],
            "evidence": [{"items": [{"id": "E1"}]}],
            "prompt": [{"layer": "judge", "text": "...", "sha256": "sha256:00"}],
            "model_output": [{"layer": "judge", "text": "{}"}],
            "verification": [{"layer": "judge", **verification}],
        },
        verdict={
            "disposition": "review",
            "decision": "row",
            "suspicion_score": 0.5,
            "heuristic_result": {"flags": [{"severity": 0.5}]},
        },
    )


def status(recorded: Recorded) -> dict[int, str]:
    return {row.principle: row.status for row in compliance(recorded)}


def test_a_judged_evaluation_holds_to_every_principle_that_it_can_show():
    rows = compliance(judged())
    assert [row.principle for row in rows] == list(range(1, 11))
    assert all(row.how for row in rows)
    assert summary(rows) == {"held": [1, 2, 3, 4, 5, 6, 7, 9], "not_applicable": [8, 10], "violated": []}


def test_an_evaluation_without_a_model_has_no_occasion_for_most():
    plain = Recorded({"preflight": [{"status": "not_needed"}]}, judged().verdict)
    assert summary(compliance(plain)) == {
        "held": [4, 9],
        "not_applicable": [1, 2, 3, 5, 6, 7, 8, 10],
        "violated": [],
    }


def decided_by_a_judge(*problems):
    """What a verdict says that took a judge's word, whose claims had these problems."""
    return {"decision": "judge_confirms", "judge_verdict": {"claims": [{"problems": list(each)} for each in problems]}}


def test_a_judge_s_word_is_taken_on_one_claim_that_gives_a_reason():
    good = judged()
    taken = {**good.verdict, **decided_by_a_judge(("circular",), ("uncovered:x",))}
    assert status(Recorded(good.stages, taken))[9] == "held"


def test_the_rows_that_take_a_judge_s_word_are_rows_of_the_table():
    """They are named once more here, since whoever holds a bundle has no table."""
    against_no_one = {
        row.name for row in TABLE if row.disposition in {"pass", "flag"} and Judge.SILENT not in row.judge
    }
    assert against_no_one == compliance_module.JUDGE_DECIDES


def set_rung(stages, number, rung):
    stages["verification"][0]["claims"][number]["rung"] = rung


@pytest.mark.parametrize(
    ("principle", "change"),
    [
        pytest.param(
            1, lambda s, v: s["verification"][0]["checks"][0].update(name="asked_a_model"), id="unknown-check"
        ),
        pytest.param(1, lambda s, v: s["verification"][0]["checks"][0].update(method=""), id="no-method"),
        pytest.param(2, lambda s, v: s["verification"][0]["claims"][0].update(quote="x"), id="quotation-read"),
        pytest.param(2, lambda s, v: s.pop("verification"), id="answer-not-verified"),
        pytest.param(3, lambda s, v: s.pop("evidence"), id="no-map"),
        pytest.param(3, lambda s, v: s["evidence"][0].update(items=[]), id="points-outside-the-map"),
        pytest.param(4, lambda s, v: s.pop("preflight"), id="policy-not-bound"),
        pytest.param(4, lambda s, v: s["retrieval_plan"][0].pop("top_k"), id="plan-incomplete"),
        pytest.param(4, lambda s, v: s["prompt"][0].pop("sha256"), id="prompt-not-bound"),
        pytest.param(5, lambda s, v: s["verification"][0]["checks"].pop(), id="check-missing"),
        pytest.param(6, lambda s, v: set_rung(s, 1, "ANCHOR-WARRANTED"), id="anchor-missing-and-warranted"),
        pytest.param(7, lambda s, v: s["verification"][0].update(rung="EVIDENCE-WARRANTED"), id="not-the-lowest"),
        pytest.param(7, lambda s, v: set_rung(s, 0, "ENTAILMENT-VERIFIED"), id="entailment"),
        pytest.param(7, lambda s, v: set_rung(s, 0, "SUPREME"), id="no-rung"),
        pytest.param(9, lambda s, v: v.update(suspicion_score=0.1), id="score-below-the-flags"),
        pytest.param(9, lambda s, v: v.update(decision=None), id="no-row-of-the-table"),
        pytest.param(
            9, lambda s, v: v.update(decided_by_a_judge((), ("date_order:x",))), id="decided-on-a-false-claim"
        ),
        pytest.param(9, lambda s, v: v.update(decided_by_a_judge(("circular",))), id="decided-on-the-label-itself"),
        pytest.param(9, lambda s, v: v.update(decided_by_a_judge()), id="decided-without-a-claim"),
    ],
)
def test_a_broken_principle_is_violated(principle, change):
    good = judged()
    stages, verdict = copy.deepcopy(good.stages), copy.deepcopy(good.verdict)
    change(stages, verdict)
    assert status(Recorded(stages, verdict))[principle] == "violated"


def test_a_recorder_can_be_asked_before_it_is_closed():
    good = judged()
    recorder = Recorder()
    recorder.note("input", {"id": "t"})
    for stage, notes in good.stages.items():
        for note in notes:
            recorder.note(stage, dict(note))
    assert compliance(so_far(recorder, good.verdict)) == compliance(good)


@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize("decision", ["row", None])
def test_the_short_way_gives_the_same_row(bound, decision):
    """Where nobody was asked the row is remembered; it is the one that is worked out."""
    verdict = {**judged().verdict, "decision": decision}
    recorder = Recorder()
    recorder.note("input", {"id": "t"})
    if bound:
        recorder.note("preflight", {"status": "not_needed"})
    assert row_so_far(recorder, verdict) == summary(compliance(so_far(recorder, verdict)))
    recorder.note("prompt", {"text": "p", "sha256": "x"})
    assert row_so_far(recorder, verdict) == summary(compliance(so_far(recorder, verdict)))


def test_a_providers_answer_is_no_judges_claim():
    recorded = Recorded({"preflight": [{}], "model_output": [{"layer": "disagreement"}]}, judged().verdict)
    assert status(recorded)[2] == "not_applicable"
