"""Score and qualification: known values, monotonicity, independence of order; and what makes a link."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.adjudication_rules import (
    UNLINKED,
    Directness,
    Effect,
    Interpretation,
    Link,
    Qualification,
    Relation,
    Thresholds,
    decide,
    standing_of,
)


def link(relation: str = "supports", relevance: float = 100, confidence: float = 100, source: str = "a") -> Link:
    return Link(relation=relation, relevance=relevance, confidence=confidence, source=source, record_id="r")


def answer(relation: str = "supports", relevance: float = 60, confidence: float = 70) -> Interpretation:
    return Interpretation(
        relevance=relevance, relation=relation, directness=Directness.DIRECT, confidence=confidence, rationale=""
    )


S1, S2, S3 = link(source="a"), link(source="b"), link(source="c")
C1, C2 = link("contradicts", source="a"), link("contradicts", source="b")


@pytest.mark.parametrize(
    ("links", "score", "qualification"),
    [
        pytest.param([], 1 / 2, "unresolved", id="none"),
        pytest.param([S1], 2 / 3, "unresolved", id="one source"),
        pytest.param([S1, S2], 3 / 4, "supported", id="exactly three quarters"),
        pytest.param([S1, S1], 3 / 4, "unresolved", id="one source twice"),
        pytest.param([S1, link(source=" A ")], 3 / 4, "unresolved", id="one source written otherwise"),
        pytest.param([C1, C2], 1 / 4, "contradicted", id="exactly one quarter"),
        pytest.param([C1, C1], 1 / 4, "unresolved", id="contradicted by one source"),
        pytest.param([S1, C1], 1 / 2, "contested", id="one each"),
        pytest.param([S1, S2, S3, C1], 4 / 6, "contested", id="contested before supported"),
        pytest.param([link()] * 9 + [S2, C1], 11 / 13, "contested", id="contested though the score is high"),
        pytest.param([S1, link("contradicts", 100, 99)], 2 / 3.99, "unresolved", id="just not contested"),
        pytest.param([link(relevance=80, confidence=75)], 1.6 / 2.6, "unresolved", id="a weight of 0.6"),
        pytest.param([S1, link(relevance=99.99, source="b")], 2.9999 / 3.9999, "unresolved", id="just under"),
    ],
)
def test_known_values(links: list[Link], score: float, qualification: str) -> None:
    """score = (1 + S) / (2 + S + C), and the four qualifications in their order."""
    standing = standing_of(links)
    assert standing.score == pytest.approx(score, abs=1e-12)
    assert standing.qualification == qualification


def test_ten_weights_of_a_tenth_are_one() -> None:
    """Sums are exact: ten times 0.1 is not 0.9999999999999999."""
    tenth = [link("contradicts", 10, 100)] * 10
    assert standing_of([S1, *tenth]).qualification is Qualification.CONTESTED


PERCENT = st.integers(0, 100) | st.floats(0, 100)
LINKS = st.builds(link, st.sampled_from(["supports", "contradicts"]), PERCENT, PERCENT, st.sampled_from("abc"))


@given(st.lists(LINKS, max_size=8).flatmap(lambda links: st.tuples(st.just(links), st.permutations(links))))
def test_the_order_of_arrival_changes_nothing(both: tuple[list[Link], list[Link]]) -> None:
    links, shuffled = both
    assert standing_of(links) == standing_of(shuffled)


@given(st.lists(LINKS, max_size=6), LINKS)
def test_a_further_link_moves_the_score_its_own_way(links: list[Link], further: Link) -> None:
    before, after = standing_of(links).score, standing_of([*links, further]).score
    assert after >= before if further.relation is Relation.SUPPORTS else after <= before


@given(st.lists(LINKS, max_size=6), LINKS, PERCENT, st.sampled_from(["relevance", "confidence"]))
def test_the_score_is_monotone_in_each_number_of_each_link(
    links: list[Link], one: Link, other: float, field: str
) -> None:
    """A more relevant or more certain support never lowers the score, and the reverse for a contradiction."""
    low, high = sorted([getattr(one, field), float(other)])
    less = standing_of([*links, one.model_copy(update={field: low})]).score
    more = standing_of([*links, one.model_copy(update={field: high})]).score
    assert less <= more if one.relation is Relation.SUPPORTS else less >= more


@given(st.lists(LINKS, max_size=8))
def test_a_score_is_within_its_bounds_and_a_qualification_follows(links: list[Link]) -> None:
    standing = standing_of(links)
    assert 0 < standing.score < 1
    assert standing.qualification is not Qualification.SUPPORTED or standing.score >= 0.75
    assert standing.qualification is not Qualification.CONTRADICTED or standing.score <= 0.25


@pytest.mark.parametrize(
    ("given_", "relation", "effect", "reason"),
    [
        (answer(), "supports", Effect.LINK, "accepted"),
        (answer("contradicts"), "contradicts", Effect.LINK, "accepted"),
        (answer("neutral"), "neutral", Effect.UNLINK, "accepted"),
        (answer(relevance=59.9), "supports", Effect.KEEP, "below_relevance"),
        (answer("neutral", relevance=59), "neutral", Effect.KEEP, "below_relevance"),
        (answer(confidence=69.9), "uncertain", Effect.KEEP, "not_sure"),
        (answer("neutral", confidence=69), "uncertain", Effect.KEEP, "not_sure"),
        (answer("uncertain", 100, 100), "uncertain", Effect.KEEP, "undecided"),
        ("timeout", "uncertain", Effect.KEEP, "timeout"),
    ],
)
def test_what_an_answer_does(given_: Interpretation | str, relation: str, effect: Effect, reason: str) -> None:
    decision = decide(given_, Thresholds())
    assert (decision.relation, decision.effect, decision.reason) == (relation, effect, reason)


def test_the_bar_is_the_higher_of_the_two_confidences() -> None:
    assert decide(answer(confidence=65), Thresholds(escalate_below=0)).effect is Effect.LINK
    assert decide(answer(confidence=64.9), Thresholds(escalate_below=0)).effect is Effect.KEEP
    assert decide(answer(confidence=79), Thresholds(min_confidence=80)).effect is Effect.KEEP


@given(PERCENT, PERCENT, st.sampled_from(list(Relation)))
def test_only_an_answer_over_every_threshold_has_an_effect(
    relevance: float, confidence: float, relation: Relation
) -> None:
    effect = decide(answer(relation, relevance, confidence), Thresholds()).effect
    assert (effect is Effect.KEEP) == (relevance < 60 or confidence < 70 or relation is Relation.UNCERTAIN)


def test_directness_and_rationale_never_weigh() -> None:
    other = answer().model_copy(update={"directness": Directness.CIRCUMSTANTIAL, "rationale": "certainly, 100 %"})
    assert decide(other, Thresholds()) == decide(answer(), Thresholds())
    assert not {"directness", "rationale"} & set(Link.model_fields)
    assert UNLINKED.score == 0.5
