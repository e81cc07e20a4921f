"""JSON Pointers (RFC 6901): find a value in a decoded document."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final


class Missing:
    """The type of `MISSING`."""

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()
"""What `resolve` returns when there is no such field, so that a field that is null can be told from it."""


def resolve(document: Any, pointer: str) -> Any:
    """The value at `pointer` in `document`, or `MISSING`.

    An empty pointer is the document itself; a pointer that does not start with `/` finds nothing. Array indexes are
    decimal without leading zeros; `-` (past the end) finds nothing.
    """
    tokens = _tokens(pointer)
    if tokens is None:
        return MISSING
    value = document
    for token in tokens:
        if isinstance(value, dict):
            if token not in value:
                return MISSING
            value = value[token]
        elif isinstance(value, list) and _is_index(token) and int(token) < len(value):
            value = value[int(token)]
        else:
            return MISSING
    return value


def escape(key: str) -> str:
    """A key as it is written in a pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _is_index(token: str) -> bool:
    return token.isascii() and token.isdigit() and len(token) < 10 and (len(token) == 1 or not token.startswith("0"))


@lru_cache(maxsize=1024)
def _tokens(pointer: str) -> tuple[str, ...] | None:
    if not pointer:
        return ()
    if pointer[0] != "/":
        return None
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))
