"""The checks of one claim that look at what its evidence says: anchors, coverage, strength.

Each check is a function of a read claim and the pieces it points to, and returns problems as `code:detail`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from layers import claim_reading as cr
from layers.anchors import AnchorToken, Held
from layers.claim_reading import Reading
from layers.evidence import DEFAULT_LIMITS
from layers.model import Evidence, EvidenceRole
from layers.numerals import SHARED_SIGNS
from layers.quantifiers import Demand, demand_of, find_quantifiers, words

_DIGIT = re.compile(r"\d")

_ROLE_WORDS = {
    EvidenceRole.FLAG: ("flag", "flagged", "heuristic"),
    EvidenceRole.PROVIDER: ("provider", "driver", "model"),
    EvidenceRole.NEIGHBOR: ("neighbor", "neighbour"),
    EvidenceRole.POLICY: ("policy", "regulation"),
}


class Piece:
    """A piece of evidence to look things up in; what the questions share is worked out once."""

    __slots__ = ("_answers", "_held", "_spoken", "_words", "evidence")

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self._answers: dict[str, bool] = {}
        self._held: Held | None = None
        self._spoken: tuple[str, ...] | None = None
        self._words: frozenset[str] | None = None

    def has(self, anchor: AnchorToken) -> bool:
        """Whether the anchor stands in the text; names and codes may also stand in the pointer."""
        answer = self._answers.get(anchor.key)
        if answer is None:
            answer = self._answers[anchor.key] = self._look_up(anchor)
        return answer

    def _look_up(self, anchor: AnchorToken) -> bool:
        text = self.evidence.text
        if anchor.value is not None:
            if not _DIGIT.search(text):
                return False  # most texts hold no number at all, and are cheaply told
        else:
            parts = cr.words_of(anchor.text)
            if parts and cr.contains(self.spoken, parts):
                return True  # what most true claims come to
            if anchor.kind in {"name", "code"}:
                if set(parts) <= self.words:
                    return True
                if text.isascii() and anchor.text.isascii():
                    return False  # nothing to fold: there is no other way to write it
        if self._held is None:
            self._held = Held(text)
        return self._held.has(anchor)

    @property
    def spoken(self) -> tuple[str, ...]:
        """The words of the text, in order."""
        if self._spoken is None:
            self._spoken = tuple(words(self.evidence.text))
        return self._spoken

    @property
    def words(self) -> frozenset[str]:
        """The words of the text, of the field's name and of the role."""
        if self._words is None:
            field = (word for form in cr.field_forms(self.evidence.pointer) for word in form)
            self._words = frozenset((*self.spoken, *field, *_ROLE_WORDS.get(self.evidence.role, ())))
        return self._words

    def says(self, word: str) -> bool:
        """Whether the word, or an inflection of it, stands here."""
        return not self.words.isdisjoint(cr.variants(word))


@dataclass(frozen=True, slots=True)
class Case:
    """One claim with the pieces it points to, and the whole map."""

    claim: Reading
    pointed: tuple[Piece, ...]
    evidence: Sequence[Evidence]
    incomplete: frozenset[EvidenceRole]
    labels: tuple[str, ...]
    fields: cr.Fields
    opened: dict[str, Piece]
    reviewed: frozenset[str] = frozenset()
    """Ids of the evidence that is itself under review, the narrative's among them."""
    narrative: frozenset[str] = frozenset()

    def open(self, evidence: Evidence) -> Piece:
        """A piece of the map, pointed to or not."""
        piece = self.opened.get(evidence.id)
        if piece is None:
            piece = self.opened[evidence.id] = Piece(evidence)
        return piece

    def holds(self, anchor: AnchorToken) -> bool:
        return any(piece.has(anchor) for piece in self.pointed)

    def says(self, word: str) -> bool:
        return any(piece.says(word) for piece in self.pointed)

    def backed(self, start: int, end: int) -> bool:
        """Whether a stretch of the claim stands in the evidence: one of its anchors, or half of its content words."""
        inside = [anchor for anchor in self.claim.anchors if start <= anchor.start and anchor.end <= end]
        if any(self.holds(anchor) for anchor in inside):
            return True
        whole = end - start == len(self.claim.text)
        carrying = cr.content_words(self.claim.spoken if whole else words(self.claim.text[start:end]))
        if not carrying:
            return not inside
        return 2 * sum(map(self.says, carrying)) >= len(carrying)


Check = Callable[[Case], Iterator[str]]

# --- anchors --------------------------------------------------------------------------------------------------------


def anchors_stand(case: Case) -> Iterator[str]:
    """Every number (as a value), code, name, date and label word of the claim stands in what it points to."""
    claim = case.claim
    counted = {match.start(1) for match in claim.counts}  # the count check judges these
    checked = len(claim.labels) + len(counted)
    for anchor in claim.anchors:
        if anchor.start in counted or _is_pointer(anchor, case):
            continue
        checked += 1
        if not case.holds(anchor):
            yield f"anchor_missing:{anchor.text}"
    for label in claim.labels:
        parts = cr.words_of(label)
        if not any(cr.contains(piece.spoken, parts) for piece in case.pointed):
            yield f"anchor_missing:{label}"
    if not checked:
        yield "no_anchor"  # nothing that could be looked up: nothing was checked


def _is_pointer(anchor: AnchorToken, case: Case) -> bool:
    """A claim that names its pointers in its text (`as E3 shows`) says nothing by that."""
    return anchor.text.startswith("E") and any(piece.id == anchor.text for piece in case.evidence)


# --- the whole of the claim -----------------------------------------------------------------------------------------


def covered(case: Case) -> Iterator[str]:
    """Every clause of the claim stands in what it points to, and every pointer contributes."""
    for start, end in cr.clauses(case.claim.text):
        if not case.backed(start, end):
            yield f"uncovered:{case.claim.text[start:end]}"
    for piece in case.pointed:
        if not contributes(case, piece):
            yield f"idle_pointer:{piece.evidence.id}"


def contributes(case: Case, piece: Piece) -> bool:
    """Whether a piece holds anything of what the claim says."""
    claim = case.claim
    units = {anchor.unit for anchor in claim.anchors if anchor.unit}
    spelled = {*claim.spoken, *units, *(code for unit in units for code in SHARED_SIGNS.get(unit, ()))}
    if len(piece.spoken) <= 3 and not spelled.isdisjoint(piece.spoken):
        return True  # a short value (`USD`, `no`) that the claim spells out
    carrying = [*cr.content_words(claim.spoken), *(word for label in claim.labels for word in cr.words_of(label))]
    return any(map(piece.says, carrying)) or any(map(piece.has, claim.anchors))


def strength_paid(case: Case) -> Iterator[str]:
    """A strong word is paid for: what it points to says so itself, or holds enough of the pieces of its kind."""
    for quantifier in case.claim.quantifiers:
        demand = demand_of(quantifier.step)
        if demand is Demand.ONE or _says_so(case, quantifier.step):
            continue
        if not _enough(case, demand):
            yield f"overbroad:{quantifier.phrase}"


def _says_so(case: Case, step: int) -> bool:
    return any(found.step >= step for piece in case.pointed for found in find_quantifiers(piece.spoken))


def _enough(case: Case, demand: Demand) -> bool:
    if demand is Demand.TWO:
        return len(case.pointed) >= 2
    spoken_of = frozenset().union(*(kind.needs for kind in case.claim.kinds))
    roles = {piece.evidence.role for piece in case.pointed} & (spoken_of or frozenset(EvidenceRole))
    shown = Counter(piece.evidence.role for piece in case.pointed)
    there = Counter(piece.role for piece in case.evidence)
    if demand is Demand.MAJORITY:
        return bool(roles) and all(2 * shown[role] > there[role] for role in roles)
    return bool(roles) and all(
        shown[role] == there[role] and role not in case.incomplete and there[role] < DEFAULT_LIMITS.per_role[role]
        for role in roles  # a role at its limit may have lost pieces
    )
