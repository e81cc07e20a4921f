"""Where a report is cut when nobody says where: along fields with few values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from layers.model import JsonObject

LOOKED_AT = 300
"""Examples that are looked at."""

MAX_CHOSEN = 3
MAX_DEPTH = 3
VALUES = range(2, 9)
"""How many different values a field has that is worth cutting along."""

MIN_SHARE = 0.5
"""Share of the examples that must have the field."""

MAX_EXAMPLES = 50_000
"""Examples beyond which a report is cut only where somebody asks for it: that takes a look into each."""


def choose_paths(examples: Iterable[JsonObject]) -> tuple[str, ...]:
    """JSON Pointers into `input` and `metadata`, those that most examples have and that have the fewest values first.

    Amounts, times and identifiers have too many values, constants have one. A field that says nothing that another
    one does not say is left out.
    """
    seen: defaultdict[str, list[str]] = defaultdict(list)
    count = 0
    for example in examples:
        for part in ("input", "metadata"):
            for path, value in _scalars(example.get(part), f"/{part}", MAX_DEPTH):
                column = seen[path]
                column += [""] * (count - len(column))
                column.append(f"{type(value).__name__}:{value}")
        count += 1
    chosen: dict[tuple[int, ...], str] = {}
    for path in sorted(seen, key=lambda path: (len(set(seen[path]) - {""}), path)):
        column = seen[path] + [""] * (count - len(seen[path]))
        values = set(column) - {""}
        enough = sum(value != "" for value in column) >= MIN_SHARE * count
        if enough and len(values) in VALUES and len(values) * 2 <= count:
            chosen.setdefault(_pattern(column), path)
    return tuple(list(chosen.values())[:MAX_CHOSEN])


def _scalars(value: Any, path: str, depth: int) -> Iterator[tuple[str, str | bool | int]]:
    if isinstance(value, dict) and depth > 0:
        for key, inner in value.items():
            yield from _scalars(inner, f"{path}/{key.replace('~', '~0').replace('/', '~1')}", depth - 1)
    elif isinstance(value, (str, bool, int)) and path.count("/") > 1 and len(path) <= 512 and len(str(value)) <= 64:
        yield path, value


def _pattern(column: list[str]) -> tuple[int, ...]:
    """The column with its values numbered as they come, so that two columns that say the same are equal."""
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(value, len(numbers)) for value in column)
