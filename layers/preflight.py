"""Preflight: before retrieval and any model, plain code asks whether the question can be answered from what there is.

It raises what claims must show, or refuses: a question with a false premise, or with nothing to point to, is not put to
anybody. The result, with the contracts and the policy in force, is one stage of the provenance.
"""

from __future__ import annotations

from dataclasses import dataclass

from layers import claim_reading as cr
from layers.contracts import Contracts
from layers.model import JsonObject
from layers.preflight_detectors import DETECTORS, Concern, Sentence, Subject
from layers.quantifiers import Demand, demand_of, strength


@dataclass(frozen=True, slots=True)
class Strength:
    """A sentence of what is judged: how strong it is (1..10), by which word, and what it must show.

    `refused` = it speaks of everything, and nothing beside it stands on the map: nothing could ever show it.
    """

    text: str
    step: int
    phrase: str | None
    demand: Demand
    refused: bool

    def as_json(self) -> JsonObject:
        return {
            "text": self.text,
            "step": self.step,
            "phrase": self.phrase,
            "demand": self.demand.value,
            "refused": self.refused,
        }


@dataclass(frozen=True, slots=True)
class Preflight:
    """What preflight found, with what was in force."""

    question: str
    concerns: tuple[Concern, ...]
    sentences: tuple[Strength, ...]
    contracts: Contracts
    cut: bool = False
    """Whether there were more sentences than the policy looks at."""

    @property
    def refused(self) -> bool:
        """Whether the question must not be put to anybody."""
        return any(concern.refuses for concern in self.concerns)

    @property
    def status(self) -> str:
        """`clear`, `raised` or `refused`."""
        if self.refused:
            return "refused"
        strong = any(sentence.refused or sentence.demand is not Demand.ONE for sentence in self.sentences)
        return "raised" if self.concerns or strong else "clear"

    def as_json(self) -> JsonObject:
        """The provenance stage."""
        return {
            "status": self.status,
            "question": self.question,
            "concerns": [concern.as_json() for concern in self.concerns],
            "sentences": [sentence.as_json() for sentence in self.sentences],
            "cut": self.cut,
            **self.contracts.as_json(),
        }


def preflight(subject: Subject, contracts: Contracts) -> Preflight:
    """Look at a prediction before anything costly is done with it. Deterministic; linear in the size of the map."""
    concerns = [concern for detect in DETECTORS for concern in detect(subject)]
    limit = subject.policy.max_sentences
    return Preflight(
        question=f"Is {subject.prediction.label!r} the right label for this item?",
        concerns=tuple(concerns),
        sentences=tuple(_strength(sentence, subject) for sentence in subject.spoken),
        contracts=contracts,
        cut=len(subject.sentences) > limit or len(subject.narrative) > subject.policy.max_characters,
    )


def _strength(sentence: Sentence, subject: Subject) -> Strength:
    found = sentence.quantifiers
    step = strength(found)
    demand = demand_of(step)
    strongest = max(found, key=lambda quantifier: quantifier.step, default=None)
    refused = demand is Demand.EXHAUSTIVE and not subject.touches(cr.content_words(sentence.words))
    return Strength(sentence.text[:200], step, None if strongest is None else strongest.phrase, demand, refused)
