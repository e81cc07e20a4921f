"""What a narrative can be held against without asking anybody: its references, and the numbers of its payload."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, NamedTuple

from layers.anchors import AnchorToken, Held, find_claims
from layers.folding import normal, squash, without_section
from layers.json_pointer import MISSING, escape, resolve
from layers.model import EvidenceRole, JsonObject
from layers.numerals import CURRENCIES, has_digit, is_near, means, numerals
from layers.profile import SystemProfile

Place = tuple[EvidenceRole, str]
"""Where something stands: the document, and the JSON Pointer into it."""

MOST_REFERENCES = 256
MOST_FIELDS = 5_000
LONGEST_TEXT = 20_000
LONGEST_NUMBER = 80
"""Characters of a field that is a number and nothing else."""
_SMALL_WORDS = frozenset({"of", "and", "for", "on", "to", "the"})


class Reference:
    """One entry of a list of references: an id, a title, or both."""

    def __init__(self, text: str) -> None:
        self.held = Held(text)
        self.words = squash(without_section(text))
        self._claims = find_claims(text)

    @cached_property
    def ids(self) -> frozenset[str]:
        """The keys of the citations by number in it; empty for a mere title."""
        return frozenset(claim.key for claim in self._claims if claim.kind == "citation" and not is_title(claim))

    def names(self, anchor: AnchorToken) -> bool:
        """Whether this is a reference to what the anchor names. A title may be shorter or longer than the other one."""
        if self.held.has(anchor):
            return True
        title = anchor.key.partition(":")[2]
        return is_title(anchor) and self.words.count(" ") > 0 and f" {self.words} " in f" {title} "

    def is_related(self, anchor: AnchorToken) -> bool:
        """Whether one is an id and the other a title that fits it: `AML-BSA-001` and `Bank Secrecy Act`."""
        if is_title(anchor):
            return bool(self.ids) and _fits(anchor.key.partition(":")[2], self.words)
        return not self.ids and _fits(self.words, anchor.key.partition(":")[2])


@lru_cache(maxsize=2048)
def _short_reference(text: str) -> Reference:
    """References are few and come again with every prediction of a system."""
    return Reference(text)


def _reference(text: str) -> Reference:
    return _short_reference(text) if len(text) <= 200 else Reference(text[:LONGEST_TEXT])


def is_title(anchor: AnchorToken) -> bool:
    """Whether the citation names a document by its title rather than by a number."""
    return anchor.key.startswith("title:")


def _fits(title: str, number: str) -> bool:
    """Whether a letter group of the id is a word of the title, or the initials of some of its words in a row."""
    words = [word for word in title.split() if word not in _SMALL_WORDS]
    initials = "".join(word[0] for word in words)
    parts = [part for part in number.split() if part.isalpha() and len(part) > 1]
    return any(part in words or (len(part) > 2 and part in initials) for part in parts)


def read_references(raw_output: JsonObject, pointer: str | None) -> tuple[tuple[Place, Reference], ...]:
    """The references at `pointer`, each with its place: a text, or a list of texts or of objects that hold texts."""
    found = MISSING if pointer is None else resolve(raw_output, pointer)
    entries = found if isinstance(found, list) else [found]
    references: list[tuple[Place, Reference]] = []
    for at, entry in enumerate(entries[:MOST_REFERENCES]):
        text = entry if isinstance(entry, str) else _texts(entry)
        if text.strip():
            place = f"{pointer}/{at}" if entries is found else f"{pointer}"
            references.append(((EvidenceRole.RAW_OUTPUT, place), _reference(text)))
    return tuple(references)


def _texts(entry: Any) -> str:
    if not isinstance(entry, dict):
        return ""
    return "\n".join(value for value in entry.values() if isinstance(value, str))


class Number(NamedTuple):
    """A number of the payload, its unit where the payload names one, and where it stands; `size` is near its amount."""

    value: Decimal
    unit: str | None
    place: Place
    size: float


class Ground:
    """All that stage 2 may look at; each part is read only when a claim asks for it."""

    def __init__(self, raw_output: JsonObject, input: JsonObject | None, profile: SystemProfile) -> None:
        self._raw_output = raw_output
        self._input = input
        self._profile = profile

    @cached_property
    def references(self) -> tuple[tuple[Place, Reference], ...]:
        """The references of the prediction, with their places."""
        return read_references(self._raw_output, self._profile.references_pointer)

    @cached_property
    def numbers(self) -> tuple[Number, ...]:
        """The numbers of the input, prose included, and of the raw output outside prose: a text proves no other."""
        skip = frozenset(filter(None, (self._profile.narrative_pointer, self._profile.references_pointer)))
        own = _numbers(self._raw_output, EvidenceRole.RAW_OUTPUT, skip, prose=False)
        return (*_numbers(self._input or {}, EvidenceRole.INPUT, frozenset(), prose=True), *own)

    def naming(self, anchor: AnchorToken) -> tuple[Place, ...]:
        """Where references name the anchor."""
        if anchor.value is not None:
            return tuple([place for place, reference in self._numbered if reference.held.has(anchor)])
        return tuple([place for place, reference in self.references if reference.names(anchor)])

    @cached_property
    def _numbered(self) -> tuple[tuple[Place, Reference], ...]:
        """Those that hold a number: no other can name an amount."""
        return tuple([each for each in self.references if each[1].held.numerals])

    def related(self, anchor: AnchorToken) -> tuple[Place, ...]:
        """Where references may mean the same as the anchor, one of the two being an id and the other a title."""
        return tuple(place for place, reference in self.references if reference.is_related(anchor))

    def counting(self, anchor: AnchorToken) -> tuple[Place, ...]:
        """Where the payload holds the number that the anchor writes."""
        figure = anchor.figure()
        if figure is None:
            return ()
        size, is_share = abs(float(figure.value)), figure.unit == "%"
        return tuple(
            [
                number.place
                for number in self.numbers
                if (is_share or number.unit == "%" or is_near(number.size, size))
                and means(number.value, number.unit, figure)
            ]
        )


def _numbers(document: JsonObject, role: EvidenceRole, skip: frozenset[str], *, prose: bool) -> Iterator[Number]:
    todo: list[tuple[str, Any, str | None]] = [("", document, None)]
    seen = 0
    while todo and seen < MOST_FIELDS:
        parent, container, unit = todo.pop()
        currency = _currency(container)
        for key, value in _children(container):
            seen += 1
            named = _unit(key, currency) if currency else unit
            nested = isinstance(value, dict | list)
            found = [] if nested else _read(value, named, prose=prose)
            if not (nested or found) or (pointer := f"{parent}/{escape(key)}") in skip:
                continue
            if nested:
                todo.append((pointer, value, named))
            yield from (Number(number, own, (role, pointer), abs(float(number))) for number, own in found)


def _children(container: JsonObject | list[Any]) -> Iterable[tuple[str, Any]]:
    if isinstance(container, dict):
        return islice(container.items(), MOST_FIELDS)
    return ((str(at), value) for at, value in enumerate(container[:MOST_FIELDS]))


def _currency(container: JsonObject | list[Any]) -> str | None:
    found = container.get("currency") if isinstance(container, dict) else None
    code = found.lower() if isinstance(found, str) else ""
    return code if code in CURRENCIES else None


def _unit(key: str, currency: str) -> str | None:
    """The currency beside a field is that of its amount, not of every number around it."""
    return currency if "amount" in key.lower() else None


def _read(value: Any, unit: str | None, *, prose: bool) -> list[tuple[Decimal, str | None]]:
    if isinstance(value, str):
        return _read_text(value, unit, prose=prose)
    if isinstance(value, bool):
        return []
    if isinstance(value, float):
        return [(Decimal(repr(value)), unit)] if math.isfinite(value) else []
    return [(Decimal(value), unit)] if isinstance(value, int) and value.bit_length() < 128 else []


def _read_text(value: str, unit: str | None, *, prose: bool) -> list[tuple[Decimal, str | None]]:
    """Every number of a text that is prose; otherwise the number that is the whole text."""
    if not prose and (len(value) > LONGEST_NUMBER or not _ONLY_NUMBER.match(value)):
        return []
    if not has_digit(value) or _TIMESTAMP.match(value):
        return []
    text = normal(value[:LONGEST_TEXT].strip()).lower
    return [
        (-numeral.value if numeral.signed else numeral.value, numeral.unit or unit)
        for numeral in numerals(text)
        if prose or numeral.end - numeral.start == len(text)
    ]


_TIMESTAMP = re.compile(r"[12][0-9]{3}-[01][0-9]-[0-3][0-9](?:[Tt ][0-9:.,Zz+-]*)?$")
_ONLY_NUMBER = re.compile(r"\W{0,3}(?:[A-Za-z]{2,4} ?)?\W{0,3}[0-9]")
