"""What the shape of a claim must show: enumerations, counts, causes, comparisons and the order of dates.

Each check is a function of a `Case` and returns problems as `code:detail`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from itertools import islice, pairwise

from layers import claim_reading as cr
from layers.claim_checks import Case
from layers.quantifiers import words

MOST_SHAPES = 8
"""Counts, causes or comparisons of one claim that are looked at; a claim with more is not taken as checked."""


def _shapes(found: Iterable[re.Match[str]]) -> tuple[list[re.Match[str]], list[str]]:
    matches = list(islice(found, MOST_SHAPES + 1))
    problems = [f"too_many_shapes:{matches[-1].group()}"] if len(matches) > MOST_SHAPES else []
    return matches[:MOST_SHAPES], problems


def lists_stand(case: Case) -> Iterator[str]:
    """Every item of an enumeration stands in what the claim points to."""
    for start, end in cr.list_items(case.claim.text):
        if not case.backed(start, end):
            yield f"list_item_missing:{case.claim.text[start:end]}"


def counts_stand(case: Case) -> Iterator[str]:
    """A count is written in the evidence, or the claim points to exactly so many pieces of one role."""
    matches, problems = _shapes(case.claim.counts)
    yield from problems
    for match in matches:
        word = match.group(1).casefold()
        number = cr.NUMBER_WORDS.get(word)
        number = int(word) if number is None else number
        by_role = Counter(piece.evidence.role for piece in case.pointed)
        spelled = {name for name, value in cr.NUMBER_WORDS.items() if value == number} | {str(number)}
        if number not in by_role.values() and not any(piece.words & spelled for piece in case.pointed):
            yield f"count_unsupported:{match.group()}"


def causes_stand(case: Case) -> Iterator[str]:
    """Cause and effect both stand in what the claim points to. That one causes the other is not checked here."""
    if case.claim.present.isdisjoint(cr.CAUSE_CUES):
        return
    text = case.claim.text
    matches, problems = _shapes(cr.CAUSE.finditer(text))
    yield from problems
    for match in matches:
        for side, start, end in (("before", 0, match.start()), ("after", match.end(), len(text))):
            if not case.backed(start, end):
                yield f"cause_side_missing:{side} {match.group()}"


_COMPARE: Mapping[str, Callable[[Decimal, Decimal], bool]] = {
    ">": lambda left, right: left > right,
    "<": lambda left, right: left < right,
    "=": lambda left, right: left == right,
    ">=": lambda left, right: left >= right,
    "<=": lambda left, right: left <= right,
}
_SIGN = {
    "exceed": ">", "exceeds": ">", "exceeded": ">", "exceeding": ">", "above": ">", "over": ">", "more than": ">",
    "greater than": ">", "higher than": ">", "larger than": ">", "below": "<", "less than": "<", "lower than": "<",
    "fewer than": "<", "smaller than": "<", "equals": "=", "equal to": "=", "the same as": "=", "matches": "=",
    "at least": ">=", "at most": "<=",
}  # fmt: skip
_RELATION = re.compile(r"\b(?:" + "|".join(sorted(_SIGN, key=len, reverse=True)) + r")\b", re.IGNORECASE)
_RELATION_CUES = frozenset(phrase.split()[0] for phrase in _SIGN)
_NOT = re.compile(r"(?:\bnot?\b|\bnever\b|n['\u2019]t\b)[^.;]{0,24}$", re.IGNORECASE)


def relations_stand(case: Case) -> Iterator[str]:
    """Both sides of a comparison stand in what the claim points to, and where both are numbers it is true."""
    if case.claim.present.isdisjoint(_RELATION_CUES):
        return
    text = case.claim.text
    matches, problems = _shapes(_RELATION.finditer(text))
    yield from problems
    for match in matches:
        for side, start, end in (("before", 0, match.start()), ("after", match.end(), len(text))):
            if not case.backed(start, end):
                yield f"relation_side_missing:{side} {match.group()}"
        left, right = _left_number(case, match.start()), _right_number(case, match.end())
        if left is not None and right is not None:
            holds = _COMPARE[_SIGN[match.group().casefold()]](left, right)
            if holds == bool(_NOT.search(text[max(0, match.start() - 40) : match.start()])):
                yield f"relation_false:{left} {match.group()} {right}"


def _left_number(case: Case, position: int) -> Decimal | None:
    """The number that is compared: the last one written before, or the value of the field named there."""
    for anchor in reversed(case.claim.anchors):
        if anchor.end <= position and anchor.value is not None and anchor.kind != "date":
            return anchor.value
    pointed = {piece.evidence.id for piece in case.pointed}
    for _, field in cr.named_fields(words(case.claim.text[:position]), case.fields):
        if field.id in pointed:
            return _number(field.text)
    return None


def _right_number(case: Case, position: int) -> Decimal | None:
    for anchor in case.claim.anchors:
        if position <= anchor.start <= position + 24 and anchor.value is not None and anchor.kind != "date":
            return anchor.value
    return None


def _number(text: str) -> Decimal | None:
    if len(text) > 40:
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_finite() else None


_ORDER = re.compile(r"\b(before|earlier than|prior to|until|after|later than|since)\b", re.IGNORECASE)
_EARLIER = frozenset({"before", "earlier than", "prior to", "until"})


def dates_stand(case: Case) -> Iterator[str]:
    """Two dates that the claim puts in an order are in that order (that each stands in the evidence is an anchor's)."""
    days = [anchor for anchor in case.claim.anchors if anchor.kind == "date" and anchor.value is not None]
    for first, second in pairwise(days):
        order = _ORDER.search(case.claim.text, first.end, second.start)
        if order and first.value is not None and second.value is not None:
            earlier = order.group().casefold() in _EARLIER
            if first.value == second.value or (first.value < second.value) != earlier:
                yield f"date_order:{first.text} {order.group()} {second.text}"
