"""Rows of shapes, found in a text by the literals that stand in their matches."""

from __future__ import annotations

import re

from layers.anchor_patterns import FRAGMENTS, Row
from layers.folding import Normal
from layers.numerals import has_digit

Found = tuple[Row, re.Match[str]]


class Table:
    """Rows, compiled, and found by the words that must occur for them to apply.

    A cue that may stand anywhere belongs to a row whose matches hold a digit: a text without one is not searched.
    """

    def __init__(self, rows: tuple[Row, ...]) -> None:
        self._by_word: dict[bytes, list[_Cue]] = {}
        self._anywhere: list[_Cue] = []
        for row in rows:
            pattern = compile_row(row)
            for text in row.cues:
                cue = _Cue(text.removesuffix("*"), row, pattern)
                if text.endswith("*"):
                    self._anywhere.append(cue)
                else:
                    self._by_word.setdefault(_words(text.lower())[0], []).append(cue)
        self._words = frozenset(self._by_word)

    def matches(self, prose: Normal) -> list[Found]:
        """Every match of every row near one of its cues, in no order."""
        found: list[Found] = []
        for word in self._words.intersection(_words(prose.lower)):
            for cue in self._by_word[word]:
                text = prose.plain if cue.cased else prose.lower
                if (at := text.find(cue.literal)) >= 0:
                    cue.find(text, at, found)
        for cue in self._anywhere if has_digit(prose.lower) else ():
            text = prose.plain if cue.cased else prose.lower
            if (at := text.find(cue.literal)) >= 0:
                cue.find(text, at, found)
        return found


class _Cue:
    """A literal near which a row's pattern is tried. Finding literals is many times faster than trying patterns."""

    __slots__ = ("after", "cased", "literal", "pattern", "reach", "row")

    def __init__(self, literal: str, row: Row, pattern: re.Pattern[str]) -> None:
        self.literal, self.row, self.pattern = literal, row, pattern
        self.cased, self.reach, self.after = row.cased, row.reach, row.after

    def find(self, text: str, at: int, found: list[Found]) -> None:
        """Add every match, where `at` is the first place of the literal."""
        literal, match_at = self.literal, self.pattern.match
        if self.reach or len(text) > _WINDOW * _WINDOW:
            self._find_in_reach(text, at, found)
            return
        while at >= 0:
            after = at + 1
            if begins_word(text, at) and (match := match_at(text, at)) is not None:
                found.append((self.row, match))
                after = match.end()
            at = text.find(literal, after)

    def _find_in_reach(self, text: str, at: int, found: list[Found]) -> None:
        """The same where the cue may stand further on in a match, or so often that the pattern itself is faster."""
        if len(text) > _WINDOW * _WINDOW and text.count(self.literal) * _WINDOW > len(text):
            found += ((self.row, match) for match in self.pattern.finditer(text) if begins_word(text, match.start()))
            return
        done = 0
        look = self.pattern.search if self.reach else self.pattern.match
        while at >= 0:
            match = None
            if not self.after or text[at - 1 : at] in self.after:
                match = look(text, max(done, at - self.reach), at + _WINDOW)
            if match is not None:
                done = match.end()
                if begins_word(text, match.start()):
                    found.append((self.row, match))
            at = text.find(self.literal, max(at + 1, done))


_WINDOW = 200
"""No pattern goes on for more than so many characters after its cue."""


def begins_word(text: str, start: int) -> bool:
    """Whether no word or code runs on into this position."""
    return start == 0 or not (text[start - 1].isalnum() or text[start - 1] in "_-")


_SPLIT = bytes(code if code < 128 and chr(code).isalnum() else ord(" ") for code in range(256))


def _words(lower: str) -> list[bytes]:
    """The runs of plain letters and digits. As bytes they cost a fraction of what they do as text."""
    return lower.encode("ascii", "replace").translate(_SPLIT).split()


def compile_row(row: Row) -> re.Pattern[str]:
    """The pattern of a row, its fragments put in and its blanks spelled out."""
    pattern = row.pattern
    for name, fragment in FRAGMENTS.items():
        pattern = pattern.replace(name, fragment)
    pattern = pattern.replace(" ?", r"\s{0,3}").replace(" ", r"\s{1,3}")
    return re.compile(rf"(?:{pattern})(?!\w)")
