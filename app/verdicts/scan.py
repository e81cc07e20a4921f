"""Search texts for patterns, as a program of its own: a pattern that runs wild is ended by killing it.

Standard input is JSON: `patterns`, and `lines` ([file, number, text]) or `files` ([name, path]). Standard output is
JSON: how many `hits`, and the `first` of them ([file, number, pattern]). Nothing but the standard library is used.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

FIRST = 20
MAX_LINE = 100_000
"""Characters of a line that a pattern sees at once; a longer line is searched in overlapping parts."""
_OVERLAP = 1_000


def scan(asked: dict[str, Any]) -> dict[str, Any]:
    """The hits, one per line and pattern."""
    patterns = [re.compile(pattern) for pattern in asked["patterns"]]
    first: list[tuple[str, int, str]] = []
    hits = 0
    for name, number, text in _lines(asked):
        for pattern in patterns:
            if any(pattern.search(part) for part in _parts(text)):
                hits += 1
                if len(first) < FIRST:
                    first.append((name, number, pattern.pattern))
    return {"hits": hits, "first": first}


def _lines(asked: dict[str, Any]) -> Iterator[tuple[str, int, str]]:
    for name, number, text in asked.get("lines", ()):
        yield name, number, text
    for name, path in asked.get("files", ()):
        with open(os.fsencode(path), "rb") as file:  # noqa: PTH123 - a name of any bytes
            for number, line in enumerate(file, 1):
                yield name, number, line.rstrip(b"\r\n").decode("utf-8", "replace")


def _parts(text: str) -> Iterable[str]:
    if len(text) <= MAX_LINE:
        return (text,)
    return (text[start : start + MAX_LINE] for start in range(0, len(text), MAX_LINE - _OVERLAP))


if __name__ == "__main__":
    json.dump(scan(json.load(sys.stdin)), sys.stdout)
