"""Checkable tokens in prose: citations, regulatory keywords, amounts, numbers, dates, names and codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from layers.anchor_patterns import CITATIONS, DATES, FRAGMENTS, KEYWORDS, MONTHS, Row
from layers.folding import Normal, fold, normal, squash, without_section
from layers.names import codes, proper_names
from layers.numerals import CURRENCIES, SHARED_SIGNS, Numeral, means, numerals

__all__ = ["AnchorToken", "Held", "find_anchors", "find_claims", "fold", "holds"]


@dataclass(frozen=True, slots=True)
class AnchorToken:
    """A token that can be checked. `start` and `end` index the text that was searched.

    `kind` is `citation`, `keyword`, `amount`, `percent`, `number`, `date`, `name` or `code`. `value` is the number with
    its scale applied (`$890M` is 890000000) and `unit` its currency, `%` or unit of time. `key` is the comparable form:
    two anchors with the same key are one.
    """

    text: str
    kind: str
    value: Decimal | None
    unit: str | None
    start: int
    end: int
    key: str = ""


def find_claims(text: str) -> tuple[AnchorToken, ...]:
    """The anchors that a regulatory narrative must be able to back: citations, keywords, amounts and percentages."""
    prose = normal(text)
    found = [*_rows(prose, _CLAIMS), *(token for token in _numbers(prose) if token.kind in {"amount", "percent"})]
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
            written = next(numerals(normal(anchor.text).lower), None)
            return written is not None and self.has_number(written)
        if anchor.key in self._keys:
            return True
        return anchor.kind != "date" and f" {squash(anchor.text)} " in self._words

    def has_number(self, written: Numeral) -> bool:
        """Whether some number in the text may fairly be written so."""
        return any(means(found.value, found.unit, written) for found in self._numerals)

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(token.key for token in (*_rows(self._prose, _CLAIMS), *_rows(self._prose, _DATES)))

    @cached_property
    def _numerals(self) -> tuple[Numeral, ...]:
        return tuple(numeral if not numeral.signed else _negative(numeral) for numeral in numerals(self._prose.lower))

    @cached_property
    def _words(self) -> str:
        return f" {squash(self._prose.plain)} "


def _negative(numeral: Numeral) -> Numeral:
    return Numeral(-numeral.value, numeral.unit, numeral.step, numeral.sized, True, numeral.start, numeral.end)


# --- rows -----------------------------------------------------------------------------------------------------------


class _Table:
    """Rows, compiled, and found by the words that must occur for them to apply."""

    def __init__(self, rows: tuple[Row, ...]) -> None:
        self._compiled = tuple((row, _compile(row)) for row in rows)
        self._by_word: dict[str, list[int]] = {}
        self._by_mark: list[tuple[str, bool, int]] = []
        for at, row in enumerate(rows):
            for word in row.words:
                self._by_word.setdefault(word, []).append(at)
            self._by_mark += ((mark, row.cased, at) for mark in row.marks)

    def candidates(self, prose: Normal) -> list[tuple[Row, re.Pattern[str]]]:
        """The rows that could match, in table order."""
        words = self._by_word.keys() & set(prose.lower.translate(_SPLIT).split())
        hits = {at for word in words for at in self._by_word[word]}
        plain, lower = prose.plain, prose.lower
        hits.update(at for mark, cased, at in self._by_mark if mark in (plain if cased else lower))
        return [self._compiled[at] for at in sorted(hits)]


_SPLIT = {code: " " for code in range(128) if not chr(code).isalnum()} | {ord("§"): " "}


def _compile(row: Row) -> re.Pattern[str]:
    pattern = row.pattern
    for name, fragment in FRAGMENTS.items():
        pattern = pattern.replace(name, fragment)
    pattern = pattern.replace(" ?", r"\s{0,3}").replace(" ", r"\s{1,3}")
    return re.compile(rf"(?:{pattern})(?!\w)")


_CLAIMS = _Table(CITATIONS + KEYWORDS)
_DATES = _Table(DATES)


def _rows(prose: Normal, table: _Table) -> Iterator[AnchorToken]:
    for row, pattern in table.candidates(prose):
        text = prose.plain if row.cased else prose.lower
        for match in pattern.finditer(text):
            start, end = match.span()
            # Not a look-behind in the pattern: that would cost the engine its fast search for the first letter.
            if start and (text[start - 1].isalnum() or text[start - 1] in "_-"):
                continue
            if row.kind == "date":
                if (day := _day(match)) is not None:
                    yield _token(prose, "date", start, end, "date", value=day)
            else:
                yield _token(prose, row.kind, start, end, row.scheme, parts=match.groups())


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
    begin, stop = prose.origin(start), prose.origin(end)
    if scheme in {"name", "code", "title"}:
        key = f"{scheme}:{squash(without_section(prose.plain[start:end]))}"
    elif value is not None:
        key = f"{scheme}:{value}"
    else:
        key = ":".join((scheme, *(squash(part) for part in parts if part)))
    return AnchorToken(prose.original[begin:stop], kind, value, None, begin, stop, key)


def _numbers(prose: Normal) -> Iterator[AnchorToken]:
    for numeral in numerals(prose.lower):
        start, end = prose.origin(numeral.start), prose.origin(numeral.end)
        value = -numeral.value if numeral.signed else numeral.value
        key = f"{numeral.unit or ''}:{value.normalize()}"
        yield AnchorToken(prose.original[start:end], _kind(numeral), value, numeral.unit, start, end, key)


def _kind(numeral: Numeral) -> str:
    if numeral.unit == "%":
        return "percent"
    is_money = numeral.unit is None or numeral.unit in CURRENCIES or numeral.unit in SHARED_SIGNS
    return "amount" if numeral.sized and is_money else "number"


_WEIGHT = {"citation": 0, "date": 1, "keyword": 2, "amount": 3, "percent": 3, "number": 3, "code": 4, "name": 5}


def _without_overlaps(found: list[AnchorToken]) -> tuple[AnchorToken, ...]:
    """The weightiest of those that overlap, the longest among equals; in text order."""
    found.sort(key=lambda token: (token.start, _WEIGHT[token.kind], -token.end))
    kept: list[AnchorToken] = []
    for token in found:
        if kept and token.start < kept[-1].end:
            if _rank(token) < _rank(kept[-1]):
                kept[-1] = token
            continue
        kept.append(token)
    return tuple(kept)


def _rank(token: AnchorToken) -> tuple[int, int]:
    return _WEIGHT[token.kind], token.start - token.end
