"""The critic's report and the audit trail of runs, both derived from their records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from app.critic.audit import events_of, lines_of, row_of
from app.critic.events import Header
from app.critic.figures import Control, CriticReport
from app.critic.model import Plan
from app.critic.report import ControlBuilder, ReportBuilder, check_control
from app.critic.rows import Row
from app.errors import FieldError, NotFound, Unprocessable
from app.runs.model import Record, RecordFilters
from app.runs.record_store import EXPORT_ROWS, Key, RecordStore
from app.runs.store import RunStore, StoredRun
from app.store.database import Database
from layers.canonical import canonical_bytes
from layers.model import JsonObject


@dataclass(frozen=True, slots=True)
class _Trail:
    """A run whose records carry a trail."""

    run: StoredRun
    header: Header


class CriticReports:
    """What classifiers' runs tell. Raises `NotFound` for a run that there is not, or that was no classifier's."""

    def __init__(self, database: Database) -> None:
        self._runs = RunStore(database)
        self._records = RecordStore(database)

    async def report(
        self, run_id: str, *, control_run_id: str | None = None, baseline_run_id: str | None = None
    ) -> CriticReport:
        """The report so far. With a control run and its baseline arm also what it did to a second dataset.

        Raises `Unprocessable` for a run without a critic, or for runs that can't be its control.
        """
        main = await self._trail(run_id)
        if main.header.pipeline != "critic":
            raise Unprocessable("the run had no critic: its pipeline was offline")
        control = await self._control(main, control_run_id, baseline_run_id)
        builder = ReportBuilder(main.header)
        async for row in self._rows(main):
            builder.add(row)
        return builder.report(control)

    async def audit(self, run_id: str) -> AsyncIterator[bytes]:
        """The whole trail as NDJSON, attempts that were replaced included, in pieces of some hundred rows."""
        trail = await self._trail(run_id)
        return self._lines(trail)

    async def _lines(self, trail: _Trail) -> AsyncIterator[bytes]:
        yield canonical_bytes(trail.header.model_dump(mode="json")) + b"\n"
        async for events in self._events(trail, RecordFilters(current=False)):
            yield await asyncio.to_thread(_joined, events)

    async def _trail(self, run_id: str) -> _Trail:
        run = await self._runs.get(run_id)
        if run is None:
            raise NotFound("there is no such run")
        try:
            plan = Plan.model_validate(run.config.plan)
        except ValidationError:
            raise NotFound("the run was no classifier's: it has no audit trail") from None
        return _Trail(
            run,
            Header(
                run_id=run.run_id,
                dataset_id=run.dataset_id,
                system=run.system,
                pipeline=run.config.options.pipeline,
                n_total=run.n_total,
                created_at=run.created_at,
                plan=plan,
            ),
        )

    async def _control(self, main: _Trail, control_id: str | None, baseline_id: str | None) -> Control | None:
        if control_id is None and baseline_id is None:
            return None
        if control_id is None or baseline_id is None:
            raise _refusal("a control needs both: control_run_id and baseline_run_id")
        control, baseline = await self._trail(control_id), await self._trail(baseline_id)
        if (why := check_control(main.header, control.header, baseline.header)) is not None:
            raise _refusal(why)
        builder = ControlBuilder(control.header, baseline.header)
        async for row in self._rows(baseline):
            builder.add_baseline(row)
        async for row in self._rows(control):
            builder.add(row)
        return builder.made()

    async def _rows(self, trail: _Trail) -> AsyncIterator[Row]:
        async for events in self._events(trail, RecordFilters()):
            for row in await asyncio.to_thread(_rows_in, events, trail.header):
                yield row

    async def _events(self, trail: _Trail, filters: RecordFilters) -> AsyncIterator[list[list[JsonObject]]]:
        """The events of some hundred records at a time, in the dataset's order."""
        run, after = trail.run, None
        while rows := await self._records.page(run, filters, EXPORT_ROWS, after):
            after = rows[-1][0]
            examples = dict(await self._records.examples(run.dataset_no, rows[0][0][0], after[0] + 1))
            yield await asyncio.to_thread(_events_in, rows, examples, trail.header.plan)


def _events_in(rows: Sequence[tuple[Key, bytes]], examples: dict[int, bytes], plan: Plan) -> list[list[JsonObject]]:
    return [list(events_of(Record.model_validate_json(data), json.loads(examples[key[0]]), plan)) for key, data in rows]


def _rows_in(events: list[list[JsonObject]], header: Header) -> list[Row]:
    return [row_of(each, header) for each in events]


def _joined(events: list[list[JsonObject]]) -> bytes:
    return b"".join(map(lines_of, events))


def _refusal(message: str) -> Unprocessable:
    return Unprocessable(message, [FieldError("/control_run_id", message)])
