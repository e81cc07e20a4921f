"""The failures of a run, as synthesis looks at them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from app.adjudication.synthesis import Failure
from app.errors import NotFound
from app.runs.model import Record, RecordFilters
from app.runs.record_store import Key, RecordStore
from app.runs.store import RunStore, StoredRun
from app.store.database import Database

MAX_FAILURES = 20_000
"""Failures of one run that are looked at, in the dataset's order."""

_BATCH = 500


class RunFailures:
    """Reads what a run got wrong and what it could not score."""

    def __init__(self, database: Database) -> None:
        self._runs = RunStore(database)
        self._records = RecordStore(database)

    async def failures(self, run_id: str) -> list[Failure]:
        """The failures so far. Raises `NotFound`."""
        run = await self._runs.get(run_id)
        if run is None:
            raise NotFound("there is no such run")
        found: list[Failure] = []
        for filters in (RecordFilters(correct=False), RecordFilters(status="failed")):
            found += await self._some(run, filters, MAX_FAILURES - len(found))
        return found

    async def _some(self, run: StoredRun, filters: RecordFilters, limit: int) -> list[Failure]:
        found: list[Failure] = []
        after: Key | None = None
        while len(found) < limit and (rows := await self._records.page(run, filters, _BATCH, after)):
            found += await self._with_inputs(run, rows)
            after = rows[-1][0]
        return found[:limit]

    async def _with_inputs(self, run: StoredRun, rows: Sequence[tuple[Key, bytes]]) -> list[Failure]:
        first, last = rows[0][0][0], rows[-1][0][0]
        wanted = {key[0] for key, _ in rows}
        examples: dict[int, dict[str, object]] = {}
        for start in range(first, last + 1, _BATCH):
            batch = await self._records.examples(run.dataset_no, start, min(start + _BATCH, last + 1))
            examples |= {position: json.loads(data) for position, data in batch if position in wanted}
        return [_failure(Record.model_validate_json(data), examples.get(key[0], {})) for key, data in rows]


def _failure(record: Record, example: dict[str, object]) -> Failure:
    given, group = example.get("input"), example.get("group")
    return Failure(
        example_id=record.example_id,
        expected=record.expected_label,
        scored=record.scored_label,
        error_kind=record.error.kind if record.error else None,
        input=given if isinstance(given, dict) else {},
        group=group if isinstance(group, str) else None,
    )
