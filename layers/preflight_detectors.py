"""The detectors of preflight: what may be wrong with a question before anybody is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import combinations, islice
from typing import NamedTuple

from layers import claim_reading as cr
from layers.claim_checks import Case
from layers.claim_contradictions import contradicted
from layers.contracts import PreflightPolicy
from layers.json_pointer import resolve
from layers.model import EvalPrediction, Evidence, EvidenceRole, JsonObject
from layers.profile import SystemProfile
from layers.quantifiers import Quantifier, find_quantifiers, words

_LONGEST = 2_000


class Detector(StrEnum):
    """What preflight looks for."""

    FALSE_PREMISE = "false_premise"
    """The question takes for granted what is not so: a label that nobody offers, a field that says otherwise."""
    CONTRADICTORY = "contradictory"
    """What is to be judged says two things at once."""
    STALE_RISK = "stale_risk"
    """What there is may be out of date."""
    OUT_OF_CORPUS = "out_of_corpus"
    """There is nothing on the map that the question could be answered from."""
    FRAME_AMBIGUOUS = "frame_ambiguous"
    """A word has two readings in the system's vocabulary; both are kept."""


class Reading(StrEnum):
    """How a word may be meant."""

    LABEL = "label"
    FIELD = "field"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Concern:
    """One thing that a detector saw. `refuses` = the question is not put to anybody."""

    detector: Detector
    reason: str
    refuses: bool = False
    evidence_ids: tuple[str, ...] = ()
    readings: tuple[tuple[Reading, str], ...] = ()
    """For an ambiguous word: each way to read it, with the pointer of the field (empty for a label)."""

    def as_json(self) -> JsonObject:
        return {
            "detector": self.detector.value,
            "reason": self.reason,
            "refuses": self.refuses,
            "evidence_ids": list(self.evidence_ids),
            "readings": [[reading.value, pointer] for reading, pointer in self.readings],
        }


class Sentence(NamedTuple):
    """A sentence of the narrative, its words, and the quantifiers among them."""

    text: str
    words: list[str]
    quantifiers: tuple[Quantifier, ...]


@dataclass(frozen=True)
class Subject:
    """What is looked at: the prediction with its profile, the map as it stands, the time (RFC 3339) if it is known."""

    prediction: EvalPrediction
    profile: SystemProfile
    evidence: Sequence[Evidence]
    policy: PreflightPolicy = field(default_factory=PreflightPolicy)
    as_of: str | None = None

    @cached_property
    def narrative(self) -> str:
        pointer = self.profile.narrative_pointer
        text = resolve(self.prediction.raw_output, pointer) if pointer else ""
        return text if isinstance(text, str) else ""

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The narrative's sentences, one more than the policy looks at if there are more."""
        parts = (part.strip() for part in _SENTENCE.split(self.narrative[: self.policy.max_characters]))
        return tuple(islice((part for part in parts if part), self.policy.max_sentences + 1))

    @cached_property
    def spoken(self) -> tuple[Sentence, ...]:
        """The sentences that are looked at, read."""
        read = ((text, words(text)) for text in self.sentences[: self.policy.max_sentences])
        return tuple(Sentence(text, spoken, tuple(find_quantifiers(spoken))) for text, spoken in read)

    @cached_property
    def narrative_words(self) -> list[str]:
        """The words of as much of the narrative as is looked at."""
        return words(self.narrative[: self.policy.max_characters])

    @cached_property
    def others(self) -> tuple[Evidence, ...]:
        """The map without the narrative itself: a text is no evidence for itself."""
        return tuple(piece for piece in self.evidence if not self._is_narrative(piece))

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """The words of the map, field names included, without the narrative's."""
        texts = (word for piece in self.others for word in words(piece.text))
        names = (word for piece in self.others for form in cr.field_forms(piece.pointer) for word in form)
        return frozenset((*texts, *names))

    def touches(self, carrying: Sequence[str]) -> bool:
        """Whether any of the words, or an inflection of it, stands on the map beside the narrative."""
        return any(not self.vocabulary.isdisjoint(cr.variants(word)) for word in carrying)

    def _is_narrative(self, piece: Evidence) -> bool:
        return piece.role is EvidenceRole.RAW_OUTPUT and piece.pointer == self.profile.narrative_pointer

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return tuple(label.casefold() for label in self.profile.labels)


_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^\s])|\n+")


def false_premise(subject: Subject) -> Iterator[Concern]:
    """The label is none of the system's, or says that nothing was judged; or the narrative misstates a field."""
    label, profile = subject.prediction.label, subject.profile
    if label in profile.not_verdicts:
        yield Concern(Detector.FALSE_PREMISE, f"the label {label!r} says that nothing was judged", refuses=True)
    elif profile.labels and profile.fold(label) not in {profile.fold(known) for known in profile.labels}:
        yield Concern(Detector.FALSE_PREMISE, f"the label {label!r} is none of the system's labels", refuses=True)
    yield from _fields_say_otherwise(subject)


def _fields_say_otherwise(subject: Subject) -> Iterator[Concern]:
    fields = cr.index_fields(subject.others)
    for sentence, spoken, _ in subject.spoken:
        if len(sentence) > _LONGEST or not cr.named_fields(spoken, fields):
            continue
        claim = cr.read_claim(sentence, labels=subject.labels, fields=fields, providers=frozenset())
        case = Case(claim, (), subject.others, frozenset(), subject.labels, fields, {})
        ids = tuple(problem.partition(":")[2] for problem in contradicted(case))
        if ids:
            yield Concern(Detector.FALSE_PREMISE, f"a field says otherwise than {sentence[:120]!r}", False, ids)


def contradictory(subject: Subject) -> Iterator[Concern]:
    """The label differs from the payload's own, the narrative names only other labels, or two sentences exclude
    each other (`always` and `never` of the same thing)."""
    profile, label = subject.profile, subject.prediction.label
    written = resolve(subject.prediction.raw_output, profile.label_pointer) if profile.label_pointer else None
    if isinstance(written, str) and profile.fold(written) != profile.fold(label):
        ids = tuple(p.id for p in subject.evidence if p.pointer == profile.label_pointer)
        yield Concern(Detector.CONTRADICTORY, f"the payload's own label is {written[:80]!r}, not {label!r}", False, ids)
    spoken = {word for sentence in subject.spoken for word in sentence.words}
    named = [known for known in subject.labels if known in spoken]
    if named and label.casefold() not in named:
        yield Concern(Detector.CONTRADICTORY, f"the narrative speaks of {', '.join(named)}, the label is {label!r}")
    strict = [(sentence.words, [q for q in sentence.quantifiers if q.step == 10]) for sentence in subject.spoken]
    absolute = [(set(cr.content_words(said)), {q.negative for q in found}) for said, found in strict if found]
    for (first, first_denies), (second, second_denies) in islice(combinations(absolute, 2), 200):
        if first_denies != second_denies and len(first & second) >= 2:
            yield Concern(
                Detector.CONTRADICTORY, f"two sentences exclude each other on {', '.join(sorted(first & second)[:4])}"
            )
            return


def stale_risk(subject: Subject) -> Iterator[Concern]:
    """Neighbours were labelled under an older policy, or a time in the item is older than the policy allows."""
    old = tuple(p.id for p in subject.evidence if p.role is EvidenceRole.NEIGHBOR and p.text.endswith("older policy"))
    if old:
        yield Concern(Detector.STALE_RISK, "neighbours were labelled under an older policy", False, old)
    if subject.as_of is None:
        return
    oldest = subject.policy.oldest(subject.as_of)
    for piece in subject.evidence:
        is_time = piece.role in _OF_THE_ITEM and _TIME_FIELD.search(piece.pointer) and _DAY.match(piece.text)
        if is_time and piece.text[:10] < oldest:
            reason = f"{piece.pointer} is older than {subject.policy.max_age_days} days"
            yield Concern(Detector.STALE_RISK, reason, False, (piece.id,))


_OF_THE_ITEM = frozenset({EvidenceRole.RAW_OUTPUT, EvidenceRole.INPUT})
_TIME_FIELD = re.compile(r"(?:time|date|timestamp|_at|_on)[^/]*$", re.IGNORECASE)
_DAY = re.compile(r"[12][0-9]{3}-[01][0-9]-[0-3][0-9](?![0-9])")


def out_of_corpus(subject: Subject) -> Iterator[Concern]:
    """There is nothing on the map at all, or a narrative shares no word with anything else on it."""
    if not subject.evidence:
        yield Concern(Detector.OUT_OF_CORPUS, "there is no evidence that a claim could point to", refuses=True)
    elif subject.narrative and subject.others:
        carrying = cr.content_words(subject.narrative_words)
        if carrying and not subject.touches(carrying):
            yield Concern(Detector.OUT_OF_CORPUS, "the narrative shares no word with anything else on the map")


def frame_ambiguous(subject: Subject) -> Iterator[Concern]:
    """A label word in play is also the name or the value of another field of the item."""
    spoken = set(subject.narrative_words)
    own = subject.prediction.label.casefold()
    for label in dict.fromkeys((own, *(known for known in subject.labels if known in spoken))):
        readings: list[tuple[Reading, str]] = [(Reading.LABEL, "")]
        ids = []
        for piece in subject.others:
            if piece.role not in _OF_THE_ITEM or piece.pointer == subject.profile.label_pointer:
                continue
            if piece.text.strip().casefold() == label:
                readings.append((Reading.VALUE, piece.pointer))
            elif any(label in form for form in cr.field_forms(piece.pointer)):
                readings.append((Reading.FIELD, piece.pointer))
            else:
                continue
            ids.append(piece.id)
        if ids:
            reason = f"{label!r} can be read as a label and as another field's name or value"
            yield Concern(Detector.FRAME_AMBIGUOUS, reason, False, tuple(ids), tuple(readings))


DETECTORS: tuple[Callable[[Subject], Iterator[Concern]], ...] = (
    false_premise,
    contradictory,
    stale_risk,
    out_of_corpus,
    frame_ambiguous,
)
