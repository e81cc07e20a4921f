"""Strict JSON decoding: what later code may rely on is checked once, where bytes become values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

DEFAULT_MAX_DEPTH = 64
MAX_DIGITS = 308
"""An integer with more digits is beyond the range of a double, which other readers of the same JSON would lose."""

_ESCAPED_SURROGATE_OR_NUL = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)
_BAD_CHARACTER = re.compile("[\ud800-\udfff\x00]")


class StrictJsonError(ValueError):
    """The text is not acceptable JSON.

    `pointer` is the JSON Pointer of the value refused, where there is one; `position` is the offset in characters,
    `line` and `column` (from 1) the same for people. All three are None when a pointer says it better.
    """

    def __init__(
        self,
        message: str,
        *,
        pointer: str | None = None,
        position: int | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        self.message = message
        self.pointer = pointer
        self.position = position
        self.line = line
        self.column = column
        super().__init__(message)


class _Refused(Exception):
    """A value that must be located; raised inside the decoder's hooks."""


class _Bad:
    """Stands in the decoded value where something was refused, so that a walk can name its place."""

    def __init__(self, message: str, key: str | None = None) -> None:
        self.message = message
        self.key = key


def loads(data: bytes | str, *, max_depth: int = DEFAULT_MAX_DEPTH) -> Any:
    """Decode one JSON text of RFC 8259, and no more than that.

    Refused with `StrictJsonError`: invalid UTF-8, duplicate keys, NaN and Infinity, numbers beyond a double, lone
    surrogates, NUL characters, more than `max_depth` nested containers (`[]` is one). A byte order mark is accepted.
    """
    text = _decode(data) if isinstance(data, bytes) else data.removeprefix("\ufeff")
    _check_depth(text, max_depth)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as exc:
        raise StrictJsonError(_plain(exc), position=exc.pos, line=exc.lineno, column=exc.colno) from None
    except _Refused:
        _locate(text)
    if ("\\u" in text and _ESCAPED_SURROGATE_OR_NUL.search(text)) or _holds_surrogate(data):
        _raise_first_bad(value)
    return value


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise StrictJsonError(f"not valid UTF-8 at byte {exc.start}", position=exc.start) from None


def _holds_surrogate(data: bytes | str) -> bool:
    """Raw surrogates exist in text only: decoding UTF-8 has refused those in bytes."""
    return isinstance(data, str) and not data.isascii() and _LONE_SURROGATE.search(data) is not None


def _plain(exc: json.JSONDecodeError) -> str:
    return f"not valid JSON: {exc.msg[:1].lower()}{exc.msg[1:]} at line {exc.lineno} column {exc.colno}"


def _check_depth(text: str, max_depth: int) -> None:
    """Count nesting without recursion, and only where there are brackets enough to be too deep."""
    if text.count("[") + text.count("{") <= max_depth:
        return
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        char = text[match.start()]
        if char in "[{":
            depth += 1
            if depth > max_depth:
                raise StrictJsonError(f"nested deeper than {max_depth} levels", position=match.start())
        elif char != '"':
            depth -= 1


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Refused
    return value


def _refuse(_literal: str) -> NoReturn:
    raise _Refused


def _finite_float(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise _Refused
    return value


def _short_int(literal: str) -> int:
    if len(literal) > MAX_DIGITS:
        raise _Refused
    return int(literal)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_refuse, parse_float=_finite_float, parse_int=_short_int
)


# --- naming the place: slow, and only for what is refused ------------------------------------------------------------


def _locate(text: str) -> NoReturn:
    decoder = json.JSONDecoder(
        object_pairs_hook=_marked_pairs,
        parse_constant=lambda literal: _Bad(f"{literal} is not a JSON number"),
        parse_float=lambda literal: _Bad("number out of range") if math.isinf(float(literal)) else 0.0,
        parse_int=lambda literal: _Bad("number out of range") if len(literal) > MAX_DIGITS else 0,
    )
    try:
        value = decoder.decode(text)
    except json.JSONDecodeError as exc:
        raise StrictJsonError(_plain(exc), position=exc.pos, line=exc.lineno, column=exc.colno) from None
    _raise_first_bad(value)
    raise StrictJsonError("not acceptable JSON")  # pragma: no cover - the hooks refuse the same values


def _marked_pairs(pairs: list[tuple[str, Any]]) -> Any:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return _Bad(f"duplicate key {_shown(key)}", key)
        seen.add(key)
    return dict(pairs)


def _raise_first_bad(value: Any) -> None:
    for pointer, item in _walk(value):
        if isinstance(item, _Bad):
            where = pointer if item.key is None else f"{pointer}/{_token(item.key)}"
            raise StrictJsonError(item.message, pointer=where)
        if isinstance(item, str) and (match := _BAD_CHARACTER.search(item)):
            what = "a NUL character" if match.group() == "\x00" else "a lone surrogate"
            raise StrictJsonError(f"text holds {what}", pointer=pointer)


def _walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Every value and key with its JSON Pointer, in document order, without recursion."""
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        pointer, item = stack.pop()
        yield pointer, item
        if isinstance(item, dict):
            for key in item:
                yield pointer, key
            stack.extend((f"{pointer}/{_token(key)}", child) for key, child in reversed(item.items()))
        elif isinstance(item, list):
            stack.extend((f"{pointer}/{index}", child) for index, child in reversed(list(enumerate(item))))


def _token(key: str) -> str:
    return _printable(key).replace("~", "~0").replace("/", "~1")


def _shown(key: str) -> str:
    return json.dumps(_printable(key)[:80])


def _printable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
