"""Preflight: plain code asks first whether there is anything to ask."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.canonical import canonical_bytes, sha256_of
from layers.contracts import PreflightPolicy, make_contracts
from layers.evidence import build_evidence
from layers.model import (
    ConsistencyResult,
    EvalPrediction,
    LayerName,
    Neighbor,
    PromptRef,
    Scored,
)
from layers.preflight import preflight
from layers.preflight_detectors import Detector, Subject
from layers.profile import SystemProfile
from layers.provenance import Recorder
from layers.quantifiers import Demand

PROFILE = SystemProfile(
    name="s",
    labels=("low", "medium", "high", "critical"),
    elevated=frozenset({"high", "critical"}),
    not_verdicts=frozenset({"skipped"}),
    label_pointer="/risk_level",
    narrative_pointer="/narrative",
)
CONTRACTS = make_contracts(PROFILE, prompt=PromptRef(name="judge", version="1", sha256="sha256:00"))
PLAIN = {"risk_level": "high", "narrative": "A transfer of 500 to the merchant Acme.", "merchant": "Acme"}


def look(raw_output=PLAIN, label="high", profile=PROFILE, outcomes=None, as_of=None, input=None, **policy):
    prediction = EvalPrediction(id="t", raw_output=raw_output, label=label, confidence=0.5)
    evidence = build_evidence(prediction, profile=profile, input=input, outcomes=outcomes)
    return preflight(Subject(prediction, profile, evidence, PreflightPolicy(**policy), as_of), CONTRACTS)


def seen(result) -> set[Detector]:
    return {concern.detector for concern in result.concerns}


def test_an_ordinary_item_is_clear():
    result = look()
    assert (result.status, result.concerns) == ("clear", ())


# --- detectors: a true and a false case each -----------------------------------------------------------------------


@pytest.mark.parametrize("label", ["skipped", "severe", "yes", "High"])
def test_a_label_that_nobody_offers_is_refused(label):
    result = look(label=label)
    assert (result.status, result.refused) == ("refused", True)
    assert Detector.FALSE_PREMISE in seen(result)


def test_a_profile_that_folds_case_or_has_no_labels_refuses_no_label():
    folding = PROFILE.model_copy(update={"fold_case": True})
    free = PROFILE.model_copy(update={"labels": (), "elevated": frozenset()})
    assert not look(label="HIGH", profile=folding).refused
    assert not look(label="anything", profile=free).refused


def test_a_narrative_that_misstates_a_field_is_a_false_premise():
    raw = {**PLAIN, "amount": 50, "narrative": "The amount is 5,000 and goes to Acme."}
    (concern,) = [c for c in look(raw).concerns if c.detector is Detector.FALSE_PREMISE]
    assert (concern.refuses, len(concern.evidence_ids)) == (False, 1)
    assert look({**raw, "narrative": "The amount is 50 and goes to Acme."}).concerns == ()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param({**PLAIN, "risk_level": "low"}, id="payload-has-another-label"),
        pytest.param({**PLAIN, "narrative": "Acme is a low risk merchant."}, id="narrative-names-another-label"),
        pytest.param(
            {**PLAIN, "narrative": "Acme always reports transfers abroad. Acme never reports transfers abroad."},
            id="always-and-never",
        ),
    ],
)
def test_what_says_two_things_is_contradictory(raw):
    result = look(raw)
    assert Detector.CONTRADICTORY in seen(result)
    assert result.status == "raised"


def test_always_and_never_of_different_things_is_no_contradiction():
    raw = {**PLAIN, "narrative": "Acme always pays invoices. Couriers never carry cash."}
    assert Detector.CONTRADICTORY not in seen(look(raw))


def test_two_sentences_that_both_affirm_or_both_deny_are_no_contradiction():
    for word in ("always", "never"):
        raw = {**PLAIN, "narrative": f"Acme {word} reports transfers abroad. It {word} reports transfers abroad late."}
        assert Detector.CONTRADICTORY not in seen(look(raw))


def test_neighbours_of_an_older_policy_are_a_stale_risk():
    finding = ConsistencyResult(
        consistent=True,
        majority_label="high",
        neighbors=(Neighbor(id="n1", label="high", similarity=0.95, stale=True),),
        embedder="e",
        threshold=0.9,
    )
    result = look(outcomes={LayerName.CONSISTENCY: Scored(finding=finding, elapsed_ms=1, version="1")})
    assert Detector.STALE_RISK in seen(result)


@pytest.mark.parametrize(
    ("as_of", "stale"),
    [("2026-01-01T00:00:00Z", True), ("2024-12-31T00:00:00Z", False), (None, False)],
)
def test_an_old_time_in_the_item_is_a_stale_risk_when_the_time_is_known(as_of, stale):
    raw = {**PLAIN, "created_at": "2024-06-01T10:00:00Z"}
    assert (Detector.STALE_RISK in seen(look(raw, as_of=as_of))) == stale


def test_nothing_to_point_to_is_refused():
    result = look({})
    assert result.refused
    assert Detector.OUT_OF_CORPUS in seen(result)


def test_a_narrative_about_something_else_is_out_of_corpus_and_only_raised():
    result = look({"risk_level": "high", "narrative": "Penguins march over frozen plains.", "merchant": "Acme"})
    assert Detector.OUT_OF_CORPUS in seen(result)
    assert not result.refused


def test_a_label_word_that_is_also_a_fields_value_keeps_both_readings():
    result = look(PLAIN, input={"priority": "high", "high_value": True})
    (concern,) = result.concerns
    assert concern.detector is Detector.FRAME_AMBIGUOUS
    assert [(how.value, pointer) for how, pointer in concern.readings] == [
        ("label", ""),
        ("field", "/high_value"),
        ("value", "/priority"),
    ]


# --- strength ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "step", "demand", "refused"),
    [
        ("Acme sent a transfer.", 2, Demand.ONE, False),
        ("Several transfers went to Acme.", 5, Demand.TWO, False),
        ("Most transfers went to Acme.", 7, Demand.MAJORITY, False),
        ("Every transfer went to Acme.", 10, Demand.EXHAUSTIVE, False),
        ("No customer ever complains.", 10, Demand.EXHAUSTIVE, True),
    ],
)
def test_strong_words_raise_what_must_be_shown_and_empty_ones_are_refused(sentence, step, demand, refused):
    result = look({**PLAIN, "narrative": sentence})
    (found,) = result.sentences
    assert (found.step, found.demand, found.refused) == (step, demand, refused)
    assert (result.status == "clear") == (demand is Demand.ONE)


def test_a_refused_sentence_does_not_refuse_the_question():
    assert not look({**PLAIN, "narrative": "A transfer to Acme. Nobody ever complains."}).refused


def test_only_so_much_is_read_and_the_result_says_so():
    long = {**PLAIN, "narrative": "To Acme. " * 100}
    result = look(long, max_sentences=5)
    assert (len(result.sentences), result.cut) == (5, True)
    assert not look(PLAIN, max_sentences=5).cut
    assert look(long, max_characters=20).cut


# --- the stage -----------------------------------------------------------------------------------------------------


def test_the_stage_holds_the_contracts_and_the_policy_in_force():
    stage = look().as_json()
    assert stage["status"] == "clear"
    assert stage["answer_contract"]["labels"] == ["low", "medium", "high", "critical"]
    assert stage["prompt_contract"]["sha256"] == "sha256:00"
    assert stage["evidence_contract"]["max_per_role"]["raw_output"] > 0
    assert stage["policy"]["profile"] == "s"
    json.loads(canonical_bytes(stage))


def test_an_item_that_nothing_was_asked_about_still_binds_the_policy():
    stage = json.loads(CONTRACTS.not_needed)
    assert (stage["status"], stage["policy"]["profile"]) == ("not_needed", "s")


def test_another_profile_is_another_policy_and_the_same_one_the_same():
    def policy_hash(profile: SystemProfile) -> str:
        return make_contracts(profile).policy["profile_sha256"]

    other = PROFILE.model_copy(update={"elevated": frozenset({"critical"})})
    assert policy_hash(PROFILE) == policy_hash(SystemProfile.model_validate(PROFILE.model_dump()))
    assert policy_hash(PROFILE) != policy_hash(other)


def test_the_profiles_hash_does_not_depend_on_the_order_of_a_set():
    """Sets are hashed in order, lists and tuples as they are: another process gets the same hash."""
    names = [f"source{i:02}" for i in range(20)]
    profile = PROFILE.model_copy(update={"fallback_sources": frozenset(names)})
    dumped = profile.model_dump()
    plain = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in dumped.items()}
    assert plain["fallback_sources"] == names
    assert make_contracts(profile).policy["profile_sha256"] == sha256_of(canonical_bytes(plain))


@given(
    st.text()
    | st.lists(
        st.sampled_from(["all", "never", "no", "high", "low", "amount", "is", "5", ".", "!", "Acme", "\n", "�"])
    ).map(" ".join)
)
def test_any_narrative_can_be_looked_at_and_the_same_one_gives_the_same_result(narrative):
    raw = {**PLAIN, "amount": 5, "narrative": narrative}
    result = look(raw)
    assert result == look(raw)
    result.as_json()


def test_a_refused_question_makes_the_short_tree_of_three_stages():
    result = look(label="severe")
    recorder = Recorder()
    recorder.note("input", {"id": "t"})
    recorder.note("preflight", result.as_json())
    made = recorder.finish({"disposition": "review"})
    assert [stage.name for stage in made.stages] == ["input", "preflight", "verdict"]
    assert b'"status":"refused"' in made.stages[1].payload
