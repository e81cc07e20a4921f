"""What callers can do with runs: submit, watch, steer, read."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Literal

from app.errors import Conflict, NotFound, Unprocessable
from app.runs.analysis_store import AnalysisStore
from app.runs.chunks import ChunkStore
from app.runs.crew import Crew, Stores
from app.runs.dataset import EmptyDataset, Source, read_examples, read_stored, with_ids
from app.runs.dataset_store import DatasetStore, StoredDataset
from app.runs.engine import RunEngine
from app.runs.export import csv_lines, ndjson_lines
from app.runs.keys import KeyStore, check_key, hash_request
from app.runs.model import (
    BUSY,
    TERMINAL,
    EvalReport,
    Page,
    Record,
    RecordFilters,
    Run,
    RunFilters,
    RunRequest,
    RunStatus,
)
from app.runs.observe import UNWATCHED, RunObserver
from app.runs.progress import Outlook, progress_of, resource_of
from app.runs.record_store import RecordStore, record_cursor
from app.runs.report import derive_report
from app.runs.store import RunStore, StoredRun
from app.runs.submission import LOOKED_AT, check_examples, check_request, new_run
from app.settings import RunSettings
from app.store.database import Database
from app.store.paging import encode_cursor
from layers.model import EvalDataset, EvalExample
from layers.ports import System

logger = logging.getLogger(__name__)

MAX_PREDICTIONS = 10_000
"""Predictions that a report may carry; of a larger run they are had as records."""


class RunService:
    """The use cases of runs. Raises the `ServiceError` family. It takes runs while it is `at_work`."""

    def __init__(
        self,
        database: Database,
        engine: RunEngine,
        systems: Mapping[str, System],
        settings: RunSettings,
        *,
        code_version: str,
        observer: RunObserver = UNWATCHED,
    ) -> None:
        self._observer = observer
        self._database = database
        self._systems = systems
        self._settings = settings
        self._code_version = code_version
        self._datasets = DatasetStore(database)
        self._keys = KeyStore(database)
        self._runs = RunStore(database, on_end=self._tell_end)
        self._records = RecordStore(database)
        self._analysis = AnalysisStore(database)
        stores = Stores(self._runs, self._records, self._keys, ChunkStore(database))
        self._crew = Crew(database, engine, systems, settings, stores, code_version=code_version, observer=observer)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Take runs, and work on them as the engine does, with what earlier processes left unfinished.

        On leaving all work stops at once; the rest is done by others, or next time.
        """
        async with self._crew.at_work():
            yield

    async def submit(
        self,
        request: RunRequest,
        dataset: EvalDataset | Source | None = None,
        *,
        idempotency_key: str | None = None,
        body_hash: str | None = None,
    ) -> Run:
        """Store the dataset and the whole configuration, and start the run.

        `dataset` is None when the request names a `dataset_id`. With an `idempotency_key` the same request again
        answers the run that the first one made; another one is `KeyReused` (an `Unprocessable`), and while the first
        is not through it is `Conflict`. `body_hash` says which requests are the same; left out, it is computed.
        Raises `Unprocessable` (also `DatasetError`, `DuplicateExampleIds`), `NotFound` for an unknown dataset.
        """
        if idempotency_key is None:
            return await self._start(request, dataset, None)
        check_key(idempotency_key)
        content = list(with_ids(dataset)) if isinstance(dataset, EvalDataset) else dataset
        if body_hash is None:
            body_hash = await asyncio.to_thread(hash_request, request, content)
        known = await self._keys.claim(idempotency_key, body_hash, self._crew.me)
        if known is not None:
            return await self.get(known)
        try:
            return await self._start(request, dataset, idempotency_key)
        except BaseException:
            await asyncio.shield(self._keys.release(idempotency_key))
            raise

    async def _start(self, request: RunRequest, dataset: EvalDataset | Source | None, key: str | None) -> Run:
        system = check_request(request, self._systems)
        profile = system.profile_under(request.options.driver)
        stored = await self._dataset(request, dataset)
        rows = await self._records.examples(stored.no, 0, LOOKED_AT)
        check_examples([read_stored(data, position, EvalExample) for position, data in rows], profile)
        pipeline = system.pipelines.get(request.options.pipeline)
        run = new_run(request, stored, profile, self._settings, self._code_version, pipeline)
        run = dataclasses.replace(run, executor=self._crew.owner)
        await self._runs.create(run, key)
        self._crew.wake()
        return resource_of(run, progress_of(run, 0, 0, None, self._outlook(run)))

    async def _dataset(self, request: RunRequest, dataset: EvalDataset | Source | None) -> StoredDataset:
        if (request.dataset_id is None) == (dataset is None):
            raise Unprocessable("a run needs a dataset, or the dataset_id of a stored one, and not both")
        if dataset is not None:
            return await self._datasets.add(self._examples(dataset))
        stored = await self._datasets.find(str(request.dataset_id))
        if stored is None:
            raise NotFound(f"there is no dataset {request.dataset_id}")
        return stored

    def _examples(self, dataset: EvalDataset | Source) -> Iterator[EvalExample]:
        limit = self._settings.max_examples
        if isinstance(dataset, Source):
            return read_examples(dataset, max_examples=limit)
        if not dataset.examples:
            raise EmptyDataset
        if len(dataset.examples) > limit:
            raise Unprocessable(f"a dataset may have at most {limit} examples")
        return with_ids(dataset)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, run_id: str) -> Run:
        """The run with its progress. Raises `NotFound`."""
        return await self._resource(await self._stored(run_id))

    async def list(self, filters: RunFilters, *, limit: int = 50, cursor: str | None = None) -> Page[Run]:
        """Runs, newest first. Raises `BadRequest` for a cursor that is not ours."""
        runs = await self._runs.list(filters, limit, cursor)
        items = [await self._resource(run) for run in runs[:limit]]
        more = encode_cursor(runs[limit - 1].run_id) if len(runs) > limit else None
        return Page(items=tuple(items), next_cursor=more)

    async def report(
        self, run_id: str, *, predictions: bool = False, slices: Sequence[str] = (), binary: bool | None = None
    ) -> EvalReport:
        """The metrics so far, derived from the records; of an unfinished run the rest counts as unscored.

        `slices` are JSON Pointers into an example (or, with `/prediction`, into what was scored) along which the report
        is cut. `binary` None = as the run was asked.
        """
        run = await self._stored(run_id)
        profile = run.config.profile
        if binary and profile.binary is None:
            raise Unprocessable(f"the system {run.system} has no binary labels")
        tally, breakdown = await self._analysis.analyse(run, tuple(dict.fromkeys(slices)))
        wanted = run.config.options.binary if binary is None else binary
        report = await asyncio.to_thread(derive_report, tally, profile, binary=wanted, breakdown=breakdown)
        if not predictions:
            return report
        if report.n_scored > MAX_PREDICTIONS:
            raise Unprocessable(f"a report carries at most {MAX_PREDICTIONS} predictions; read the records instead")
        rows = [data async for batch in self._records.all(run, RecordFilters(status="scored")) for data in batch]
        found = (Record.model_validate_json(data).prediction for data in rows)
        return report.model_copy(update={"predictions": tuple(item for item in found if item is not None)})

    async def records(
        self, run_id: str, filters: RecordFilters, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Record]:
        """Records in the dataset's order. Raises `NotFound`, `BadRequest`."""
        run = await self._stored(run_id)
        after = None if cursor is None else record_cursor(cursor)
        rows = await self._records.page(run, filters, limit + 1, after)
        more = encode_cursor(*rows[limit - 1][0]) if len(rows) > limit else None
        return Page(items=tuple(Record.model_validate_json(data) for _, data in rows[:limit]), next_cursor=more)

    async def export(self, run_id: str, filters: RecordFilters, form: Literal["ndjson", "csv"]) -> AsyncIterator[bytes]:
        """All records as a stream of encoded lines, in pieces of some hundred rows. Ask `get` first for `NotFound`."""
        batches = self._records.all(await self._stored(run_id), filters)
        async for piece in csv_lines(batches) if form == "csv" else ndjson_lines(batches):
            yield piece

    # --- steering -----------------------------------------------------------------------------------------------------

    async def cancel(self, run_id: str) -> Run:
        """Stop asking, keep what was recorded. Idempotent. Raises `NotFound`; `Conflict` when the run has ended."""
        if await self._runs.move(run_id, RunStatus.CANCELLING, only_from=BUSY):
            self._crew.poke(run_id)
        elif not await self._runs.move(run_id, RunStatus.CANCELLED, only_from={RunStatus.PAUSED}):
            await self._refuse_unless(run_id, {RunStatus.CANCELLING, RunStatus.CANCELLED}, "be cancelled")
        return await self.get(run_id)

    async def pause(self, run_id: str) -> Run:
        """Stop asking until `resume`. Idempotent. Raises `NotFound`, `Conflict`."""
        if await self._runs.move(run_id, RunStatus.PAUSED, only_from=BUSY):
            self._crew.poke(run_id)
        else:
            await self._refuse_unless(run_id, {RunStatus.PAUSED}, "be paused")
        return await self.get(run_id)

    async def resume(self, run_id: str) -> Run:
        """Go on after `pause`. Idempotent. Raises `NotFound`, `Conflict`."""
        run = await self._stored(run_id)
        if run.status is RunStatus.PAUSED:
            await self._runs.hand_over(run, self._crew.owner, RunStatus.QUEUED)
            self._crew.wake()
        await self._refuse_unless(run_id, BUSY, "go on")
        return await self.get(run_id)

    async def retry(self, run_id: str) -> Run:
        """Ask again about what failed, and about what was never asked, as a new attempt; successes stay.

        Raises `NotFound`; `Conflict` when the run has not ended or nothing in it failed.
        """
        run = await self._stored(run_id)
        await self._refuse_unless(run_id, TERMINAL, "be retried")
        if (await self._records.count(run))[0] == run.n_total:
            raise Conflict("every example of this run was scored: there is nothing to retry")
        if not await self._runs.retry(run, self._crew.owner):
            raise Conflict("another request began a new attempt of this run just now")
        self._crew.wake()
        return await self.get(run_id)

    async def _refuse_unless(self, run_id: str, fine: set[RunStatus] | frozenset[RunStatus], what: str) -> None:
        run = await self._stored(run_id)
        if run.status not in fine:
            raise Conflict(f"a run that is {run.status.value} can't {what}")

    async def _tell_end(self, run_id: str) -> None:
        try:
            run = await self._stored(run_id)
            self._observer.ended(run, await self._records.tally(run))
        except Exception:
            logger.exception("how run %s ended could not be told", run_id)

    async def _stored(self, run_id: str) -> StoredRun:
        run = await self._runs.get(run_id)
        if run is None:
            raise NotFound("there is no such run")
        return run

    async def _resource(self, run: StoredRun) -> Run:
        measured = self._crew.rate(run.run_id) if run.executor is not None else None  # others work on it as well
        return resource_of(run, progress_of(run, *await self._records.count(run), measured, self._outlook(run)))

    def _outlook(self, run: StoredRun) -> Outlook | None:
        system = self._systems.get(run.system)
        return None if system is None else system.outlook
