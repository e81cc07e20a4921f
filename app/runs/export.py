"""Records as lines of text: NDJSON as stored, CSV that is safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from app.runs.quoting import safe_cell

COLUMNS = (
    "example_id",
    "repeat",
    "attempt",
    "status",
    "expected_label",
    "scored_label",
    "correct",
    "confidence",
    "error_kind",
    "error_message",
    "elapsed_ms",
)


async def ndjson_lines(batches: AsyncIterator[list[bytes]]) -> AsyncIterator[bytes]:
    """One stored record per line, byte for byte."""
    async for batch in batches:
        yield b"\n".join(batch) + b"\n"


async def csv_lines(batches: AsyncIterator[list[bytes]]) -> AsyncIterator[bytes]:
    """A header, then one row per record (RFC 4180, UTF-8); an empty cell = null."""
    yield _lines([COLUMNS])
    async for batch in batches:
        yield _lines(_row(json.loads(data)) for data in batch)


def _row(record: dict[str, Any]) -> list[str]:
    error, prediction = record["error"] or {}, record["prediction"] or {}
    values = {
        **record,
        "confidence": prediction.get("confidence"),
        "error_kind": error.get("kind"),
        "error_message": error.get("message"),
    }
    return [_cell(values.get(column)) for column in COLUMNS]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return safe_cell(value) if isinstance(value, str) else str(value)


def _lines(rows: Iterable[Iterable[str]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)
    return buffer.getvalue().encode("utf-8", "replace")
