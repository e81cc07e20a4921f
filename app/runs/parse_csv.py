"""Read a CSV dataset row by row."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from app.runs.parsing import MAX_EXAMPLE, Raw, bad, decode
from app.runs.quoting import APOSTROPHE, MARK, MARK_NAME, unquoted
from layers.strict_json import DEFAULT_MAX_DEPTH

MAX_COLUMNS = 1_000
MAX_NAME = 512
"""Characters of a column's name; longer paths are for JSON."""

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_JSON_COLUMNS = frozenset({"input", "metadata", "prediction", "expected_labels"})
_PLAIN_COLUMNS = frozenset({"expected_label", "id", "group"})

# The reader's own limit holds for the whole process; ours is on a whole row, as for the other forms.
csv.field_size_limit(MAX_EXAMPLE)


@dataclass(frozen=True, slots=True)
class _Table:
    """The columns in order: names, and the keys that lead to each one's value."""

    names: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]
    quoted: bool


def read_csv(file: BinaryIO) -> Iterator[Raw]:
    """One example per row.

    Columns: `expected_label`, `id`, `group`; `input.<path>` and `metadata.<path>` with dots between the keys, or
    `input`, `metadata`, `prediction` and `expected_labels` holding JSON. In a path column a JSON number, `true`,
    `false` or `null` is that value, anything else is text; an empty cell leaves its field out. With the column
    `csv_quoting=apostrophe`, whose cells are empty, a cell's first apostrophe is not part of its text.
    """
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        yield from _rows(_Lines(text))
    except UnicodeDecodeError:
        raise bad("not valid UTF-8") from None
    finally:
        with contextlib.suppress(ValueError):  # the file was closed meanwhile
            text.detach()


class _Lines:
    """The lines of a file; no row may be longer than an example may be in any form."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
        self._size = 0
        self._count = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._text.readline(MAX_EXAMPLE + 1)
        self._size += len(line)
        self._count += 1
        if self._size > MAX_EXAMPLE:
            raise bad(f"a row has more than {MAX_EXAMPLE} characters", line=self._count)
        if not line:
            raise StopIteration
        return line

    def end_row(self) -> None:
        self._size = 0


def _rows(lines: _Lines) -> Iterator[Raw]:
    reader = csv.reader(lines, strict=True)
    try:
        header = next(reader, None)
        if header is None:
            return
        table = _table([name.strip() for name in header])
        lines.end_row()
        for index, cells in enumerate(_filled(reader, lines)):
            pointer = f"/examples/{index}"
            if len(cells) != len(table.names):
                message = f"{len(cells)} cells where the header has {len(table.names)} columns"
                raise bad(message, pointer=pointer, line=reader.line_num)
            yield Raw(_row(table, cells, pointer, reader.line_num), reader.line_num)
    except csv.Error as exc:
        raise bad(f"not valid CSV: {exc}", line=reader.line_num) from None


def _filled(reader: Iterator[list[str]], lines: _Lines) -> Iterator[list[str]]:
    for cells in reader:
        lines.end_row()
        if cells:
            yield cells


def _table(columns: list[str]) -> _Table:
    """The header, checked in time linear in its length."""
    if len(columns) > MAX_COLUMNS:
        raise bad(f"the CSV has {len(columns):,} columns; there may be at most {MAX_COLUMNS:,}", line=1)
    if "expected_label" not in columns:
        raise bad("the CSV has no column expected_label", line=1)
    paths = tuple(_path(name) for name in columns)
    seen: set[tuple[str, ...]] = set()
    for name, path in zip(columns, paths, strict=True):
        if path in seen:
            raise bad(f"column {_shown(name)} stands twice", line=1)
        seen.add(path)
    for path in paths:
        for end in range(1, len(path)):
            if path[:end] in seen:
                raise bad(f"column {_shown('.'.join(path[:end]))} is both a value and an object", line=1)
    return _Table(tuple(columns), paths, quoted=MARK in columns)


def _path(name: str) -> tuple[str, ...]:
    """The keys that a column's name stands for. Raises `DatasetError` naming the column."""
    if name in _PLAIN_COLUMNS or name == MARK:
        return (name,)
    if len(name) > MAX_NAME and name.count(".") < DEFAULT_MAX_DEPTH:
        raise bad(f"the name of column {_shown(name)} has more than {MAX_NAME} characters", line=1)
    path = tuple(name.split("."))
    if len(path) > DEFAULT_MAX_DEPTH:  # the example, and an object for every key but the last
        raise bad(f"column {_shown(name)} is nested deeper than {DEFAULT_MAX_DEPTH} levels", line=1)
    if path[0] == MARK_NAME or name.startswith(f"{MARK_NAME}="):
        raise bad(f"column {_shown(name)}: the one quoting there is, is {MARK}", line=1)
    is_path = len(path) > 1 and path[0] in {"input", "metadata"} and all(path)
    if not (name in _JSON_COLUMNS or is_path):
        raise bad(f"unknown column {_shown(name)}", line=1)
    return path


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:80]}...")


def _row(table: _Table, cells: list[str], pointer: str, line: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for path, cell in zip(table.paths, cells, strict=True):
        if "\x00" in cell:
            raise bad("text holds a NUL character", pointer=_pointer(pointer, path), line=line)
        if not cell and path[0] != "expected_label":
            continue
        text = unquoted(cell) if table.quoted else cell
        if path[0] == MARK:
            raise bad(f"the column {MARK} must be empty", pointer=pointer, line=line)
        if path[0] in _PLAIN_COLUMNS:
            value[path[0]] = text
        else:
            # What begins with the apostrophe is text, whatever follows it.
            is_text = table.quoted and cell.startswith(APOSTROPHE)
            _put(value, path, text if is_text and len(path) > 1 else _cell(path, text, pointer, line))
    return value


def _put(value: dict[str, Any], path: tuple[str, ...], item: Any) -> None:
    *parents, last = path
    for key in parents:
        value = value.setdefault(key, {})
    value[last] = item


def _cell(path: tuple[str, ...], cell: str, pointer: str, line: int) -> Any:
    if len(path) == 1:  # the example is a level by itself
        return decode(cell, _pointer(pointer, path), line, max_depth=DEFAULT_MAX_DEPTH - 1)
    if cell in {"true", "false", "null"} or _NUMBER.fullmatch(cell):
        return decode(cell, _pointer(pointer, path), line)
    return cell


def _pointer(example: str, path: tuple[str, ...]) -> str:
    return "/".join([example, *path])
