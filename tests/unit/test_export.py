"""Records as CSV and NDJSON: nothing runs in a spreadsheet, nothing is changed that is no text."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runs.export import COLUMNS, csv_lines, ndjson_lines, safe_cell
from layers.canonical import canonical_bytes
from tests.runs import prediction, record

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "-", "--1", "-1 "])
def test_text_that_a_spreadsheet_would_run_is_made_safe(text) -> None:
    assert safe_cell(text) == "'" + text


@pytest.mark.parametrize("text", ["-1", "-0.5", "-1e-3", "1", "high", "", "a=b", "x-1"])
def test_numbers_and_harmless_text_stay(text) -> None:
    assert safe_cell(text) == text


@given(st.text())
def test_no_cell_begins_like_a_formula_unless_it_is_a_number(text) -> None:
    cell = safe_cell(text)
    if cell[:1] in {"=", "+", "-", "@", "\t", "\r"}:
        float(cell)
    assert cell.removeprefix("'") == text.removeprefix("'")


async def batches(*records):
    yield [canonical_bytes(each.model_dump()) for each in records]


async def test_csv_has_a_header_and_a_row_per_record() -> None:
    """Null is an empty cell, numbers are numbers, hostile ids and messages are defused."""
    scored = record("high", "low", example_id="=cmd()", prediction=prediction("low", confidence=0.25), elapsed_ms=1.5)
    failed = record("high", None, error="timeout", example_id='a,\n"b"')
    text = b"".join([piece async for piece in csv_lines(batches(scored, failed))]).decode()
    header, first, second = csv.reader(io.StringIO(text, newline=""))
    assert tuple(header) == COLUMNS
    rows = [dict(zip(header, row, strict=True)) for row in (first, second)]
    assert rows[0] == {
        "example_id": "'=cmd()",
        "repeat": "0",
        "attempt": "1",
        "status": "scored",
        "expected_label": "high",
        "scored_label": "low",
        "correct": "false",
        "confidence": "0.25",
        "error_kind": "",
        "error_message": "",
        "elapsed_ms": "1.5",
    }
    assert (rows[1]["example_id"], rows[1]["status"], rows[1]["error_kind"]) == ('a,\n"b"', "failed", "timeout")
    assert rows[1]["scored_label"] == rows[1]["correct"] == rows[1]["confidence"] == ""


async def test_ndjson_is_what_was_stored() -> None:
    each = record("high", "high", example_id="=1")
    data = b"".join([piece async for piece in ndjson_lines(batches(each, each))])
    assert [json.loads(line) for line in data.splitlines()] == [each.model_dump(mode="json")] * 2
    assert data.endswith(b"\n")
