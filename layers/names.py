"""Proper names and codes in prose, found by their shape alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

_CODE = re.compile(r"[A-Za-z0-9]+(?:[-_./:@#][A-Za-z0-9]+)*")
_WORD = re.compile(r"[^\W\d_][\w&]*(?:(?:'(?!s\b)|-)\w+)*")
_LONGEST = 6
_JOINERS = frozenset({"of", "de", "van", "von", "der", "di", "da", "al", "the"})
_COMMON = frozenset(
    {
        "a", "an", "and", "after", "all", "although", "also", "another", "any", "as", "at", "because", "before", "both",
        "but", "by", "confidence", "customer", "despite", "due", "during", "each", "either", "every", "few", "first",
        "for", "from", "given", "had", "has", "have", "he", "her", "here", "high", "his", "how", "however", "i", "if",
        "in", "is", "it", "its", "label", "low", "many", "medium", "merchant", "most", "my", "narrative", "neither",
        "no", "none", "nor", "not", "nothing", "of", "on", "one", "only", "or", "other", "our", "over", "payment",
        "per", "policy", "prediction", "provider", "providers", "risk", "second", "several", "she", "similar", "since",
        "so", "some", "such", "than", "that", "the", "their", "then", "there", "therefore", "these", "they", "this",
        "those", "though", "three", "thus", "to", "transaction", "transactions", "two", "under", "unless", "until",
        "we", "what", "when", "where", "whether", "which", "while", "who", "why", "with", "within", "without", "you",
    }
)  # fmt: skip
"""Words that stand capitalised at the start of a sentence without being a name."""

_COMMON_ENDINGS = ("ing", "ly", "tion", "ions", "ment", "ness", "ity", "ed")


def codes(plain: str) -> Iterator[tuple[int, int]]:
    """Where tokens stand that mix letters and digits, such as `TXN-1234`, `v2`, `a1b2@c3`."""
    for match in _CODE.finditer(plain):
        token = match.group()
        if not token.isalpha() and any(c.isalpha() for c in token) and any(c.isdigit() for c in token):
            yield match.span()


def proper_names(plain: str) -> Iterator[tuple[int, int]]:
    """Where capitalised words stand, joined where they belong together (`Bank of England`).

    A common word that is capitalised because its sentence begins with it is none; any other one is.
    """
    group: list[re.Match[str]] = []
    for word in _WORD.finditer(plain):
        text = word.group()
        if not text[0].isupper() and text not in _JOINERS:
            if group:
                yield from _name(plain, group)
                group = []
            continue
        if not text.isalpha() and any(character.isdigit() for character in text):
            text = "0"  # a code: it ends a name and begins none
        adjacent = bool(group) and len(group) < _LONGEST and _only_blanks(plain, group[-1].end(), word.start())
        if adjacent and (text[0].isupper() or text in _JOINERS):
            group.append(word)
            continue
        yield from _name(plain, group)
        group = [word] if text[0].isupper() else []
    yield from _name(plain, group)


def _name(plain: str, group: list[re.Match[str]]) -> Iterator[tuple[int, int]]:
    if group and _opens_sentence(plain, group[0].start()) and _is_common(group[0].group()):
        group = group[1:]
    while group and group[0].group() in _JOINERS:
        group = group[1:]
    while group and group[-1].group() in _JOINERS:
        group = group[:-1]
    if group and group[-1].end() - group[0].start() > 1:
        yield group[0].start(), group[-1].end()


def _only_blanks(plain: str, start: int, end: int) -> bool:
    return 0 < end - start <= 2 and plain[start:end].isspace()


def _opens_sentence(plain: str, start: int) -> bool:
    before = plain[max(0, start - 4) : start].rstrip(" \t\"'([*-")
    return not before or before[-1] in ".!?:;\n"


def _is_common(word: str) -> bool:
    lower = word.lower()
    return lower in _COMMON or lower.endswith(_COMMON_ENDINGS)
