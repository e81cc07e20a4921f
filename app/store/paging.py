"""Pages of a list: an opaque cursor that says after which row to go on."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from app.errors import BadRequest

T = TypeVar("T")

DEFAULT_LIMIT = 50
MAX_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items of a list, and the cursor of the next page; None = these were the last."""

    items: tuple[T, ...]
    next_cursor: str | None


def encode_cursor(*key: str | int) -> str:
    """The cursor that goes on after the row with this sort key."""
    text = json.dumps(key, separators=(",", ":"), ensure_ascii=True)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def decode_cursor(cursor: str, *types: type[str] | type[int]) -> tuple[str | int, ...]:
    """The sort key in `cursor`, one value of each of `types`. Raises `BadRequest` for anything else."""
    try:
        data = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        key = json.loads(data)
    except (UnicodeError, binascii.Error, ValueError, RecursionError):
        raise BadRequest("the cursor is not one that this service gave out") from None
    fits = isinstance(key, list) and len(key) == len(types)
    if not fits or any(
        type(value) is not kind or not is_storable(value) for value, kind in zip(key, types, strict=True)
    ):
        raise BadRequest("the cursor belongs to another list")
    return tuple(key)


def page_of(rows: Sequence[T], limit: int, key: Sequence[tuple[str | int, ...]]) -> Page[T]:
    """The first `limit` of `rows`, of which one more than that was asked for; `key` holds each row's sort key."""
    more = len(rows) > limit
    return Page(tuple(rows[:limit]), encode_cursor(*key[limit - 1]) if more else None)


def is_storable(value: str | int) -> bool:
    """Whether both databases can compare a column with it: no NUL, no lone surrogate, 64 bits."""
    if isinstance(value, int):
        return value.bit_length() < 64
    return "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
