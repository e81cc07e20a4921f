"""Whether anything on the whole evidence map contradicts a claim, pointed to or not.

Deliberately narrow: a contradiction is only what code can be sure of. A claim with a negation in it is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from layers.claim_checks import Case
from layers.model import Evidence, EvidenceRole

_JOINT = (
    r"[\s:='\"]*(?:(?:is|was|are|of|at|as|equals|equal to|stands at|reported as|given as|set to|label(?:l?ed)?)"
    r"[\s:='\"]+){0,2}"
)
_DENIAL = re.compile(r"\b(?:not?|never|none|neither|nor|without|lacks?|missing|absent)\b|n['\u2019]t\b")
_ABSENT = r"\b(?:no|not any|without(?: an?)?|lacks?(?: an?)?|missing(?: an?)?)\s+"
_AGREE = re.compile(
    r"\b(?:agree[ds]?|unanimous(?:ly)?|same (?:label|verdict|answer)|all (?:say|said|answered|labell?ed))\b"
)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\Z")
_NOTHING = frozenset({"", "null", "none", "[]", "{}", "n/a"})


def contradicted(case: Case) -> Iterator[str]:
    """Problems `contradicted_by:E4` for pieces of the map that say otherwise."""
    denies = bool(_DENIAL.search(case.claim.folded))
    if denies:
        yield from _present_after_all(case)
        return
    if case.claim.speaks_of("provider"):
        yield from _providers(case)
    elif case.claim.speaks_of("neighbor"):
        yield from _disunited(case, EvidenceRole.NEIGHBOR)
    else:
        yield from _fields(case)


def _fields(case: Case) -> Iterator[str]:
    """`confidence is 0.9` where the field says 0.62; `risk level: high` where it says low."""
    for form, piece in case.claim.named:
        if any(_differs(case, piece, match.end()) for match in _stated(form).finditer(case.claim.text)):
            yield f"contradicted_by:{piece.id}"


@lru_cache(maxsize=4096)
def _stated(form: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(r"\b" + r"[\s_-]?".join(map(re.escape, form)) + r"\b" + _JOINT, re.IGNORECASE)


def _differs(case: Case, piece: Evidence, position: int) -> bool:
    if _NUMBER.match(piece.text):
        for anchor in case.claim.anchors:
            if anchor.start <= position < anchor.end and anchor.value is not None:
                return not case.open(piece).has(anchor)
        return False
    field = piece.text.casefold()
    said = case.claim.text[position : position + 64].casefold()
    if field not in case.labels:
        return False
    return any(re.match(rf"{re.escape(label)}\b", said) for label in case.labels if label != field)


def _present_after_all(case: Case) -> Iterator[str]:
    """`without a narrative` where there is one."""
    for form, piece in case.claim.named:
        if piece.text.strip().casefold() not in _NOTHING and _absent(form).search(case.claim.folded):
            yield f"contradicted_by:{piece.id}"


@lru_cache(maxsize=4096)
def _absent(form: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(_ABSENT + r"[\s_-]?".join(map(re.escape, form)) + r"\b")


def _providers(case: Case) -> Iterator[str]:
    """`gemini said high` where gemini said low; `all agree` where they do not."""
    present = frozenset(case.claim.spoken)
    for piece in case.evidence:
        if piece.role is EvidenceRole.PROVIDER and case.claim.labels:
            name, label = _said(piece)
            if name in present and label in case.labels and label not in case.claim.labels:
                yield f"contradicted_by:{piece.id}"
    yield from _disunited(case, EvidenceRole.PROVIDER)


def _disunited(case: Case, role: EvidenceRole) -> Iterator[str]:
    if not _AGREE.search(case.claim.folded) and not any(q.step == 10 for q in case.claim.quantifiers):
        return
    said = [(piece, _said(piece)[1]) for piece in case.evidence if piece.role is role]
    for piece, label in said:
        if label != said[0][1] or (case.claim.labels and label not in case.claim.labels):
            yield f"contradicted_by:{piece.id}"
            return


def _said(piece: Evidence) -> tuple[str, str]:
    """Who said what, of a provider's or neighbour's piece (`name: label, ...`, as the service writes them)."""
    name, _, rest = piece.text.casefold().partition(": ")
    return name, rest.partition(",")[0]
