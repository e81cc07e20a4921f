"""Checkable tokens in prose: citations, regulatory keywords, amounts, numbers, dates, names and codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import NamedTuple

from layers.anchor_patterns import CITATIONS, DATES, KEYWORDS, MONTHS
from layers.anchor_table import Table
from layers.folding import Normal, fold, normal, squash, without_section
from layers.names import codes, proper_names
from layers.numerals import CURRENCIES, SHARED_SIGNS, Numeral, means, numerals, written

__all__ = ["AnchorToken", "Held", "find_anchors", "find_claims", "fold", "holds"]


class AnchorToken(NamedTuple):
    """A token that can be checked. `start` and `end` index the text that was searched.

    `kind` is `citation`, `keyword`, `amount`, `percent`, `number`, `date`, `name` or `code`. `value` is the number with
    its scale applied (`$890M` is 890000000) and `unit` its currency, `%` or unit of time. `key` is the comparable form:
    two anchors with the same key are one. `numeral` is a number as it was read.
    """

    text: str
    kind: str
    value: Decimal | None
    unit: str | None
    start: int
    end: int
    key: str = ""
    numeral: Numeral | None = None

    def figure(self) -> Numeral | None:
        """The number that this anchor writes."""
        return self.numeral or written(self.text)


def find_claims(text: str) -> tuple[AnchorToken, ...]:
    """The anchors that a regulatory narrative must be able to back: citations, keywords, amounts and percentages."""
    prose = normal(text)
    found = _rows(prose, _CLAIMS)
    found += [token for token in _numbers(prose, measured=True) if token.kind != "number"]
    return _without_overlaps(found)


def find_anchors(text: str, *, names: bool = False) -> tuple[AnchorToken, ...]:
    """Every anchor in the text, in order, without overlaps; names only when asked for. Time is linear in the text."""
    prose = normal(text)
    found = [*_rows(prose, _CLAIMS), *_rows(prose, _DATES), *_numbers(prose)]
    found += (_token(prose, "code", start, end, "code") for start, end in codes(prose.plain))
    if names:
        found += (_token(prose, "name", start, end, "name") for start, end in proper_names(prose.plain))
    return _without_overlaps(found)


def holds(text: str, anchor: AnchorToken) -> bool:
    """Whether the text really contains the anchor: numbers as values with unit and scale, all else folded."""
    return Held(text).has(anchor)


class Held:
    """A text to look anchors up in; what the questions have in common is worked out once."""

    def __init__(self, text: str) -> None:
        self._prose = normal(text)

    def has(self, anchor: AnchorToken) -> bool:
        """Whether the text really contains the anchor."""
        if anchor.value is not None and anchor.kind != "date":
            number = anchor.figure()
            return number is not None and self.has_number(number)
        if anchor.key in self._keys:
            return True
        return anchor.kind != "date" and f" {squash(anchor.text)} " in self._words

    def has_number(self, number: Numeral) -> bool:
        """Whether some number in the text may fairly be written so."""
        return any(means(found.value, found.unit, number) for found in self.numerals)

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(token.key for token in (*_rows(self._prose, _CLAIMS), *_rows(self._prose, _DATES)))

    @cached_property
    def numerals(self) -> tuple[Numeral, ...]:
        """Its numbers, those with a minus before them as negative values."""
        return tuple(numeral if not numeral.signed else _negative(numeral) for numeral in numerals(self._prose.lower))

    @cached_property
    def _words(self) -> str:
        return f" {squash(self._prose.plain)} "


def _negative(numeral: Numeral) -> Numeral:
    return Numeral(-numeral.value, numeral.unit, numeral.step, numeral.sized, True, numeral.start, numeral.end)


# --- tokens ----------------------------------------------------------------------------------------------------------

_CLAIMS = Table(CITATIONS + KEYWORDS)
_DATES = Table(DATES)


def _rows(prose: Normal, table: Table) -> list[AnchorToken]:
    tokens: list[AnchorToken] = []
    for row, match in table.matches(prose):
        start, end = match.span()
        if row.kind != "date":
            tokens.append(_token(prose, row.kind, start, end, row.scheme, parts=match.groups()))
        elif (day := _day(match)) is not None:
            tokens.append(_token(prose, "date", start, end, "date", value=day))
    return tokens


def _day(match: re.Match[str]) -> Decimal | None:
    """The date as the number yyyymmdd."""
    groups = match.groupdict()
    month = MONTHS[groups["name"]] if groups.get("name") else int(groups["m"])
    day = int(groups["d"])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return Decimal(int(groups["y"]) * 10_000 + month * 100 + day)


def _token(
    prose: Normal,
    kind: str,
    start: int,
    end: int,
    scheme: str,
    *,
    parts: tuple[str | None, ...] = (),
    value: Decimal | None = None,
) -> AnchorToken:
    begin, stop = prose.span(start, end)
    if scheme in _WHOLE:
        key = f"{scheme}:{squash(without_section(prose.plain[start:end]))}"
    elif value is not None:
        key = f"{scheme}:{value}"
    else:
        key = _key(scheme, parts)
    return AnchorToken(prose.original[begin:stop], kind, value, None, begin, stop, key)


_WHOLE = frozenset({"name", "code", "title"})


@lru_cache(maxsize=4096)
def _key(scheme: str, parts: tuple[str | None, ...]) -> str:
    """Parts of a pattern are short: each of its repetitions is bounded."""
    return ":".join((scheme, *(squash(part) for part in parts if part)))


def _numbers(prose: Normal, *, measured: bool = False) -> Iterator[AnchorToken]:
    for numeral in numerals(prose.lower, measured=measured):
        start, end = prose.span(numeral.start, numeral.end)
        value = -numeral.value if numeral.signed else numeral.value
        key = f"{numeral.unit or ''}:{value.normalize()}"
        yield AnchorToken(prose.original[start:end], _kind(numeral), value, numeral.unit, start, end, key, numeral)


def _kind(numeral: Numeral) -> str:
    if numeral.unit == "%":
        return "percent"
    is_money = numeral.unit is None or numeral.unit in CURRENCIES or numeral.unit in SHARED_SIGNS
    return "amount" if numeral.sized and is_money else "number"


_WEIGHT = {"citation": 0, "date": 1, "keyword": 2, "amount": 3, "percent": 3, "number": 3, "code": 4, "name": 5}


def _without_overlaps(found: list[AnchorToken]) -> tuple[AnchorToken, ...]:
    """The weightiest of those that overlap, the longest among equals; in text order."""
    found.sort(key=_BY_START)
    kept: list[AnchorToken] = []
    end = 0
    for token in found:
        if token.start < end:
            if _rank(token) < _rank(kept[-1]):
                kept[-1], end = token, token.end
            continue
        kept.append(token)
        end = token.end
    return tuple(kept)


_BY_START = attrgetter("start")


def _rank(token: AnchorToken) -> tuple[int, int, str]:
    return _WEIGHT[token.kind], token.start - token.end, token.key
