"""A run as an artifact: dataset, configuration, and what was predicted; no times and no ids of its own."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, select

from app.errors import Conflict, NotFound
from app.runs.model import TERMINAL, RecordFilters
from app.runs.record_store import RecordStore, current_records
from app.runs.report import derive_report
from app.runs.store import RunStore, StoredRun
from app.runs.tables import dataset_examples, records
from app.store.database import Database
from app.store.paging import is_storable
from app.verdicts.model import Artifact, ArtifactKind
from layers.canonical import canonical_bytes
from layers.model import JsonObject
from layers.profile import SystemProfile

CHUNK = 5_000
"""Examples whose records are hashed in one read."""
MAX_SHOWN = 100
"""Failed records, and as many wrong ones, that a model is shown."""
MAX_RECORD = 1_500
"""Characters of one of them."""
_NO_CONTENT = {"concurrency", "priority", "binary", "limit", "repeats"}
"""Options that say how a run is executed or shown, or which rows there are: the rows themselves are hashed."""


@dataclass(frozen=True)
class RunSubject:
    """A run that is over. Build it with `open_run`."""

    run: StoredRun
    artifact: Artifact
    database: Database
    commits: None = None
    root: None = None

    @property
    def run_id(self) -> str:
        return self.run.run_id

    @property
    def keeps_inside(self) -> bool:
        return not self.run.config.profile.external_models

    async def hash_now(self) -> str:
        return await run_hash(self.database, await find_run(self.database, self.run_id))

    async def why_not_in_place(self) -> str | None:
        return None

    async def material(self) -> Sequence[JsonObject]:
        """What it was, its figures, and the first records that failed or are wrong."""
        store = RecordStore(self.database)
        profile = self.run.config.profile
        report = derive_report(await store.tally(self.run), profile, binary=False)
        shown: list[JsonObject] = [
            {"run": _configuration(self.run), "labels": self.run.config.labels, "name": self.run.name},
            {"report": report.model_dump(mode="json", include=_FIGURES)},
        ]
        for filters in (RecordFilters(status="failed"), RecordFilters(correct=False)):
            rows = await store.page(self.run, filters, MAX_SHOWN, None)
            shown += [{"record": _shown_record(data)} for _, data in rows]
        return shown

    async def holds(self, place: str) -> bool:
        """Whether the run has a record of this example."""
        if not is_storable(place):
            return False
        query = (
            select(records.c.position)
            .join(dataset_examples, _same_example(self.run))
            .where(records.c.run_no == self.run.no, dataset_examples.c.example_id == place)
            .limit(1)
        )
        return await self.database.read(lambda conn: conn.execute(query).first()) is not None


_FIGURES = {"total", "correct", "accuracy", "n_scored", "n_failed", "failures_by_kind", "per_label", "confusion"}


async def open_run(database: Database, run_id: str) -> RunSubject:
    """The run as an artifact. Raises `NotFound`, `Conflict` for one that is not over."""
    run = await find_run(database, run_id)
    if run.status not in TERMINAL:
        raise Conflict(f"the run is {run.status.value}: only one that is over can be judged")
    artifact = Artifact(kind=ArtifactKind.RUN, name=run_id, sha256=await run_hash(database, run))
    return RunSubject(run, artifact, database)


async def find_run(database: Database, run_id: str) -> StoredRun:
    """The run. Raises `NotFound`."""
    run = await RunStore(database).get(run_id) if is_storable(run_id) else None
    if run is None:
        raise NotFound("there is no such run")
    return run


async def run_hash(database: Database, run: StoredRun) -> str:
    """Of dataset, configuration and the sorted (example, repeat, label, confidence, failure kind).

    Sorted are the digests of these rows, 32 bytes each, so that a run of millions fits into memory.
    """
    rows: list[bytes] = []
    for start in range(0, run.n_total // run.config.options.repeats, CHUNK):
        rows += await database.read(partial(_row_digests, run=run, start=start))
    about = {"artifact": 1, "kind": "run", "dataset": run.dataset_id, "configuration": _configuration(run)}
    return await asyncio.to_thread(_fold, canonical_bytes(about), rows)


def _fold(about: bytes, rows: list[bytes]) -> str:
    rows.sort()
    return "sha256:" + hashlib.sha256(hashlib.sha256(about).digest() + b"".join(rows)).hexdigest()


def _row_digests(conn: Connection, run: StoredRun, start: int) -> list[bytes]:
    columns = (
        dataset_examples.c.example_id,
        records.c.repeat,
        records.c.scored,
        records.c.confidence,
        records.c.error_kind,
    )
    query = (
        select(*columns)
        .join(dataset_examples, _same_example(run))
        .where(*current_records(run), records.c.position.between(start, start + CHUNK - 1))
    )
    return [hashlib.sha256(canonical_bytes(list(row))).digest() for row in conn.execute(query)]


def _same_example(run: StoredRun) -> ColumnElement[bool]:
    example = dataset_examples.c
    return and_(example.dataset_no == run.dataset_no, example.position == records.c.position)


def _configuration(run: StoredRun) -> JsonObject:
    """What decides the predictions. How fast they were asked for, and what somebody called the run, does not.

    Defaults are left out, so that a later version with more options gives the same hash.
    """
    config = run.config
    options = config.options.model_dump(mode="json", exclude=_NO_CONTENT, exclude_defaults=True)
    return {"system": config.system, "options": options, "profile": profile_content(config.profile)}


def profile_content(profile: SystemProfile) -> JsonObject:
    """A profile as JSON-ready values, its sets in order: each process has its own order of sets."""
    plain: JsonObject = _in_order(profile.model_dump(exclude_defaults=True))
    return plain


def _in_order(value: Any) -> Any:
    match value:
        case Set():
            return sorted(_in_order(item) for item in value)
        case dict():
            return {key: _in_order(item) for key, item in value.items()}
        case list() | tuple():
            return [_in_order(item) for item in value]
        case _:
            return value


def _shown_record(data: bytes) -> object:
    record = json.loads(data)
    for dropped in ("elapsed_ms", "attempt", "correct"):
        record.pop(dropped, None)
    text = json.dumps(record, ensure_ascii=False)
    return record if len(text) <= MAX_RECORD else {"example_id": record["example_id"], "beginning": text[:MAX_RECORD]}
