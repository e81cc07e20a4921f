"""Pointer claims: the rung says what was checked and no more, and only plain code checks it."""

import inspect
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers import pointers
from layers.claim_independence import UnderReview, under_review
from layers.model import RUNGS, EvalPrediction, Evidence, EvidenceRole, Rung
from layers.pointers import MAX_CLAIMS, MAX_TEXT, verify_claims
from layers.profile import SystemProfile

U, L, A, E = Rung.UNGROUNDED, Rung.POINTER_LINKED, Rung.ANCHOR_WARRANTED, Rung.EVIDENCE_WARRANTED
LABELS = ("low", "medium", "high", "critical")

ROWS = [
    ("raw_output", "/risk_level", "high"),
    ("raw_output", "/confidence", "0.62"),
    (
        "raw_output",
        "/narrative",
        "Transfer of $12,500 to Acme Trading Ltd on 2024-03-05, split into three deposits by John Smith; "
        "account opened 2023-11-20. Some of it went abroad.",
    ),
    ("raw_output", "/policy_refs/0", "AML-BSA-001"),
    ("input", "/amount", "12500"),
    ("input", "/merchant", "Acme Trading Ltd"),
    ("input", "/currency", "USD"),
    ("flag", "/confidence", "elevated_label_low_confidence: high with confidence below 0.65"),
    ("provider", "/disagreement_result/labels_by_provider/gemini", "gemini: high, confidence 0.9"),
    ("provider", "/disagreement_result/labels_by_provider/ollama", "ollama: low, confidence 0.7"),
    ("provider", "/disagreement_result/labels_by_provider/openrouter", "openrouter: high, confidence 0.8"),
    ("neighbor", "/consistency_result/neighbors/0", "txn_1: low, similarity 0.95"),
    ("neighbor", "/consistency_result/neighbors/1", "txn_2: low, similarity 0.93"),
    ("policy", "/policies/1", "aml.md: AML-BSA-001 requires a report of every cash transaction above 10,000 USD."),
]
EVIDENCE = [Evidence(id=f"E{i}", role=EvidenceRole(r), pointer=p, text=t) for i, (r, p, t) in enumerate(ROWS, 1)]


def verify(*claims, **options):
    return verify_claims(list(claims), EVIDENCE, labels=LABELS, **options)


def one(text: str, *ids: str, **options):
    (claim,) = verify({"text": text, "evidence_ids": list(ids)}, **options).claims
    return claim


def codes(claim) -> list[str]:
    return sorted({problem.partition(":")[0] for problem in claim.problems})


# --- who may verify -------------------------------------------------------------------------------------------------


def test_verification_has_no_parameter_through_which_a_model_could_come():
    """Principle 1: plain values in, plain values out, and nothing that could be called or awaited."""
    signature = inspect.signature(verify_claims)
    assert list(signature.parameters) == [
        "claims",
        "evidence",
        "labels",
        "incomplete",
        "max_pointers",
        "reviewed",
        "narrative",
    ]
    assert not inspect.iscoroutinefunction(verify_claims)
    for parameter in signature.parameters.values():
        assert "Callable" not in parameter.annotation
        assert parameter.annotation in {
            "object",
            "Sequence[Evidence]",
            "Sequence[str]",
            "Sequence[EvidenceRole]",
            "int",
        }


def test_verification_imports_nothing_that_could_reach_a_model():
    source = inspect.getsource(pointers)
    assert "adapters" not in source
    assert "structured_call" not in source


def test_no_verification_ever_gives_the_highest_rung():
    assert Rung.ENTAILMENT_VERIFIED not in {rung for _, _, rung, _ in pointers._CHECKS}
    assert one("The confidence is 0.62", "E2").rung is E


# --- structure: below it nothing is grounded -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "code"),
    [
        pytest.param({"text": "The confidence is 0.62", "evidence_ids": []}, "no_pointer", id="no-pointer"),
        pytest.param({"text": "The confidence is 0.62", "evidence_ids": ["E99"]}, "unknown_id", id="unknown"),
        pytest.param({"text": "The confidence is 0.62", "evidence_ids": ["E2", "E99"]}, "unknown_id", id="one-unknown"),
        pytest.param({"text": "The confidence is 0.62", "evidence_ids": ["e2"]}, "unknown_id", id="case-matters"),
        pytest.param({"text": "The confidence is 0.62", "evidence_ids": ["E2 "]}, "unknown_id", id="blank-matters"),
        pytest.param({"text": " \n", "evidence_ids": ["E2"]}, "empty_text", id="empty"),
        pytest.param({"text": "a" * (MAX_TEXT + 1), "evidence_ids": ["E2"]}, "text_too_long", id="long"),
        pytest.param(
            {"text": "x", "evidence_ids": [f"E{i}" for i in range(1, 10)]}, "too_many_pointers", id="too-many-pointers"
        ),
        pytest.param({"text": 1, "evidence_ids": ["E2"]}, "malformed", id="text-no-string"),
        pytest.param({"text": "x", "evidence_ids": "E2"}, "malformed", id="ids-a-string"),
        pytest.param({"text": "x", "evidence_ids": [2]}, "malformed", id="id-a-number"),
        pytest.param({"text": "x", "evidence_ids": {"E2": 1}}, "malformed", id="ids-an-object"),
        pytest.param({"text": "x"}, "malformed", id="ids-missing"),
        pytest.param(["x", ["E2"]], "malformed", id="claim-a-list"),
        pytest.param(None, "malformed", id="claim-null"),
    ],
)
def test_a_claim_without_sound_pointers_is_ungrounded(claim, code):
    (judged,) = verify(claim).claims
    assert judged.rung is U
    assert code in codes(judged)


@pytest.mark.parametrize("claims", [None, "x", 5, {"text": "x"}, [{}] * (MAX_CLAIMS + 1)])
def test_what_is_no_list_of_claims_is_one_malformed_claim(claims):
    result = verify_claims(claims, EVIDENCE)
    assert [claim.problems for claim in result.claims] == [("malformed",)]
    assert result.rung is U


def test_no_claim_is_ungrounded_and_no_check_ran():
    result = verify()
    assert (result.rung, result.coverage) == (U, None)
    assert not any(check.ran or check.passed is not None for check in result.checks)


def test_the_pointer_cap_is_the_callers_and_doubles_count_once():
    assert one("The confidence is 0.62", "E2", "E2", "E2", max_pointers=1).rung is E
    assert codes(one("The confidence is 0.62", "E2", "E8", max_pointers=1)) == ["too_many_pointers"]


@pytest.mark.parametrize(
    ("text", "ids", "problem"),
    [
        ("The amount is 12,500", ["E12"], "role_not_allowed:E12"),
        ("The confidence is 0.9", ["E9"], "role_not_allowed:E9"),
        ("AML-BSA-001 requires a report", ["E4"], "role_missing:norm"),
        ("Transfers above 10,000 violate the policy", ["E3"], "role_missing:norm"),
        ("The providers said high", ["E1"], "role_missing:provider"),
        ("Gemini said high", ["E1"], "role_missing:provider"),
        ("Neighbours were labelled low", ["E10"], "role_not_allowed:E10"),
        ("The heuristics flagged it at 0.65", ["E2"], "role_missing:flag"),
        ("The narrative cites AML-BSA-001", ["E14"], "role_missing:mention"),
    ],
)
def test_the_role_of_the_evidence_must_suit_what_the_claim_speaks_of(text, ids, problem):
    claim = one(text, *ids)
    assert claim.rung is U
    assert problem in claim.problems


# --- anchors and shapes --------------------------------------------------------------------------------------------

WARRANTED = [
    ("The confidence is 0.62", ["E2"]),
    ("The confidence is 62%", ["E2"]),
    ("The amount is $12,500", ["E5", "E7"]),
    ("The amount under review is 12,500", ["E5"]),
    ("The narrative mentions a transfer of $12,500 to Acme Trading Ltd under no policy", ["E3", "E14"]),
    ("12.5k USD were moved", ["E5", "E7"]),
    ("The merchant is Acme Trading Ltd", ["E6"]),
    ("The risk level is high", ["E1"]),
    ("risk_level: HIGH", ["E1"]),
    ("As E1 shows, the risk level is high", ["E1"]),
    ("The transfer was made on March 5, 2024", ["E3"]),
    ("Two providers said high: gemini and openrouter", ["E9", "E11"]),
    ("It was split into 3 deposits", ["E3"]),
    ("Both neighbours were labelled low", ["E12", "E13"]),
    ("All neighbours were labelled low", ["E12", "E13"]),
    ("The narrative names John Smith, Acme Trading Ltd and 2024-03-05", ["E3"]),
    ("Flagged because the high label has a confidence below 0.65", ["E8"]),
    ("The amount exceeds 10,000", ["E5", "E14"]),
    ("The amount does not exceed 12,500", ["E5"]),
    ("AML-BSA-001 requires a report of every cash transaction above 10,000", ["E14"]),
    ("The account was opened on 2023-11-20 before the transfer of 2024-03-05", ["E3"]),
]


@pytest.mark.parametrize(("text", "ids"), WARRANTED)
def test_true_claims_climb_to_evidence_warranted(text, ids):
    claim = one(text, *ids)
    assert (claim.rung, claim.problems) == (E, ())


@pytest.mark.parametrize(
    ("text", "ids", "code"),
    [
        pytest.param("The confidence is 0.63", ["E2"], "anchor_missing", id="number"),
        pytest.param("The amount is 1,250", ["E5"], "anchor_missing", id="number-inside-number"),
        pytest.param("The merchant is Apex Holdings", ["E6"], "anchor_missing", id="name"),
        pytest.param("AML-BSA-002 requires a report", ["E14"], "anchor_missing", id="code"),
        pytest.param("The transfer was made on 2024-03-06", ["E3"], "anchor_missing", id="date"),
        pytest.param("The risk level is critical", ["E1"], "anchor_missing", id="label-word"),
        pytest.param("The label is appropriate", ["E1"], "no_anchor", id="nothing-to-check"),
        pytest.param("The narrative names John Smith, Bob Stone and deposits", ["E3"], "list_item_missing", id="list"),
        pytest.param("Split into four deposits", ["E3"], "count_unsupported", id="count-word"),
        pytest.param("3 providers said high", ["E9", "E11"], "count_unsupported", id="count-of-pointers"),
        pytest.param("High because of sanctions", ["E1"], "cause_side_missing", id="cause"),
        pytest.param("Currency controls failed, therefore high", ["E1"], "cause_side_missing", id="cause-in-front"),
        pytest.param("The amount is below 10,000", ["E5", "E14"], "relation_false", id="relation-arithmetic"),
        pytest.param("The amount does not exceed 10,000", ["E5", "E14"], "relation_false", id="relation-negated"),
        pytest.param("12,500 is less than 10,000", ["E5", "E14"], "relation_false", id="relation-numbers"),
        pytest.param("The amount exceeds revenue forecasts", ["E5"], "relation_side_missing", id="relation-side"),
        pytest.param(
            "The account was opened on 2023-11-20 after the transfer of 2024-03-05",
            ["E3"],
            "date_order",
            id="date-order",
        ),
        pytest.param("over 1 " * 20, ["E3"], "too_many_shapes", id="more-than-is-looked-at"),
    ],
)
def test_a_claim_whose_anchors_do_not_stand_is_only_pointer_linked(text, ids, code):
    """Principle 6, for plain, list, count, cause, relation and date shapes."""
    claim = one(text, *ids)
    assert claim.rung is L
    assert code in codes(claim)


@pytest.mark.parametrize(
    ("text", "ids", "code"),
    [
        pytest.param(
            "The risk level is high and pirates roam distant oceans", ["E1"], "uncovered", id="half-a-sentence"
        ),
        pytest.param("The confidence is 0.62", ["E2", "E6"], "idle_pointer", id="stuffed-pointer"),
        pytest.param("All providers said high", ["E9", "E11"], "contradicted_by", id="provider-not-pointed-to"),
        pytest.param("All providers said high", ["E9", "E11"], "overbroad", id="not-all-pointed-to"),
        pytest.param("Every neighbour was labelled low", ["E12"], "overbroad", id="one-of-two"),
        pytest.param("Most providers said high", ["E9"], "overbroad", id="no-majority"),
        pytest.param("Several deposits by John Smith", ["E3"], "overbroad", id="one-piece-for-several"),
        pytest.param("Gemini never said high", ["E9"], "overbroad", id="never"),
        pytest.param("The confidence is 0.65", ["E8"], "contradicted_by", id="field-says-otherwise"),
        pytest.param("The risk level is low with 0.65", ["E8", "E1"], "contradicted_by", id="label-says-otherwise"),
    ],
)
def test_a_claim_that_says_too_much_stays_below_evidence_warranted(text, ids, code):
    claim = one(text, *ids)
    assert RUNGS.index(claim.rung) < RUNGS.index(E)
    assert code in codes(claim)


def test_a_strong_word_is_paid_by_a_majority_or_by_the_evidence_saying_so():
    assert "overbroad" not in codes(one("Most providers said high", "E9", "E11"))
    assert "overbroad" not in codes(one("Every transaction above 10,000 requires a report under AML-BSA-001", "E14"))


def test_a_map_that_holds_only_a_part_cannot_pay_for_all():
    text, ids = "All neighbours were labelled low", ("E12", "E13")
    assert one(text, *ids).rung is E
    assert codes(one(text, *ids, incomplete=[EvidenceRole.NEIGHBOR])) == ["overbroad"]


def test_absence_is_contradicted_by_presence():
    assert "contradicted_by:E3" in one("No narrative was given for 0.62", "E2").problems


# --- what is under review -------------------------------------------------------------------------------------------

OWN = {"reviewed": ["E1", "E2"], "narrative": ["E3"]}


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        pytest.param("The risk level is high", ["E1"], id="the label"),
        pytest.param("The confidence is 0.62", ["E2"], id="the confidence"),
        pytest.param("The risk level is high at 0.62", ["E1", "E2"], id="both"),
        pytest.param("It was split into three deposits", ["E3"], id="the narrative"),
        pytest.param("The risk level is high", ["E1", "E6"], id="and a pointer that contributes nothing"),
        pytest.param("The stated risk level is high", ["E1"], id="a mention of what is no text"),
    ],
)
def test_a_claim_that_rests_on_what_is_under_review_alone_is_circular(text, ids):
    """It stays on the second rung, however true it is; without anything under review it would climb."""
    claim = one(text, *ids, **OWN)
    assert "circular" in codes(claim)
    assert claim.rung is L
    assert RUNGS.index(one(text, *ids).rung) > RUNGS.index(L)
    assert "circular" not in codes(one(text, *ids))


def test_a_claim_about_the_narrative_as_a_text_may_be_true_and_is_marked():
    claim = one("The narrative mentions Acme Trading Ltd", "E3", **OWN)
    assert (claim.rung, claim.problems) == (E, ("mention_only",))
    assert pointers.gives_no_reason(claim)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        pytest.param("The amount is 12500", ["E5"], id="input"),
        pytest.param("The risk level is high at an amount of 12500", ["E1", "E5"], id="beside the label"),
        pytest.param("Acme Trading Ltd is the merchant", ["E3", "E6"], id="beside the narrative"),
        pytest.param("Gemini said high", ["E9"], id="provider"),
    ],
)
def test_a_claim_with_a_piece_that_is_not_under_review_gives_a_reason(text, ids):
    claim = one(text, *ids, **OWN)
    assert claim.rung is E
    assert not pointers.gives_no_reason(claim)


@given(st.lists(st.sampled_from(["E1", "E2", "E3"]), min_size=1, max_size=3, unique=True), st.text(max_size=60))
def test_no_words_make_a_reason_of_what_is_under_review(ids, text):
    """Whatever is claimed, and however: it is without pointers that hold, or gives no reason."""
    claim = one(text, *ids, **OWN)
    assert claim.rung is U or pointers.gives_no_reason(claim)


@given(st.integers(0, 10**6).filter(lambda amount: amount != 12500))
def test_any_other_number_than_the_field_s_is_false(amount):
    """A known field with another value is found false, whatever the value, and said so."""
    claim = one(f"The amount is {amount}", "E5")
    assert "contradicted_by:E5" in claim.problems
    assert pointers.is_false(claim)


PROFILE = SystemProfile(
    name="p", label_pointer="/risk_level", confidence_pointer="/confidence", narrative_pointer="/narrative"
)


def test_what_is_under_review_is_found_by_the_profile_and_copies_of_it_too():
    """The label's field, the confidence's, the narrative's, and fields that only repeat label or narrative."""
    told = "All of it is in order."
    pieces = [
        ("raw_output", "/risk_level", "low"), ("raw_output", "/confidence", "0.2"),
        ("raw_output", "/narrative/0", told),
        ("raw_output", "/level", "low"), ("raw_output", "/message", told), ("raw_output", "/score", "0.2"),
        ("input", "/risk", "low"), ("input", "/narrative", told),
    ]  # fmt: skip
    evidence = [Evidence(id=f"E{i}", role=EvidenceRole(r), pointer=p, text=t) for i, (r, p, t) in enumerate(pieces, 1)]
    prediction = EvalPrediction(id="1", raw_output={}, label="low", confidence=0.2)
    assert under_review(prediction, PROFILE, evidence) == UnderReview(("E1", "E2", "E4"), ("E3", "E5"))


def test_a_label_that_is_a_plain_value_makes_no_copies():
    """`true` in another field is another fact."""
    evidence = [Evidence(id="E1", role=EvidenceRole.RAW_OUTPUT, pointer="/is_new", text="true")]
    prediction = EvalPrediction(id="1", raw_output={}, label="true", confidence=1)
    assert under_review(prediction, PROFILE, evidence) == UnderReview()


# --- the answer ----------------------------------------------------------------------------------------------------


def test_the_answers_rung_is_its_lowest_claims_and_counts_stand_beside_it():
    result = verify(
        {"text": "The confidence is 0.62", "evidence_ids": ["E2"]},
        {"text": "The confidence is 0.63", "evidence_ids": ["E2"]},
        {"text": "Trust me", "evidence_ids": []},
    )
    assert result.rung is U
    assert result.counts == {U: 1, L: 1, A: 0, E: 1, Rung.ENTAILMENT_VERIFIED: 0}
    assert result.coverage == pytest.approx(2 / 3)  # of the second, the field stands there and only its number does not


def test_quotations_in_a_claim_change_nothing():
    """Principle 2: whatever else a claim carries is not looked at."""
    plain = {"text": "The confidence is 0.63", "evidence_ids": ["E2"]}
    quoted = {**plain, "quote": "confidence: 0.63", "quotes": {"E2": "0.63"}, "rung": "EVIDENCE-WARRANTED"}
    assert verify(plain).claims == verify(quoted).claims


def test_quoting_inside_the_text_is_no_evidence():
    claim = one('The evidence says "confidence: 0.99" (E2: "0.99")', "E2")
    assert claim.rung is L
    assert "anchor_missing:0.99" in claim.problems


def test_every_check_says_whether_it_ran_and_how():
    result = verify({"text": "The confidence is 0.62", "evidence_ids": ["E2"]})
    assert all(check.ran and check.passed and check.method for check in result.checks)
    assert len({check.name for check in result.checks}) == len(result.checks)
    ungrounded = {check.name: check for check in verify({"text": "x", "evidence_ids": []}).checks}
    assert (ungrounded["pointers_present"].ran, ungrounded["pointers_present"].passed) == (True, False)
    assert (ungrounded["anchors_stand"].ran, ungrounded["anchors_stand"].passed) == (False, None)


def test_the_verification_is_json_ready():
    result = verify({"text": "The confidence is 0.62", "evidence_ids": ["E2"]})
    made = json.loads(json.dumps(result.as_json()))
    assert made["rung"] == "EVIDENCE-WARRANTED"
    assert made["counts"]["EVIDENCE-WARRANTED"] == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)
VOCABULARY = (
    "all no two gemini high low confidence is 0.62 0.9 exceeds because , and before 2024-03-05 neighbours never "
    "Acme AML-BSA-001 \ud800 \u200b E1 ( ) $12,500 not"
)
WORDS = st.sampled_from(VOCABULARY.split(" "))
CLAIMS = st.lists(
    JSON
    | st.fixed_dictionaries(
        {
            "text": st.text() | st.lists(WORDS, max_size=25).map(" ".join),
            "evidence_ids": st.lists(st.sampled_from(["E1", "E2", "E3", "E9", "E14", "E99", "\ud800"]), max_size=6),
        }
    ),
    max_size=4,
)


@given(CLAIMS | JSON)
def test_no_reply_breaks_the_verification_or_climbs_without_pointers(claims):
    result = verify_claims(claims, EVIDENCE, labels=LABELS)
    result.as_json()
    for claim in result.claims:
        claim.text.encode("utf-8")
        if claim.rung is not U:
            assert claim.evidence_ids
            assert set(claim.evidence_ids) <= {piece.id for piece in EVIDENCE}
        assert (claim.rung is E) == (not claim.problems)


@given(CLAIMS)
def test_the_same_question_has_the_same_answer(claims):
    assert verify_claims(claims, EVIDENCE, labels=LABELS) == verify_claims(claims, EVIDENCE, labels=LABELS)


def test_a_role_at_its_limit_may_have_lost_pieces_and_cannot_pay_for_all():
    near = [
        Evidence(id=f"E{i}", role=EvidenceRole.NEIGHBOR, pointer=f"/n/{i}", text=f"txn_{i}: low") for i in range(1, 9)
    ]
    claim = {"text": "All neighbours were labelled low", "evidence_ids": [piece.id for piece in near]}
    (full,) = verify_claims([claim], near, labels=LABELS).claims
    (short,) = verify_claims([{**claim, "evidence_ids": claim["evidence_ids"][:7]}], near[:7], labels=LABELS).claims
    assert (codes(full), codes(short)) == (["overbroad"], [])
