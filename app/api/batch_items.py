"""Cutting a batch into its items without decoding them, so that one bad item spoils no other."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from mmap import mmap
from typing import TypeAlias

from app.errors import BadRequest, TooLarge, Unprocessable

Bytes: TypeAlias = bytes | mmap

_SPACE = b" \t\r\n"
_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\[")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{},"]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Item:
    """Where an item stands in the batch: its number from 1 (in NDJSON its line), and its bytes from start to end."""

    number: int
    start: int
    end: int


def index_items(text: Bytes, *, array: bool, limit: int) -> list[Item]:
    """The items of a JSON array, or of NDJSON (whose blank lines count as lines and are passed over), in order.

    Raises `TooLarge` for more than `limit` of them, `Unprocessable` for none, `BadRequest` for a broken array.
    """
    items: list[Item] = []
    for item in _elements(text) if array else _lines(text):
        if len(items) == limit:
            raise TooLarge(f"a batch has at most {limit:,} items")
        items.append(item)
    if not items:
        raise Unprocessable("the batch is empty")
    return items


def _lines(text: Bytes) -> Iterator[Item]:
    start = len(codecs.BOM_UTF8) if text[:3] == codecs.BOM_UTF8 else 0
    number = 0
    while start < len(text):
        number += 1
        end = text.find(b"\n", start)
        end = len(text) if end < 0 else end
        if text[start:end].strip(_SPACE):
            yield Item(number, start, end)
        start = end + 1


def _elements(text: Bytes) -> Iterator[Item]:
    opening = _OPENING.match(text)
    if opening is None:
        raise BadRequest("the batch must be a JSON array")
    depth, number, start, end = 1, 0, opening.end(), None
    for token in _TOKEN.finditer(text, start):
        match text[token.start() : token.start() + 1]:
            case b"[" | b"{":
                depth += 1
            case b"]" | b"}":
                depth -= 1
                if depth == 0:
                    end = token.start()
                    break
            case b"," if depth == 1:
                number += 1
                yield Item(number, start, token.start())
                start = token.end()
    if end is None:
        raise BadRequest("the batch is a JSON array without an end")
    if text[end + 1 :].strip(_SPACE):
        raise BadRequest("there is text after the end of the batch")
    if number or text[start:end].strip(_SPACE):
        yield Item(number + 1, start, end)
