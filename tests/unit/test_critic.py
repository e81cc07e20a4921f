"""The rules that keep a critic in check: what a challenge must have, where one is possible, how a row ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.critic import (
    ACCEPT,
    Condition,
    Discard,
    Restraint,
    Review,
    Ruling,
    State,
    conclude,
    gate,
)
from layers.errors import ConfigurationError
from layers.rubric import cut_rubric
from tests.critics import RUBRIC, TEXT

RULES = frozenset({"C1", "C2"})
OPEN = Restraint(axes=("category",))
GAP = "the message names a fee"
FIRST = {"category": "fee", "domain": "cards"}
SECOND = {"category": "refund", "domain": "loans"}


def challenge(**fields: str | None) -> Review:
    return Review(**{"decision": "challenge", "axis": "category", "rule": "C1", "gap": GAP, **fields})


# --- gate -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("review", "why"),
    [
        pytest.param(challenge(axis=None), Discard.NO_AXIS, id="no axis"),
        pytest.param(challenge(axis="domain"), Discard.AXIS_CLOSED, id="an axis that is closed"),
        pytest.param(challenge(axis="Category"), Discard.AXIS_CLOSED, id="nearly an axis"),
        pytest.param(challenge(rule=None), Discard.NO_SUCH_RULE, id="no rule"),
        pytest.param(challenge(rule="C9"), Discard.NO_SUCH_RULE, id="an invented rule"),
        pytest.param(challenge(rule="C1 and C2"), Discard.NO_SUCH_RULE, id="two rules"),
        pytest.param(challenge(gap=None), Discard.NO_GAP, id="no gap"),
        pytest.param(challenge(gap="n/a"), Discard.NO_GAP, id="a placeholder"),
        pytest.param(challenge(gap=" ... --- !!! ??? ..."), Discard.NO_GAP, id="no letters"),
        pytest.param(challenge(gap="x" * 1_001), Discard.NO_GAP, id="an essay"),
        pytest.param(Review(decision="void", void="malformed"), Discard.VOID, id="no review"),
        pytest.param(Review(decision="void", void="unavailable"), Discard.NOT_REVIEWED, id="nobody there"),
    ],
)
def test_what_is_no_full_challenge_is_discarded_and_moves_nothing(review: Review, why: Discard) -> None:
    ruling = gate(review, RULES, OPEN, {})
    assert (ruling.admitted, ruling.discarded) == (False, why)
    ended = conclude(FIRST, review=review, ruling=ruling, second=SECOND, second_review=ACCEPT)
    assert (ended.state, ended.labels, ended.moved) == (State.FAIL_CLOSED, FIRST, None)


def test_a_full_challenge_is_admitted_where_its_axis_is_open() -> None:
    assert gate(challenge(), RULES, OPEN, {}) == Ruling(challenge=True, admitted=True)
    assert gate(challenge(), RULES, Restraint(axes=()), {}).discarded is Discard.AXIS_CLOSED


def test_a_challenge_is_possible_only_where_the_condition_on_triages_signals_holds() -> None:
    restraint = Restraint(axes=("category",), only_when=(Condition(signal="fee", op="eq", value=True),))
    assert gate(challenge(), RULES, restraint, {"fee": True}).admitted
    for signals in ({}, {"fee": False}, {"fee": "true"}, {"fee": 1}, {"other": True}):
        assert gate(challenge(), RULES, restraint, signals).discarded is Discard.NOT_NOW


@pytest.mark.parametrize(
    ("op", "value", "noted", "holds"),
    [
        ("eq", 3, 3.0, True),
        ("eq", True, 1, False),
        ("ne", "a", "b", True),
        ("ne", "a", 1, False),
        ("lt", 3, 2, True),
        ("lt", "3", 2, False),
        ("ge", 3, 3, True),
        ("gt", 3, 3, False),
        ("le", 3, True, False),
        ("in", ("a", "b"), "b", True),
        ("in", (1,), True, False),
        ("in", "ab", "a", False),
        ("not_in", ("a",), "b", True),
        ("not_in", ("a",), "a", False),
        ("eq", ("a",), "a", False),
    ],
)
def test_conditions_compare_values_of_one_kind(op: str, value: object, noted: object, *, holds: bool) -> None:
    condition = Condition(signal="s", op=op, value=value)
    assert condition.holds({"s": noted}) is holds
    assert not condition.holds({})


# --- ends -------------------------------------------------------------------------------------------------------------


def ended(second: dict[str, str] | None, second_review: Review | None) -> tuple[State, dict[str, str], str | None]:
    review = challenge()
    end = conclude(
        FIRST, review=review, ruling=gate(review, RULES, OPEN, {}), second=second, second_review=second_review
    )
    return end.state, end.labels, end.moved


def test_an_accepted_second_answer_moves_the_challenged_axis_and_no_other() -> None:
    assert ended(SECOND, ACCEPT) == (State.FIXED, {"category": "refund", "domain": "cards"}, "category")
    assert ended(FIRST, ACCEPT) == (State.FIXED, FIRST, None)


@pytest.mark.parametrize(
    ("second", "second_review"),
    [
        pytest.param(SECOND, challenge(), id="challenged again"),
        pytest.param(SECOND, challenge(rule=None), id="challenged without ground"),
        pytest.param(SECOND, Review(decision="void", void="malformed"), id="unreadable review"),
        pytest.param(SECOND, None, id="no second review"),
        pytest.param(None, None, id="no second answer"),
    ],
)
def test_whatever_is_not_accepted_is_contested_and_the_first_answer_stands(second, second_review) -> None:
    assert ended(second, second_review) == (State.CONTESTED, FIRST, None)


def test_a_sentinel_that_stands_in_ends_as_salvaged() -> None:
    end = conclude({"category": "unclear"}, salvaged=("category",), review=ACCEPT, ruling=None)
    assert end.state is State.SALVAGED


def test_an_acceptance_ends_as_accepted_and_no_review_moves_nothing() -> None:
    assert conclude(FIRST, review=ACCEPT, ruling=gate(ACCEPT, RULES, OPEN, {})).state is State.ACCEPTED
    assert conclude(FIRST).state is State.FAIL_CLOSED


_texts = st.none() | st.text(max_size=40) | st.sampled_from(["category", "domain", "C1", "C2", GAP, "unavailable"])
_reviews = st.builds(
    Review,
    decision=st.sampled_from(["accept", "challenge", "void"]),
    axis=_texts,
    rule=_texts,
    gap=_texts,
    void=_texts,
)
_labels = st.fixed_dictionaries({axis: st.sampled_from("abc") for axis in FIRST})


@given(
    first=_labels,
    second=st.none() | _labels,
    review=_reviews,
    second_review=st.none() | _reviews,
    axes=st.lists(st.sampled_from(sorted(FIRST)), unique=True),
    signal=st.none() | st.booleans(),
)
def test_no_label_changes_outside_axes_and_only_when_whatever_anybody_says(
    first, second, review, second_review, axes, signal
) -> None:
    restraint = Restraint(axes=tuple(axes), only_when=(Condition(signal="s", op="eq", value=True),))
    signals = {} if signal is None else {"s": signal}
    ruling = gate(review, RULES, restraint, signals)
    end = conclude(first, review=review, ruling=ruling, second=second, second_review=second_review)
    changed = {axis for axis in first if end.labels[axis] != first[axis]}
    assert changed <= set(axes)
    assert len(changed) <= 1
    assert not changed or (signal is True and end.state is State.FIXED and ruling.admitted)
    assert end.moved == next(iter(changed), None)


# --- rubric -----------------------------------------------------------------------------------------------------------


def test_the_rubric_is_a_verbatim_piece_of_the_prompt() -> None:
    rubric = cut_rubric(TEXT, "## Rubric", "## Answer")
    assert rubric.text in TEXT
    assert rubric.text.strip() == RUBRIC.strip()
    assert [rule.id for rule in rubric.rules] == ["C1", "C2", "D1"]
    assert rubric.rules[1].text.endswith("whatever else it speaks of.")


def test_rules_without_ids_are_cited_by_number_or_place() -> None:
    text = "Rules\nGeneral remarks.\n- first\n  goes on\n* second\n\n7. the seventh\n[X-2] own\n**Y3**: bold\n"
    rubric = cut_rubric(text, "Rules")
    assert [rule.id for rule in rubric.rules] == ["R1", "R2", "R7", "X-2", "Y3"]
    assert rubric.parts[0].text == "General remarks."
    assert rubric.rules[0].text == "- first\ngoes on"


@pytest.mark.parametrize(
    ("text", "end", "said"),
    [
        pytest.param("no such line", None, "once", id="no beginning"),
        pytest.param("Rules\nRules\n- a", None, "2 times", id="two beginnings"),
        pytest.param("Rules\n- a", "End", "no line 'End'", id="no end"),
        pytest.param("Rules\nprose\n", None, "no rules", id="no rules"),
        pytest.param("Rules\nC1: a\nC1: b\n", None, "C1", id="ids repeat"),
        pytest.param("Rules\n" + "- a\n" * 201, None, "more than 200", id="far too many"),
    ],
)
def test_a_prompt_without_a_clear_rubric_is_refused(text: str, end: str | None, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        cut_rubric(text, "Rules", end)


@given(st.text(max_size=300))
def test_any_text_is_a_rubric_or_refused(text: str) -> None:
    try:
        rubric = cut_rubric("Rules\n" + text, "Rules")
    except ConfigurationError:
        return
    assert ("Rules\n" + text).endswith(rubric.text)
    assert len(rubric.ids) == len(rubric.rules)
