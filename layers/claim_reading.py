"""How a claim is read before it is checked: what it speaks of, what shape it has, which words carry it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from layers.anchors import AnchorToken, find_anchors
from layers.model import Evidence, EvidenceRole
from layers.quantifiers import Quantifier, find_quantifiers, words


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_R = EvidenceRole
_OWN = frozenset({_R.RAW_OUTPUT, _R.INPUT, _R.FLAG})
ANY_ROLE = frozenset(EvidenceRole)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a claim speaks of. Every pointer must have a role in `allows`, one of them a role in `needs` (if any)."""

    name: str
    allows: frozenset[EvidenceRole]
    needs: frozenset[EvidenceRole] = frozenset()


FACT = Kind("fact", _OWN | {_R.POLICY}, _OWN)
"""Says something of a field of this very item: other items' and providers' labels can't show it."""
OPINION = Kind("opinion", ANY_ROLE)
"""Speaks of nothing in particular: any evidence may support it."""

_SPEAKS_OF: tuple[tuple[Kind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (
            Kind("norm", _OWN | {_R.POLICY}, frozenset({_R.POLICY})),
            r"\b(?:requir(?:es?|ed|ing)|prohibit\w*|forbid\w*|violat\w*|breach\w*|mandat(?:es?|ed|ory)|obliges?|permits?"
            r"|contravenes?|(?:non-?)?complian\w+|compl(?:y|ies) with|under|pursuant to|according to)\b",
        ),
        (
            Kind("provider", _OWN | {_R.PROVIDER}, frozenset({_R.PROVIDER})),
            r"\b(?:providers?|drivers?|models?)\b",
        ),
        (
            Kind("neighbor", _OWN | {_R.NEIGHBOR}, frozenset({_R.NEIGHBOR})),
            r"\b(?:neighbou?rs?|precedents?|(?:similar|earlier) (?:items?|cases?|verdicts?|transactions?))\b",
        ),
        (Kind("flag", _OWN, frozenset({_R.FLAG})), r"\b(?:flag(?:s|ged)?|heuristics?)\b"),
        (
            Kind("mention", _OWN | {_R.POLICY}, _OWN),
            r"\b(?:narrative|references?|cit(?:es?|ed|ing|ation)|mention(?:s|ed)?|quotes?|states?|stated)\b",
        ),
    )
)
_KIND_CUES = frozenset(
    word[:6]
    for word in _words(
        "require requiring prohibit forbid violates breach mandate oblige obliges permit contravene non compliance "
        "comply complies under pursuant according provider driver drivers model models neighbor neighbour precedent "
        "similar earlier flag flags flagged heuristic narrative reference cite cites cited citing citation mention "
        "quote quotes state states stated"
    )
)
"""How the words begin that the patterns begin with: most claims have none, and are spared the search."""
_RULE_WORDS = re.compile(r"\b(?:polic(?:y|ies)|regulations?|laws?|statutes?|thresholds?)\b")


_STOP = _words(
    "this that these those with from have been were will would should there their they them than then into onto over "
    "under about above below between because since therefore which while whereas when where what also only very more "
    "most less least such each every other another same some many much does done being both here item claim evidence "
    "label labels verdict transaction shows show shown says said"
)
_GENERIC_FIELDS = _words("type text name data value source message reason time input output result payload")
_DIGIT = re.compile("[0-9]")
_PARTS = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_CLAUSE = re.compile(
    r"[.;:!?]\s+|,\s+(?:and|but|which|so)\s+"
    r"|\s+(?:but|while|whereas|although|because|since|therefore|hence|thus|so that|due to|owing to)\s+",
    re.IGNORECASE,
)
CAUSE = re.compile(
    r"\b(?:because(?: of)?|due to|owing to|as a result of|caused by|leads? to|led to|results? in|therefore|hence|thus"
    r"|consequently|so that|which is why)\b",
    re.IGNORECASE,
)
CAUSE_CUES = _words(
    "because due owing as caused lead leads led result results therefore hence thus consequently so which"
)
"""The first words of what `CAUSE` finds."""
_LIST_BREAK = re.compile(r",\s+(?:and\s+|or\s+)?|;\s+|\s+and\s+|\s+or\s+", re.IGNORECASE)

NUMBER_WORDS = {
    "zero": 0, "one": 1, "two": 2, "both": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "dozen": 12,
}  # fmt: skip
_COUNTED = "(?:" + "|".join(NUMBER_WORDS) + "|[0-9]{1,3})"
COUNT = re.compile(
    rf"(?<![\w.,$\u20ac\u00a3\u00a5-])({_COUNTED})\s+(?:(?:out\s+)?of\s+(?:the\s+)?{_COUNTED}\s+)?"
    r"(?:[a-z-]{2,20}\s+){0,2}?([a-z]{3,24}s)\b",
    re.IGNORECASE,
)
"""`three transfers`, `5 of the 7 new customers`: group 1 is the count, group 2 what is counted."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A claim, read. Positions in anchors index `text`."""

    text: str
    folded: str
    spoken: tuple[str, ...]
    present: frozenset[str]
    """The words, each once."""
    anchors: tuple[AnchorToken, ...]
    labels: tuple[str, ...]
    """The system's label words that the claim uses, folded in case."""
    quantifiers: tuple[Quantifier, ...]
    kinds: tuple[Kind, ...]
    named: tuple[tuple[tuple[str, ...], Evidence], ...]
    """Fields of the item that the claim names, with the words in which it does, in the map's order."""
    counts: tuple[re.Match[str], ...]

    def speaks_of(self, name: str) -> bool:
        return any(kind.name == name for kind in self.kinds)


def read_claim(text: str, *, labels: Sequence[str], fields: Fields, providers: frozenset[str]) -> Reading:
    """Read one claim. `labels` and `providers` are folded in case."""
    folded = text.casefold()
    spoken = tuple(words(text))
    anchors = find_anchors(text, names=True)
    present = frozenset(spoken)
    used = tuple(label for label in labels if _says(spoken, present, label))
    named = tuple(sorted(named_fields(spoken, fields), key=lambda pair: _number_of(pair[1])))
    kinds = tuple(_kinds(folded, present, anchors, bool(named), providers))
    counts = () if present.isdisjoint(NUMBER_WORDS) and not _DIGIT.search(text) else tuple(COUNT.finditer(text))
    return Reading(text, folded, spoken, present, anchors, used, tuple(find_quantifiers(spoken)), kinds, named, counts)


def _number_of(piece: Evidence) -> tuple[int, str]:
    return len(piece.id), piece.id


def _says(spoken: tuple[str, ...], present: frozenset[str], label: str) -> bool:
    parts = words_of(label)
    if len(parts) == 1:
        return parts[0] in present
    return bool(parts) and contains(spoken, parts)


def contains(spoken: Sequence[str], parts: tuple[str, ...]) -> bool:
    """Whether the words `parts` stand in `spoken` side by side."""
    first, length = parts[0], len(parts)
    return any(word == first and tuple(spoken[at : at + length]) == parts for at, word in enumerate(spoken))


@lru_cache(maxsize=4096)
def words_of(text: str) -> tuple[str, ...]:
    """`words`, remembered: for labels and field names, which come again and again."""
    return tuple(words(text))


def _kinds(
    folded: str,
    present: frozenset[str],
    anchors: tuple[AnchorToken, ...],
    is_fact: bool,
    providers: frozenset[str],
) -> Iterable[Kind]:
    cued = not _KIND_CUES.isdisjoint([word[:6] for word in present])
    found = [kind for kind, pattern in _SPEAKS_OF if pattern.search(folded)] if cued else []
    names = {kind.name for kind in found}
    if "norm" in names and ("mention" in names or not _names_a_rule(folded, anchors)):
        found = [kind for kind in found if kind.name != "norm"]  # "under" alone is no norm; "cites" speaks of the text
    if "provider" not in names and providers & present:
        found.append(next(kind for kind, _ in _SPEAKS_OF if kind.name == "provider"))
    if found:
        return found
    return (FACT,) if is_fact else (OPINION,)


def _names_a_rule(folded: str, anchors: tuple[AnchorToken, ...]) -> bool:
    return any(anchor.kind in {"citation", "keyword"} for anchor in anchors) or bool(_RULE_WORDS.search(folded))


@lru_cache(maxsize=4096)
def field_forms(pointer: str) -> tuple[tuple[str, ...], ...]:
    """How a claim may name the field at a JSON Pointer: the words of its key, and the key as one word."""
    key = next((token for token in reversed(pointer.split("/")) if token and not token.isdigit()), "")
    parts = tuple(part.casefold() for part in _PARTS.findall(_CAMEL.sub(" ", key)))
    if not parts or (len(parts) == 1 and (len(parts[0]) < 4 or parts[0] in _GENERIC_FIELDS)):
        return ()
    return (parts,) if len(parts) == 1 else (parts, ("".join(parts),))


Fields = Mapping[str, Sequence[tuple[tuple[str, ...], Evidence]]]
"""First word of a field's name -> the whole name as words, and the piece that holds the field."""


def index_fields(evidence: Iterable[Evidence]) -> Fields:
    """The fields of the raw output and the input, by how a claim may name them."""
    index: dict[str, list[tuple[tuple[str, ...], Evidence]]] = {}
    for piece in evidence:
        if piece.role == _R.RAW_OUTPUT or piece.role == _R.INPUT:  # noqa: PLR1714 - hashing an enum member is slow
            for form in field_forms(piece.pointer):
                index.setdefault(form[0], []).append((form, piece))
    return index


def named_fields(spoken: Sequence[str], fields: Fields) -> list[tuple[tuple[str, ...], Evidence]]:
    """The fields that the words name, with the form in which they do."""
    return [
        (form, piece)
        for word in fields.keys() & set(spoken)
        for form, piece in fields[word]
        if len(form) == 1 or contains(spoken, form)
    ]


def content_words(spoken: Iterable[str]) -> list[str]:
    """The words that carry meaning: longer than three letters, no function words, no numbers."""
    return [word for word in spoken if len(word) > 3 and word not in _STOP and not word[0].isdigit()]


@lru_cache(maxsize=8192)
def variants(word: str) -> tuple[str, ...]:
    """The word and its plain English inflections, so that `transfers` is found where `transfer` stands."""
    stem = word
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            stem = word[: -len(ending)]
            break
    return (word, stem, stem + "s", stem + "es", stem + "ed", stem + "ing", stem + "e")


def clauses(text: str) -> list[tuple[int, int]]:
    """The spans of the text's clauses."""
    return _between(_CLAUSE, text)


def list_items(text: str) -> list[tuple[int, int]]:
    """The spans of the items of an enumeration of three or more; empty when the text is none."""
    if ", " not in text:
        return []
    spans = _between(_LIST_BREAK, text)
    return spans if len(spans) >= 3 else []


def _between(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    spans = []
    start = 0
    for match in pattern.finditer(text):
        spans.append((start, match.start()))
        start = match.end()
    spans.append((start, len(text)))
    return spans
