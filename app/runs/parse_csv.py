"""Read a CSV dataset row by row."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from app.runs.parsing import Raw, bad, decode

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_JSON_COLUMNS = frozenset({"input", "metadata", "prediction", "expected_labels"})
_PLAIN_COLUMNS = frozenset({"expected_label", "id", "group"})


def read_csv(file: BinaryIO) -> Iterator[Raw]:
    """One example per row.

    Columns: `expected_label`, `id`, `group`; `input.<path>` and `metadata.<path>` with dots between the keys, or
    `input`, `metadata`, `prediction` and `expected_labels` holding JSON. In a path column a JSON number, `true`,
    `false` or `null` is that value, anything else is text; an empty cell leaves its field out.
    """
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        yield from _rows(text)
    except UnicodeDecodeError:
        raise bad("not valid UTF-8") from None
    finally:
        with contextlib.suppress(ValueError):  # the file was closed meanwhile
            text.detach()


def _rows(text: io.TextIOWrapper) -> Iterator[Raw]:
    reader = csv.reader(text, strict=True)
    try:
        header = next(reader, None)
        if header is None:
            return
        columns = [name.strip() for name in header]
        _check_columns(columns)
        for index, cells in enumerate(row for row in reader if row):
            pointer = f"/examples/{index}"
            if len(cells) != len(columns):
                message = f"{len(cells)} cells where the header has {len(columns)} columns"
                raise bad(message, pointer=pointer, line=reader.line_num)
            yield Raw(_row(columns, cells, pointer, reader.line_num), reader.line_num)
    except csv.Error as exc:
        raise bad(f"not valid CSV: {exc}", line=reader.line_num) from None


def _check_columns(columns: list[str]) -> None:
    if "expected_label" not in columns:
        raise bad("the CSV has no column expected_label", line=1)
    for name in columns:
        prefix, dot, path = name.partition(".")
        is_path = dot and prefix in {"input", "metadata"} and all(path.split("."))
        if not (name in _PLAIN_COLUMNS or name in _JSON_COLUMNS or is_path):
            raise bad(f"unknown column {name[:80]!r}", line=1)
        if columns.count(name) > 1:
            raise bad(f"column {name[:80]!r} stands twice", line=1)
        if any(other.startswith(f"{name}.") for other in columns):
            raise bad(f"column {name[:80]!r} is both a value and an object", line=1)


def _row(columns: list[str], cells: list[str], pointer: str, line: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for name, cell in zip(columns, cells, strict=True):
        where = pointer + "/" + name.replace(".", "/")
        if "\x00" in cell:
            raise bad("text holds a NUL character", pointer=where, line=line)
        if name in _PLAIN_COLUMNS:
            if cell or name == "expected_label":
                value[name] = cell
        elif cell:
            *parents, last = name.split(".")
            target = value
            for key in parents:
                target = target.setdefault(key, {})
            target[last] = decode(cell, where, line) if not parents else _cell(cell, where, line)
    return value


def _cell(cell: str, where: str, line: int) -> Any:
    if cell in {"true", "false", "null"} or _NUMBER.fullmatch(cell):
        return decode(cell, where, line)
    return cell
