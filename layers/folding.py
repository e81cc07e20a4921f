"""How texts are made comparable: one kind of hyphen, quote and space, no invisible characters, no case."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_SLICE = 512
"""Normalisation is quadratic in a run of combining marks, so that long runs are normalised in slices."""

_SHORT = 4

_HYPHENS = "\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\ufe58\ufe63\uff0d\u058a\u1806\u2e3a\u2e3b\u30fb"
_SINGLE_QUOTES = "\u2018\u2019\u201a\u201b\u2032\u2035\u2039\u203a\u02bc\u00b4\uff07"
_DOUBLE_QUOTES = "\u201c\u201d\u201e\u201f\u2033\u2036\u00ab\u00bb\u301d\u301e\u301f\uff02"
_SPACES = "\u00a0\u1680\u180e\u2028\u2029\u202f\u205f\u3000\u0085" + "".join(map(chr, range(0x2000, 0x200B)))
_SLASHES = "\u2044\u2215\u29f8\uff0f"
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2061\u2062\u2063\u2064\u2066\u2067\u2068\u2069\u206a\u206b\u206c\u206d\u206e\u206f\u3164\ufeff\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0000, 0xE0080)))
)

_REMOVE = str.maketrans(dict.fromkeys(_INVISIBLE, ""))
FOLD_TABLE: dict[int, str] = str.maketrans(
    dict.fromkeys(_HYPHENS, "-")
    | dict.fromkeys(_SINGLE_QUOTES, "'")
    | dict.fromkeys(_DOUBLE_QUOTES, '"')
    | dict.fromkeys(_SPACES, " ")
    | dict.fromkeys(_SLASHES, "/")
    # The one capital whose small form has two characters: small and original text must stay aligned.
    | {"\u0130": "I"}
    | dict.fromkeys(_INVISIBLE, "")
)

_ASCII = bytes(range(128))
_RUN = re.compile(r"[^\x00-\x7f]+")
_NOT_WORD = re.compile(r"[^\w]+|_")


@dataclass(frozen=True, slots=True)
class Normal:
    """A text made comparable with its case kept (`plain`) and without (`lower`, same length), aligned to the original.

    `moved` are the stretches whose length changed: where each ends in `plain` (`ends` once more), its length there, and
    where it begins and ends in the original.
    """

    original: str
    plain: str
    lower: str
    moved: tuple[tuple[int, int, int, int], ...] = ()
    ends: tuple[int, ...] = ()

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The stretch of the original text that a stretch of `plain` came from."""
        if not self.moved:
            return start, end
        return self._origin(start, is_end=False), self._origin(end, is_end=True)

    def _origin(self, position: int, *, is_end: bool) -> int:
        at = bisect_right(self.ends, position)
        if at < len(self.moved):
            end, length, first, last = self.moved[at]
            if position > end - length:
                return last if is_end else first
        return position if at == 0 else position + self.moved[at - 1][3] - self.moved[at - 1][0]


def normal(text: str) -> Normal:
    """The text made comparable, in time linear in its length."""
    if text.isascii():
        return Normal(text, text, text.lower())
    parts: list[str] = []
    moved: list[tuple[int, int, int, int]] = []
    done = length = 0
    for start, end in _foreign_runs(text):
        start = max(start - 1, done)  # a mark may belong to the plain letter before it
        folded = _fold_run(text[start:end])
        parts += (text[done:start], folded)
        length += start - done + len(folded)
        if len(folded) != end - start:
            moved.append((length, len(folded), start, end))
        done = end
    parts.append(text[done:])
    plain = "".join(parts)
    return Normal(text, plain, plain.lower(), tuple(moved), tuple(stretch[0] for stretch in moved))


def _foreign_runs(text: str) -> Iterator[tuple[int, int]]:
    """Where characters beyond ASCII stand. Looking for the few that there mostly are is faster than a pattern."""
    foreign = text.encode("utf-8", "surrogatepass").translate(None, _ASCII).decode("utf-8", "surrogatepass")
    if len(foreign) * 16 > len(text):
        yield from (run.span() for run in _RUN.finditer(text))
        return
    start = end = -1
    for character in foreign:
        at = text.find(character, end if end >= 0 else 0)
        if at != end:
            if end >= 0:
                yield start, end
            start = at
        end = at + 1
    yield start, end


def _fold_run(run: str) -> str:
    if len(run) <= _SHORT:
        return _fold_short(run)
    if len(run) <= _SLICE:
        return _fold_slice(run)
    pieces, start = [], 0
    while start < len(run):
        end = start + _SLICE
        while end < min(len(run), start + 2 * _SLICE) and unicodedata.combining(run[end]):
            end += 1
        pieces.append(_fold_slice(run[start:end]))
        start = end
    return "".join(pieces)


@lru_cache(maxsize=4096)
def _fold_short(run: str) -> str:
    """A sign or two between plain letters is what comes again and again."""
    return _fold_slice(run)


def _fold_slice(run: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", run.translate(_REMOVE)).translate(FOLD_TABLE))


def fold(text: str) -> str:
    """The text as it is compared: NFKC, one kind of hyphen, quote and space, no invisible characters, no case."""
    if text.isascii():
        return text.lower()
    return normal(normal(text).plain.casefold()).plain


@lru_cache(maxsize=4096)
def _squash_short(text: str) -> str:
    return " ".join(_NOT_WORD.sub(" ", fold(text)).split())


def squash(text: str) -> str:
    """The words of a text, folded, one space between them, without punctuation."""
    if len(text) <= 200:
        return _squash_short(text)
    return " ".join(_NOT_WORD.sub(" ", fold(text)).split())


_SECTION = re.compile(r"[\s,]{1,3}(?:section|sec\.|§{1,2})\s{0,3}[\w.()-]{1,20}\s{0,3}$")


def without_section(text: str) -> str:
    """The text, folded, without a trailing ` Section N`: a reference to a part is a reference to the whole."""
    folded = fold(text)
    return _SECTION.sub("", folded[-64:]) if len(folded) <= 64 else folded[:-64] + _SECTION.sub("", folded[-64:])
