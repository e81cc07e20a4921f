"""How much a sentence claims: quantifier words on a ten-step scale, and what each step must show to be believed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Demand(StrEnum):
    """What a claim of some strength must point to."""

    ONE = "one"
    """Any one piece of evidence."""
    TWO = "two"
    """At least two pieces, or one that says so itself."""
    MAJORITY = "majority"
    """More than half of the pieces of its kind on the map, or one that says so itself."""
    EXHAUSTIVE = "exhaustive"
    """Every piece of its kind, on a map that holds them all, or one that says so itself."""


# Step -> phrases. 10 admits no exception, 5 is about half, 1 commits to nothing.
SCALE: Mapping[int, tuple[str, ...]] = {
    10: (
        "all", "always", "every", "each", "everyone", "everybody", "everything", "everywhere", "any and all",
        "entire", "entirely", "whole", "wholly", "fully", "completely", "totally", "absolutely", "invariably",
        "without exception", "in every case", "in all cases", "at all times", "unanimous", "unanimously", "never", "no",
        "none", "no one", "nobody", "nothing", "nowhere", "not one", "not a single", "no single", "in no case",
        "under no circumstances", "100 %", "100%", "hundred percent", "exclusively", "solely",
    ),
    9: (
        "almost all", "nearly all", "virtually all", "practically all", "almost every", "nearly every", "almost always",
        "nearly always", "virtually always", "almost never", "hardly ever", "hardly any", "virtually no", "almost no",
        "virtually none", "almost none", "overwhelmingly", "overwhelming majority", "vast majority",
    ),
    8: ("large majority", "great majority", "the bulk of", "predominantly", "mainly", "largely", "for the most part"),
    7: ("most", "mostly", "majority", "usually", "typically", "generally", "normally", "in most cases", "as a rule"),
    6: ("many", "often", "frequently", "commonly", "regularly", "numerous", "repeatedly", "plenty of", "much of"),
    5: ("half", "about half", "half of", "equally", "as often as not", "multiple", "several", "various"),
    4: ("some", "sometimes", "certain", "a number of", "partly", "partially", "in some cases", "at times"),
    3: ("few", "a few", "a couple of", "occasionally", "rarely", "seldom", "infrequently", "in few cases"),
    2: ("at least one", "at least once", "one of", "a single", "someone", "something", "somewhere"),
    1: (
        "may", "might", "could", "can", "possibly", "perhaps", "conceivably", "potentially", "maybe", "not all",
        "not every", "not always", "not necessarily",
    ),
}  # fmt: skip

NEGATIVE = frozenset(
    {
        "no", "never", "none", "no one", "nobody", "nothing", "nowhere", "not one", "not a single", "no single",
        "in no case", "under no circumstances", "hardly ever", "hardly any", "almost never", "virtually no",
        "almost no", "virtually none", "almost none",
    }
)  # fmt: skip
"""Phrases that deny."""

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
_WORD_OR_WHOLE = re.compile(rf"100 ?%|{_WORD.pattern}")


@dataclass(frozen=True, slots=True)
class Quantifier:
    """A quantifier found in a text. `step` is in 1..10; `position` counts words."""

    phrase: str
    step: int
    position: int

    @property
    def negative(self) -> bool:
        return self.phrase in NEGATIVE


def words(text: str) -> list[str]:
    """The text's words, folded in case; hyphens and underscores part words."""
    return (_WORD_OR_WHOLE if "%" in text else _WORD).findall(text.casefold())


def _index() -> dict[str, tuple[tuple[tuple[str, ...], str, int], ...]]:
    by_first: dict[str, list[tuple[tuple[str, ...], str, int]]] = {}
    for step, phrases in SCALE.items():
        for phrase in phrases:
            parts = tuple(words(phrase))
            by_first.setdefault(parts[0], []).append((parts, phrase, step))
    return {first: tuple(sorted(entries, key=lambda e: -len(e[0]))) for first, entries in by_first.items()}


_PHRASES = _index()


def find_quantifiers(spoken: Sequence[str]) -> Iterator[Quantifier]:
    """The quantifiers among the words of a text (as `words` gives them), longest phrase first, without overlaps."""
    known = _PHRASES
    skip_to = 0
    for position, word in enumerate(spoken):
        if word not in known or position < skip_to:
            continue
        for parts, phrase, step in known[word]:
            if len(parts) == 1 or tuple(spoken[position : position + len(parts)]) == parts:
                yield Quantifier(phrase, step, position)
                skip_to = position + len(parts)
                break


def strength(quantifiers: Sequence[Quantifier]) -> int:
    """The step of a sentence: its strongest quantifier's, 2 ("it is so at least here") without any."""
    return max((quantifier.step for quantifier in quantifiers), default=2)


def demand_of(step: int) -> Demand:
    """What a claim of this step (1..10) must show."""
    if step >= 10:
        return Demand.EXHAUSTIVE
    if step >= 7:
        return Demand.MAJORITY
    return Demand.TWO if step >= 5 else Demand.ONE
