"""A dataset's examples as NDJSON, CSV or Parquet, some hundred at a time."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any

from app.runs.quoting import MARK, quoted
from layers.canonical import canonical_bytes

COLUMNS = ("id", "expected_label", "expected_labels", "group", "input", "metadata", "prediction")
"""Columns of CSV and Parquet; those that are objects hold JSON."""

_OBJECTS = frozenset({"expected_labels", "input", "metadata", "prediction"})

ROW_GROUP = 10_000
"""Rows that one part of a Parquet file holds at most."""

GROUP_BYTES = 32_000_000
"""Bytes of examples from which a part is closed, however few they are."""

Batches = AsyncIterator[Sequence[bytes]]


def has_parquet() -> bool:
    """Whether the extra that writes Parquet is installed."""
    return find_spec("pyarrow") is not None


async def ndjson(batches: Batches) -> AsyncIterator[bytes]:
    """One example per line, as it is stored: the same bytes that the dataset's hash is made of."""
    async for batch in batches:
        yield b"\n".join(batch) + b"\n"


async def csv_text(batches: Batches) -> AsyncIterator[bytes]:
    """A header, then one row per example (RFC 4180, UTF-8), safe to open in a spreadsheet.

    `POST /datasets` reads it back to the same content: the last column, which is empty, tells it that texts a
    spreadsheet would take for a formula, and those that begin with an apostrophe, have one apostrophe in front.
    """
    yield _lines([(*COLUMNS, MARK)])
    async for batch in batches:
        yield _lines([*(_text(row[name]) for name in COLUMNS), ""] for row in map(_row, batch))


async def parquet(batches: Batches) -> AsyncIterator[bytes]:
    """Parquet with one text column for each of `COLUMNS`, null where a field was left out."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = _Sink()
    schema = pa.schema([pa.field(name, pa.string(), nullable=name not in {"id", "expected_label"}) for name in COLUMNS])

    def write(rows: list[dict[str, str | None]]) -> None:
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))

    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd") as writer:
        async for piece in _grouped(batches, write, sink):
            yield piece
    yield sink.taken()


async def _grouped(
    batches: Batches, write: Callable[[list[dict[str, str | None]]], None], sink: _Sink
) -> AsyncIterator[bytes]:
    rows: list[dict[str, str | None]] = []
    size = 0
    async for batch in batches:
        rows += map(_row, batch)
        size += sum(map(len, batch))
        if len(rows) >= ROW_GROUP or size >= GROUP_BYTES:
            await asyncio.to_thread(write, rows)
            rows, size = [], 0
            yield sink.taken()
    if rows:
        await asyncio.to_thread(write, rows)


class _Sink(io.RawIOBase):
    """A file that is only ever written at its end; what came in is taken out again at once."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def taken(self) -> bytes:
        """What was written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _row(data: bytes) -> dict[str, str | None]:
    example = json.loads(data)
    return {name: _cell(name, example.get(name)) for name in COLUMNS}


def _cell(name: str, value: Any) -> str | None:
    if value is None:
        return None
    return canonical_bytes(value).decode() if name in _OBJECTS else str(value)


def _text(cell: str | None) -> str:
    return "" if cell is None else quoted(cell)


def _lines(rows: Iterable[Iterable[str]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)
    return buffer.getvalue().encode()
