"""Attribute values that every collector accepts: a bad value costs that value, never the batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MAX_TEXT = 2_048
"""Characters kept of one attribute; the rest is cut and marked."""

Attribute = str | bool | int | float | list[str]
_INT64 = 2**63


def clean(value: Any) -> Attribute | None:
    """`value` as an attribute, or None when it cannot be one (None, NaN, infinities, integers beyond 64 bits)."""
    match value:
        case bool():
            return value
        case int():
            return value if -_INT64 <= value < _INT64 else str(value)
        case float():
            return value if math.isfinite(value) else None
        case str():
            return _text(value)
        case list() | tuple() | set() | frozenset():
            return [_text(str(part)) for part in list(value)[:64]]
        case None:
            return None
        case _:
            return _text(str(value))


def attributes(values: Mapping[str, Any]) -> dict[str, Attribute]:
    """Those of `values` that can be attributes."""
    kept = ((name, clean(value)) for name, value in values.items())
    return {name: value for name, value in kept if value is not None}


def _text(value: str) -> str:
    short = value if len(value) <= MAX_TEXT else value[:MAX_TEXT] + "...[cut]"
    return short.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")
