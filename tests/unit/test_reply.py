"""How a model's reply is read: one table of what is an answer, one of what is not."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from layers.reply import ReplyFailure, read_object, read_verdict

LABELS = ("low", "medium", "high", "critical", "unknown")
GOOD = '{"verdict": "high", "confidence": 0.7, "claims": [{"text": "Amount is 9,900.", "evidence_ids": ["E1"]}]}'


def reply(**changes: object) -> str:
    return json.dumps({"verdict": "high", "confidence": 0.7, "claims": [], **changes})


@pytest.mark.parametrize(
    ("text", "label", "confidence", "repaired"),
    [
        pytest.param(GOOD, "high", 0.7, False, id="plain"),
        pytest.param(f"\n\t {GOOD} \r\n", "high", 0.7, False, id="blanks-around"),
        pytest.param(reply(reasoning="It is."), "high", 0.7, False, id="with-reasoning"),
        pytest.param(reply(reasoning=None), "high", 0.7, False, id="null-reasoning"),
        pytest.param(reply(confidence="0.25"), "high", 0.25, False, id="numeric-string"),
        pytest.param(reply(confidence="1e-1"), "high", 0.1, False, id="numeric-string-exponent"),
        pytest.param(reply(confidence=1), "high", 1.0, False, id="integer"),
        pytest.param(reply(confidence=0), "high", 0.0, False, id="zero"),
        pytest.param(reply(verdict="hi\u200bgh\ufeff"), "high", 0.7, False, id="zero-width-in-label"),
        pytest.param(f"```json\n{GOOD}\n```", "high", 0.7, True, id="fence"),
        pytest.param(f"```\r\n{GOOD}\r\n```\n", "high", 0.7, True, id="fence-without-language"),
        pytest.param(f"<think>Is it low? {{}}</think>\n{GOOD}", "high", 0.7, True, id="think"),
        pytest.param(f"<think></think>```json\n{GOOD}\n```", "high", 0.7, True, id="think-then-fence"),
        pytest.param(GOOD[:-1] + ",}", "high", 0.7, True, id="trailing-comma"),
        pytest.param(GOOD.replace('"E1"]', '"E1" , \n ] ,'), "high", 0.7, True, id="trailing-comma-in-arrays"),
        pytest.param(reply(reasoning="a ,] b")[:-1] + ",}", "high", 0.7, True, id="comma-inside-text-stays"),
    ],
)
def test_what_is_an_answer(text: str, label: str, confidence: float, repaired: bool) -> None:
    verdict = read_verdict(text, LABELS)
    assert (verdict.label, verdict.confidence, verdict.repaired) == (label, confidence, repaired)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param("", "empty_output", id="empty"),
        pytest.param(" \n", "empty_output", id="blank"),
        pytest.param("<think>hm</think>", "empty_output", id="only-thought"),
        pytest.param("```json\n\n```", "empty_output", id="empty-fence"),
        pytest.param(f"{GOOD}{GOOD}", "malformed", id="two-objects"),
        pytest.param(f"{GOOD}\n{GOOD}", "malformed", id="two-lines"),
        pytest.param(f"[{GOOD}]", "malformed", id="array"),
        pytest.param('"high"', "malformed", id="string"),
        pytest.param("high", "malformed", id="bare-word"),
        pytest.param("null", "malformed", id="null"),
        pytest.param(f"Here it is: {GOOD}", "malformed", id="text-before"),
        pytest.param(f"{GOOD} I hope this helps.", "malformed", id="text-after"),
        pytest.param(f"x\n```json\n{GOOD}\n```", "malformed", id="text-before-fence"),
        pytest.param(f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```", "malformed", id="two-fences"),
        pytest.param(f"{GOOD}<think>x</think>", "malformed", id="think-after"),
        pytest.param(f"<think>a</think>b</think>{GOOD}", "malformed", id="think-closed-twice"),
        pytest.param(f"<think>a {GOOD}", "truncated", id="think-not-closed"),
        pytest.param(GOOD[:-1], "truncated", id="cut-before-the-end"),
        pytest.param(GOOD[:40], "truncated", id="cut-in-the-middle"),
        pytest.param('{"verdict": "hi', "truncated", id="cut-in-a-string"),
        pytest.param("{", "truncated", id="one-bracket"),
        pytest.param("{'verdict': 'high'}", "malformed", id="single-quotes"),
        pytest.param('{"verdict": "high", "confidence": 0.7, "claims": [,]}', "malformed", id="comma-alone"),
        pytest.param('{"verdict": "high", "confidence": 0.7,, "claims": []}', "malformed", id="two-commas"),
        pytest.param('{"verdict": "high", "confidence": 0.7, "claims": [],,}', "malformed", id="two-trailing-commas"),
        pytest.param('{"verdict":"low","verdict":"high","confidence":1,"claims":[]}', "malformed", id="duplicate-key"),
        pytest.param('{"verdict": "high", "confidence": NaN, "claims": []}', "malformed", id="nan"),
        pytest.param('{"verdict": "high", "claims": []}', "malformed", id="no-confidence"),
        pytest.param('{"confidence": 1, "claims": []}', "malformed", id="no-verdict"),
        pytest.param('{"verdict": "high", "confidence": 1}', "malformed", id="no-claims"),
        pytest.param(reply(override="low"), "malformed", id="unknown-field"),
        pytest.param(reply(verdict=["high"]), "malformed", id="label-in-a-list"),
        pytest.param(reply(verdict=None), "malformed", id="no-label"),
        pytest.param(reply(confidence=True), "malformed", id="boolean-confidence"),
        pytest.param(reply(confidence=None), "malformed", id="null-confidence"),
        pytest.param(reply(confidence="high"), "malformed", id="confidence-in-words"),
        pytest.param(reply(confidence="70%"), "malformed", id="percent"),
        pytest.param(reply(confidence="NaN"), "malformed", id="nan-as-text"),
        pytest.param(reply(confidence="٠.٥"), "malformed", id="other-digits"),
        pytest.param(reply(confidence=1.01), "out_of_range", id="above-one"),
        pytest.param(reply(confidence=-0.1), "out_of_range", id="below-zero"),
        pytest.param(reply(confidence=85), "out_of_range", id="not-clamped"),
        pytest.param(reply(confidence="85"), "out_of_range", id="text-not-clamped"),
        pytest.param(reply(confidence="1e999"), "out_of_range", id="infinite-as-text"),
        pytest.param(reply(confidence=10**300), "out_of_range", id="huge"),
        pytest.param(reply(verdict="severe"), "not_a_label", id="never-offered"),
        pytest.param(reply(verdict="High"), "not_a_label", id="other-case"),
        pytest.param(reply(verdict=" high"), "not_a_label", id="blank-in-label"),
        pytest.param(reply(verdict="hіgh"), "not_a_label", id="cyrillic-letter"),
        pytest.param(reply(verdict=""), "not_a_label", id="empty-label"),
        pytest.param(reply(verdict="high or critical"), "not_a_label", id="two-labels"),
        *(
            pytest.param(reply(verdict=word), "not_a_label", id=word)
            for word in ("correct", "incorrect", "reject", "yes", "no", "approved", "true", "agree")
        ),
        pytest.param(reply(claims={}), "malformed", id="claims-object"),
        pytest.param(reply(claims=["x"]), "malformed", id="claim-text"),
        pytest.param(reply(claims=[{"text": "x"}]), "malformed", id="claim-without-pointers-field"),
        pytest.param(reply(claims=[{"text": "x", "evidence_ids": "E1"}]), "malformed", id="pointer-not-in-a-list"),
        pytest.param(reply(claims=[{"text": "x", "evidence_ids": [1]}]), "malformed", id="number-as-pointer"),
        pytest.param(reply(claims=[{"text": 1, "evidence_ids": []}]), "malformed", id="number-as-claim"),
        pytest.param(
            reply(claims=[{"text": "x", "evidence_ids": [], "rung": "ENTAILMENT-VERIFIED"}]), "malformed", id="own-rung"
        ),
        pytest.param(reply(claims=[{"text": "x", "evidence_ids": []}] * 51), "malformed", id="too-many-claims"),
        pytest.param(reply(reasoning=3), "malformed", id="number-as-reasoning"),
        pytest.param(reply(reasoning="\ud800"), "malformed", id="lone-surrogate"),
        pytest.param(reply(reasoning="\x00"), "malformed", id="nul"),
        pytest.param('{"a":' * 5_000 + "1" + "}" * 5_000, "malformed", id="deep"),
        pytest.param('{"a":' * 5_000, "truncated", id="deep-and-cut"),
        pytest.param(reply(reasoning="x" * 300_000), "malformed", id="too-long"),
        pytest.param("<!doctype html><html></html>", "malformed", id="html"),
    ],
)
def test_what_is_not_an_answer(text: str, kind: str) -> None:
    with pytest.raises(ReplyFailure) as failure:
        read_verdict(text, LABELS)
    assert failure.value.kind == kind


def test_a_label_comes_back_in_the_profiles_spelling() -> None:
    assert read_verdict(reply(verdict="HIGH"), ("Low", "High"), str.casefold).label == "High"


@pytest.mark.parametrize("word", ["correct", "Yes", "REJECT", "approved.", "n\u200bo", "  ", "\u200b", "x" * 300])
def test_without_a_list_of_labels_a_correctness_word_is_still_none(word: str) -> None:
    with pytest.raises(ReplyFailure) as failure:
        read_verdict(reply(verdict=word), ())
    assert failure.value.kind == "not_a_label"


def test_a_system_may_offer_a_correctness_word_as_its_label() -> None:
    assert read_verdict(reply(verdict="approved"), ("approved", "declined")).label == "approved"


def test_claims_are_read_in_order_and_unchecked() -> None:
    claims = [{"text": "", "evidence_ids": ["E9", "E9"]}, {"text": "b", "evidence_ids": []}]
    read = read_verdict(reply(claims=claims), LABELS).claims
    assert [(claim.text, claim.evidence_ids) for claim in read] == [("", ("E9", "E9")), ("b", ())]


PIECES = st.lists(
    st.sampled_from(
        [GOOD, "{", "}", "[", "]", ",", '"', "\\", "```json\n", "\n```", "<think>", "</think>", "\ud800", "1"]
    )
    | st.text(max_size=5)
).map("".join)


@given(PIECES | st.text())
@example("{" + '"\\"' * 20_000)
@example('{"a": [' + "," * 50_000)
def test_any_text_is_an_answer_or_this_modules_failure(text: str) -> None:
    try:
        verdict = read_verdict(text, LABELS)
    except ReplyFailure:
        return
    assert verdict.label in LABELS
    assert 0 <= verdict.confidence <= 1


TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"))
SCALARS = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)))
def test_exactly_the_objects_are_read_and_nothing_in_them_changes(value: object) -> None:
    if isinstance(value, dict):
        assert read_object(json.dumps(value)).value == value
    else:
        with pytest.raises(ReplyFailure):
            read_object(json.dumps(value))
