"""What code alone decides about evidence: which answer of a model makes a link, and the score that links give."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from layers.model import UnitInterval, Value

MAX_RATIONALE = 500
"""Characters of a rationale."""

Percent: TypeAlias = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class Relation(StrEnum):
    """How a piece of evidence stands to a hypothesis."""

    SUPPORTS = "supports"
    CONTRADICTS = "contradicts"
    NEUTRAL = "neutral"
    UNCERTAIN = "uncertain"


class Directness(StrEnum):
    """How immediately the evidence speaks about the hypothesis; kept for readers, it never weighs."""

    DIRECT = "direct"
    INDIRECT = "indirect"
    CIRCUMSTANTIAL = "circumstantial"


class Interpretation(Value):
    """What a model said about one pair, in 0..100 where it is a number. A proposal: nothing of it is decided yet."""

    relevance: Percent
    relation: Relation
    directness: Directness
    confidence: Percent
    rationale: str = Field(max_length=MAX_RATIONALE)


class Thresholds(Value):
    """What an answer must reach. Percentages, but for `prefilter_similarity`, which is a cosine in 0..1."""

    min_relevance: Percent = 60
    min_confidence: Percent = 65
    escalate_below: Percent = 70
    escalate_min_importance: Percent = 70
    prefilter_similarity: UnitInterval = 0.35

    @property
    def sure(self) -> float:
        """The confidence under which an answer is uncertain."""
        return max(self.min_confidence, self.escalate_below)


class Effect(StrEnum):
    """What an answer does to the link between its evidence and its hypothesis."""

    LINK = "link"
    UNLINK = "unlink"
    KEEP = "keep"


class Decision(Value):
    """What code makes of an answer. `reason` is stable: `accepted`, `below_relevance`, `not_sure`, `undecided`, or
    why there was no answer."""

    relation: Relation
    effect: Effect
    reason: str


def decide(answer: Interpretation | str, thresholds: Thresholds) -> Decision:
    """The only way from a model's answer to a link. A text says why there is no answer.

    `supports` and `contradicts` link, and `neutral` unlinks, where relevance and confidence reach their thresholds;
    everything else keeps what was accepted before.
    """
    if isinstance(answer, str):
        return Decision(relation=Relation.UNCERTAIN, effect=Effect.KEEP, reason=answer)
    if answer.relation is Relation.UNCERTAIN:
        return Decision(relation=Relation.UNCERTAIN, effect=Effect.KEEP, reason="undecided")
    if answer.confidence < thresholds.sure:
        return Decision(relation=Relation.UNCERTAIN, effect=Effect.KEEP, reason="not_sure")
    if answer.relevance < thresholds.min_relevance:
        return Decision(relation=answer.relation, effect=Effect.KEEP, reason="below_relevance")
    effect = Effect.UNLINK if answer.relation is Relation.NEUTRAL else Effect.LINK
    return Decision(relation=answer.relation, effect=effect, reason="accepted")


class Link(Value):
    """An accepted relation. `record_id` names the adjudication it rests on, `source` where the evidence is from."""

    relation: Literal[Relation.SUPPORTS, Relation.CONTRADICTS]
    relevance: Percent
    confidence: Percent
    source: str
    record_id: str

    @property
    def weight(self) -> Fraction:
        """relevance/100 x confidence/100, exactly, in 0..1."""
        return Fraction(self.relevance) * Fraction(self.confidence) / 10_000


class Qualification(StrEnum):
    """What the links of a hypothesis amount to."""

    UNRESOLVED = "unresolved"
    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    CONTESTED = "contested"


class Standing(Value):
    """How a hypothesis stands: a function of its links alone. `support` and `contradiction` are sums of weights."""

    score: UnitInterval
    qualification: Qualification
    support: float
    contradiction: float
    n_supporting: int
    n_contradicting: int
    supporting_sources: int
    contradicting_sources: int


_HIGH, _LOW, _TWO_SOURCES = Fraction(3, 4), Fraction(1, 4), 2


def standing_of(links: Iterable[Link]) -> Standing:
    """Score and qualification, whatever the order of the links: sums are exact and rounded once.

    With S and C the sums of supporting and contradicting weights the score is (1 + S) / (2 + S + C): the mean of a
    Beta(1 + S, 1 + C), 0.5 without links. In this order: `contested` at S >= 1 and C >= 1; `supported` at a score of
    0.75 and `contradicted` at 0.25, with two distinct sources on that side; else `unresolved`.
    """
    supporting: list[Link] = []
    contradicting: list[Link] = []
    for link in links:
        (supporting if link.relation is Relation.SUPPORTS else contradicting).append(link)
    support, contradiction = _sum(supporting), _sum(contradicting)
    score = (1 + support) / (2 + support + contradiction)
    for_it, against = _sources(supporting), _sources(contradicting)
    if support >= 1 and contradiction >= 1:
        qualification = Qualification.CONTESTED
    elif score >= _HIGH and for_it >= _TWO_SOURCES:
        qualification = Qualification.SUPPORTED
    elif score <= _LOW and against >= _TWO_SOURCES:
        qualification = Qualification.CONTRADICTED
    else:
        qualification = Qualification.UNRESOLVED
    return Standing(
        score=float(score),
        qualification=qualification,
        support=float(support),
        contradiction=float(contradiction),
        n_supporting=len(supporting),
        n_contradicting=len(contradicting),
        supporting_sources=for_it,
        contradicting_sources=against,
    )


def _sum(links: Iterable[Link]) -> Fraction:
    return sum((link.weight for link in links), Fraction())


def _sources(links: Iterable[Link]) -> int:
    return len({fold_text(link.source) for link in links})


def fold_text(text: str) -> str:
    """A text as it is compared: compatible characters, case and runs of blanks are one."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


UNLINKED = standing_of(())
"""How a hypothesis without links stands."""
