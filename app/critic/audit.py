"""The audit trail of a run, one JSON object a line: written from its records, and read back into the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError

from app.critic.events import Event, Header
from app.critic.model import Plan
from app.critic.rows import AuditError, Row, read_row
from app.runs.model import Record
from layers.canonical import canonical_bytes
from layers.model import JsonObject
from layers.strict_json import StrictJsonError, loads

MAX_LINE = 1_000_000
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def events_of(record: Record, example: JsonObject, plan: Plan) -> Iterator[JsonObject]:
    """The events of one record, JSON-ready; `example` is the dataset's JSON of it."""
    row = {"event": "row", "expected": plan.expected_of(example), "clusters": list(plan.clusters_of(example))}
    if record.prediction is None:
        said: list[JsonObject] = [{"event": "failed", "kind": record.error.kind if record.error else "internal"}]
    else:
        said = record.prediction.raw_output["audit"]
    for seq, event in enumerate([row, *said]):
        yield {
            "example_id": record.example_id,
            "repeat": record.repeat,
            "attempt": record.attempt,
            "seq": seq,
            **event,
        }


def lines_of(events: Iterable[JsonObject]) -> bytes:
    """Events as NDJSON."""
    return b"".join(canonical_bytes(event) + b"\n" for event in events)


def row_of(events: Iterable[JsonObject], header: Header) -> Row:
    """The row that these events tell. Raises `AuditError`."""
    try:
        read = [_EVENT.validate_python(event) for event in events]
    except ValidationError as exc:
        raise AuditError(_said(exc)) from None
    return read_row(read, header)


def read_audit(lines: Iterable[bytes]) -> tuple[Header, Iterator[Row]]:
    """A trail's header, and its rows as they are asked for; of a row tried several times the last attempt counts.

    Everything that code decided is decided again: a trail that says otherwise, is out of order, or breaks off inside
    a row is refused with `AuditError`.
    """
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    first = next(numbered, None)
    if first is None:
        raise AuditError("the audit trail is empty")
    try:
        header = Header.model_validate(_decode(*first))
    except ValidationError as exc:
        raise AuditError(f"line 1: {_said(exc)}") from None
    return header, _rows(numbered, header)


def _rows(numbered: Iterator[tuple[int, bytes]], header: Header) -> Iterator[Row]:
    seen: set[tuple[str, int]] = set()
    last: Row | None = None
    for number, events in _grouped(numbered):
        try:
            row = row_of(events, header)
        except AuditError as exc:
            raise AuditError(f"the row that begins on line {number}: {exc}") from None
        if last is not None and last.key != row.key:
            yield last
        if row.key in seen and (last is None or last.key != row.key or last.attempt >= row.attempt):
            raise AuditError(f"the row that begins on line {number} is there already")
        seen.add(row.key)
        last = row
    if last is not None:
        yield last


def _grouped(numbered: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, list[JsonObject]]]:
    events: list[JsonObject] = []
    began = 0
    for number, line in numbered:
        event = _decode(number, line)
        if event.get("event") == "row" and events:
            yield began, events
            events = []
        if not events:
            began = number
        events.append(event)
    if events:
        yield began, events


def _decode(number: int, line: bytes) -> JsonObject:
    if len(line) > MAX_LINE:
        raise AuditError(f"line {number} is longer than {MAX_LINE} bytes")
    try:
        value: Any = loads(line)
    except StrictJsonError as exc:
        raise AuditError(f"line {number}: {exc}") from None
    if not isinstance(value, dict):
        raise AuditError(f"line {number} is not an object")
    return value


def _said(exc: ValidationError) -> str:
    error = exc.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, error['loc']))}: {error['msg']}"
