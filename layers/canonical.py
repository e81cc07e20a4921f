"""The one serialisation that is stored and hashed: sorted keys, UTF-8, compact, no NaN, integers exact."""

from __future__ import annotations

import hashlib
import json
from typing import Any

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
_CONTAINERS = (dict, list, tuple)
_SCALARS = frozenset({str, int, float, bool, type(None)})


def canonical_bytes(value: Any, *, keys_are_strings: bool = False) -> bytes:
    """The canonical JSON text of a JSON-ready value, as UTF-8.

    Keys are sorted by code point, integers of any size are written out, floats as their shortest exact decimal
    (`1.0` is not `1`, and `-0.0` keeps its sign), tuples are arrays. Equal bytes therefore mean the same value.

    `keys_are_strings` says that the caller knows it of every key, so that it is not checked again.

    Raises `ValueError` for what JSON can't carry without loss: NaN, infinities, lone surrogates, keys that are no
    strings, bytes and other objects, cycles, nesting deeper than the interpreter can walk.
    """
    try:
        text = _ENCODER.encode(value)
        if not keys_are_strings and isinstance(value, _CONTAINERS):
            _refuse_foreign_keys(value)
        return text.encode("utf-8")
    except UnicodeEncodeError as exc:
        raise ValueError("not canonical: a string holds a lone surrogate") from exc
    except TypeError as exc:
        raise ValueError(f"not canonical: {exc}") from exc
    except RecursionError as exc:
        raise ValueError("not canonical: nested too deeply") from exc


def sha256_of(data: bytes) -> str:
    """`sha256:` and the hex digest of exactly these bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _refuse_foreign_keys(value: Any) -> None:
    # The encoder would silently turn the key 1 into "1". It has run by now, so there are no cycles to fear.
    todo = [value]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            "".join(node)  # a TypeError unless every key is a string, at the speed of C
            node = node.values()
        elif not isinstance(node, _CONTAINERS):
            continue  # a subclass of a scalar
        todo += [child for child in node if child.__class__ not in _SCALARS]
