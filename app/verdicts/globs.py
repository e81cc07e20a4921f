"""Which files a pattern names: `*` and `?` stay inside one part of a path, `**` does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_SIGN = re.compile(r"(\*\*/)|(/\*\*$)|(\*\*)|(\*)|(\?)")
_AS_REGEX = (r"(?:[^/]+/)*", r"(?:/.*)?", r".*", r"[^/]*", r"[^/]")


def matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether a path, relative and with `/`, matches any of them. A pattern that names a folder means all inside."""
    whole = [re.compile(f"{_translate(pattern.strip('/'))}(?:/.*)?", re.DOTALL) for pattern in patterns]
    return lambda path: any(pattern.fullmatch(path) for pattern in whole)


def _translate(pattern: str) -> str:
    pattern = pattern.removeprefix("./")
    if pattern == ".":
        return "[^/]+"
    parts: list[str] = []
    done = 0
    for sign in _SIGN.finditer(pattern):
        parts += (re.escape(pattern[done : sign.start()]), _AS_REGEX[(sign.lastindex or 1) - 1])
        done = sign.end()
    return "".join([*parts, re.escape(pattern[done:])])
