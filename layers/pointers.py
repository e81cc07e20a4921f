"""Verification of a model's claims by the evidence they point to: plain code, no model, no quotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from layers.claim_checks import Case, Check, Piece, anchors_stand, covered, strength_paid
from layers.claim_contradictions import contradicted
from layers.claim_independence import CIRCULAR, MENTION_ONLY, independent
from layers.claim_reading import Reading, index_fields, read_claim
from layers.claim_shapes import causes_stand, counts_stand, dates_stand, lists_stand, relations_stand
from layers.evidence import clean_text
from layers.model import RUNGS, Claim, Evidence, EvidenceRole, JsonObject, Rung

MAX_CLAIMS = 50
MAX_TEXT = 2_000
"""Characters of a claim."""

_SHOWN = 120


@dataclass(frozen=True, slots=True)
class CheckRun:
    """One check of the claims: whether it ran, how it looks, whether it passed (None when it did not run)."""

    name: str
    ran: bool
    method: str
    passed: bool | None


@dataclass(frozen=True, slots=True)
class Verification:
    """What the claims are worth. `rung` is the lowest claim's, `UNGROUNDED` without claims."""

    claims: tuple[Claim, ...]
    rung: Rung
    counts: Mapping[Rung, int]
    checks: tuple[CheckRun, ...]
    coverage: float | None
    """Share of the claims whose every clause is backed by what they point to; None without claims."""

    def as_json(self) -> JsonObject:
        """The verification as its provenance stage."""
        return {
            "claims": [
                {
                    "text": c.text,
                    "evidence_ids": list(c.evidence_ids),
                    "rung": c.rung.value,
                    "problems": list(c.problems),
                }
                for c in self.claims
            ],
            "rung": self.rung.value,
            "counts": {rung.value: count for rung, count in self.counts.items()},
            "checks": [{"name": c.name, "ran": c.ran, "method": c.method, "passed": c.passed} for c in self.checks],
            "coverage": self.coverage,
        }


# Which problems belong to which check, how the check looks, and the highest rung that a claim with such a problem has.
_CHECKS: tuple[tuple[str, str, Rung, frozenset[str]], ...] = (
    ("parsed", "shape of the decoded reply", Rung.UNGROUNDED, frozenset({"malformed", "text_too_long"})),
    ("text_not_empty", "text without blanks", Rung.UNGROUNDED, frozenset({"empty_text"})),
    ("pointers_present", "number of distinct pointers", Rung.UNGROUNDED, frozenset({"no_pointer"})),
    ("pointer_cap", "number of distinct pointers", Rung.UNGROUNDED, frozenset({"too_many_pointers"})),
    ("ids_resolve", "exact match with the numbered map", Rung.UNGROUNDED, frozenset({"unknown_id"})),
    ("roles_allowed", "kind of claim by its words, table of roles", Rung.UNGROUNDED,
     frozenset({"role_not_allowed", "role_missing"})),
    ("anchors_stand", "numbers as values; codes, names, dates, label words as folded text", Rung.POINTER_LINKED,
     frozenset({"anchor_missing", "no_anchor", "too_many_shapes"})),
    ("lists_stand", "every item of an enumeration", Rung.POINTER_LINKED, frozenset({"list_item_missing"})),
    ("counts_stand", "the number as written, or pointers of one role counted", Rung.POINTER_LINKED,
     frozenset({"count_unsupported"})),
    ("causes_stand", "both sides of the causal word", Rung.POINTER_LINKED, frozenset({"cause_side_missing"})),
    ("relations_stand", "both sides of the comparison, and its arithmetic", Rung.POINTER_LINKED,
     frozenset({"relation_side_missing", "relation_false"})),
    ("dates_stand", "order of dates as values", Rung.POINTER_LINKED, frozenset({"date_order"})),
    ("coverage", "every clause by anchor or half of its words, every pointer used", Rung.ANCHOR_WARRANTED,
     frozenset({"uncovered", "idle_pointer"})),
    ("no_contradiction", "fields, provider and neighbour labels on the whole map", Rung.ANCHOR_WARRANTED,
     frozenset({"contradicted_by"})),
    ("strength_paid", "quantifiers on a ten-step scale", Rung.ANCHOR_WARRANTED, frozenset({"overbroad"})),
    ("not_circular", "a pointer beside the label, the confidence and the narrative under review", Rung.POINTER_LINKED,
     frozenset({CIRCULAR})),
    ("beyond_a_mention", "as not_circular, for what is said of the narrative as a text; costs no rung",
     Rung.EVIDENCE_WARRANTED, frozenset({MENTION_ONLY})),
)  # fmt: skip

CHECK_NAMES: frozenset[str] = frozenset(name for name, _, _, _ in _CHECKS)
HIGHEST: Mapping[str, Rung] = {code: rung for _, _, rung, codes in _CHECKS for code in codes}
"""The highest rung of a claim with a problem of that code."""
FALSE: frozenset[str] = frozenset({"contradicted_by", "relation_false", "date_order"})
"""Problems of a claim that code found to be false, not only unsupported: an answer with one counts for nothing."""
NO_REASON: frozenset[str] = frozenset({CIRCULAR, MENTION_ONLY})
"""Problems of a claim that gives no reason for a label."""
_CONTENT_CHECKS: tuple[Check, ...] = (
    anchors_stand,
    lists_stand,
    counts_stand,
    causes_stand,
    relations_stand,
    dates_stand,
    covered,
    contradicted,
    strength_paid,
    independent,
)


def verify_claims(
    claims: object,
    evidence: Sequence[Evidence],
    *,
    labels: Sequence[str] = (),
    incomplete: Sequence[EvidenceRole] = (),
    max_pointers: int = 8,
    reviewed: Sequence[str] = (),
    narrative: Sequence[str] = (),
) -> Verification:
    """Check claims `[{"text", "evidence_ids"}]` (hostile: any decoded JSON) against the evidence map.

    `labels` are the system's label words; `incomplete` the roles of which the map holds only a part. `reviewed` and
    `narrative` are the ids of what is itself under review (`claim_independence.under_review`). Other fields of a claim,
    quotations among them, are not looked at. What is no list, or too long a one, is one malformed claim.
    """
    book = _Book(evidence, labels, incomplete, max_pointers, reviewed, narrative)
    given: Sequence[object] = claims if isinstance(claims, (list, tuple)) and len(claims) <= MAX_CLAIMS else ({},)
    checked = [book.check(claim) for claim in given]
    judged = tuple(claim for claim, _ in checked)
    problems = {code_of(problem) for claim in judged for problem in claim.problems}
    looked_into = any(deep for _, deep in checked)
    rungs = Counter(claim.rung for claim in judged)
    backed = sum(1 for claim, deep in checked if deep and not any(p.startswith("uncovered") for p in claim.problems))
    return Verification(
        claims=judged,
        rung=min((claim.rung for claim in judged), key=RUNGS.index, default=Rung.UNGROUNDED),
        counts={rung: rungs[rung] for rung in RUNGS},
        checks=tuple(_run(row, bool(judged), looked_into, problems) for row in _CHECKS),
        coverage=backed / len(judged) if judged else None,
    )


def _run(row: tuple[str, str, Rung, frozenset[str]], any_claim: bool, deep: bool, problems: set[str]) -> CheckRun:
    name, method, rung, codes = row
    ran = any_claim if rung is Rung.UNGROUNDED else deep
    return _check_run(name, ran, method, problems.isdisjoint(codes) if ran else None)


@lru_cache(maxsize=128)
def _check_run(name: str, ran: bool, method: str, passed: bool | None) -> CheckRun:
    return CheckRun(name, ran, method, passed)


def is_false(claim: Claim) -> bool:
    """Whether code found the claim to be false."""
    return any(code_of(problem) in FALSE for problem in claim.problems)


def gives_no_reason(claim: Claim) -> bool:
    """Whether the claim rests on nothing but what is under review."""
    return any(code_of(problem) in NO_REASON for problem in claim.problems)


def code_of(problem: str) -> str:
    """The code of a problem `code:detail`."""
    return problem.partition(":")[0]


class _Book:
    """The evidence map, opened for checking."""

    def __init__(
        self,
        evidence: Sequence[Evidence],
        labels: Sequence[str],
        incomplete: Sequence[EvidenceRole],
        cap: int,
        reviewed: Sequence[str],
        narrative: Sequence[str],
    ) -> None:
        self._evidence = evidence
        self._by_id = {piece.id: piece for piece in evidence}
        self._pieces: dict[str, Piece] = {}
        self._labels = tuple(label.casefold() for label in labels)
        self._incomplete = frozenset(incomplete)
        self._cap = cap
        self._narrative = frozenset(narrative)
        self._reviewed = self._narrative.union(reviewed)
        self._fields = index_fields(evidence)
        self._providers = frozenset(
            piece.text.partition(":")[0].casefold() for piece in evidence if piece.role == EvidenceRole.PROVIDER
        )

    def check(self, given: object) -> tuple[Claim, bool]:
        """The judged claim, and whether its content was looked into (only when its pointers hold)."""
        text, ids = _fields_of(given)
        if text is None or ids is None:
            return Claim(text="", evidence_ids=(), rung=Rung.UNGROUNDED, problems=("malformed",)), False
        problems = list(self._structure(text, ids))
        deep = not problems
        if deep:
            reading = read_claim(text, labels=self._labels, fields=self._fields, providers=self._providers)
            problems = list(_roles(reading, [self._by_id[i] for i in ids]))
            if not problems:
                case = self._case(reading, ids)
                problems = [problem for check in _CONTENT_CHECKS for problem in check(case)]
            else:
                deep = False
        shown = tuple(problem[:_SHOWN] for problem in dict.fromkeys(problems))
        rung = min((HIGHEST[code_of(p)] for p in problems), key=RUNGS.index, default=Rung.EVIDENCE_WARRANTED)
        return Claim(text=text[:MAX_TEXT], evidence_ids=ids[:MAX_CLAIMS], rung=rung, problems=shown), deep

    def _structure(self, text: str, ids: tuple[str, ...]) -> Iterator[str]:
        if not text.strip():
            yield "empty_text"
        if len(text) > MAX_TEXT:
            yield "text_too_long"
        if not ids:
            yield "no_pointer"
        if len(ids) > self._cap:
            yield "too_many_pointers"
        for evidence_id in ids[: self._cap]:
            if evidence_id not in self._by_id:
                yield f"unknown_id:{evidence_id}"

    def _case(self, reading: Reading, ids: tuple[str, ...]) -> Case:
        return Case(
            reading,
            tuple(self._piece(i) for i in ids),
            self._evidence,
            self._incomplete,
            self._labels,
            self._fields,
            self._pieces,
            self._reviewed,
            self._narrative,
        )

    def _piece(self, evidence_id: str) -> Piece:
        piece = self._pieces.get(evidence_id)
        if piece is None:
            piece = self._pieces[evidence_id] = Piece(self._by_id[evidence_id])
        return piece


def _fields_of(given: Any) -> tuple[str | None, tuple[str, ...] | None]:
    """Text and distinct ids of a claim, a decoded object or a value with these attributes; None for anything else."""
    if isinstance(given, Mapping):
        text, ids = given.get("text"), given.get("evidence_ids")
    else:
        text, ids = getattr(given, "text", None), getattr(given, "evidence_ids", None)
    if not isinstance(text, str) or not isinstance(ids, (list, tuple)):
        return None, None
    if not all(isinstance(item, str) for item in ids):
        return None, None
    return clean_text(text), tuple(dict.fromkeys(clean_text(item[:_SHOWN]) for item in ids))


def _roles(reading: Reading, pieces: Sequence[Evidence]) -> Iterator[str]:
    allowed = frozenset().union(*(kind.allows for kind in reading.kinds))
    for piece in pieces:
        if piece.role not in allowed:
            yield f"role_not_allowed:{piece.id}"
    roles = {piece.role for piece in pieces}
    for kind in reading.kinds:
        if kind.needs and not roles & kind.needs:
            yield f"role_missing:{kind.name}"
