"""What callers can do with runs: submit, watch, steer, read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from app.runs.dataset import Source
from app.runs.model import EvalReport, Page, Record, RecordFilters, Run, RunFilters, RunRequest
from layers.model import EvalDataset


class RunService:
    """The use cases of runs. Raises the `ServiceError` family."""

    async def submit(
        self,
        request: RunRequest,
        dataset: EvalDataset | Source | None = None,
        *,
        idempotency_key: str | None = None,
        body_hash: str | None = None,
    ) -> Run:
        """Store the dataset and the whole configuration, and start the run.

        `dataset` is None when the request names a `dataset_id`. With an `idempotency_key`, `body_hash` identifies the
        request: the same key and hash again answer the run that the first one made, another hash is `KeyReused`
        (an `Unprocessable`), and a first one that is not through yet is `Conflict`.
        Raises `Unprocessable` (also `DatasetError`, `DuplicateExampleIds`), `NotFound` for an unknown dataset.
        """
        raise NotImplementedError

    async def get(self, run_id: str) -> Run:
        """The run with its progress. Raises `NotFound`."""
        raise NotImplementedError

    async def list(self, filters: RunFilters, *, limit: int = 50, cursor: str | None = None) -> Page[Run]:
        """Runs, newest first. Raises `BadRequest` for a cursor that is not ours."""
        raise NotImplementedError

    async def cancel(self, run_id: str) -> Run:
        """Stop asking, keep what was recorded. Idempotent. Raises `NotFound`; `Conflict` when the run has ended."""
        raise NotImplementedError

    async def pause(self, run_id: str) -> Run:
        """Stop asking until `resume`. Raises `NotFound`, `Conflict`."""
        raise NotImplementedError

    async def resume(self, run_id: str) -> Run:
        """Go on after `pause`. Raises `NotFound`, `Conflict`."""
        raise NotImplementedError

    async def report(self, run_id: str, *, predictions: bool = False) -> EvalReport:
        """The metrics so far, derived from the records; of an unfinished run the rest counts as unscored."""
        raise NotImplementedError

    async def records(
        self, run_id: str, filters: RecordFilters, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Record]:
        """Records in the dataset's order. Raises `NotFound`, `BadRequest`."""
        raise NotImplementedError

    def export(self, run_id: str, filters: RecordFilters, form: Literal["ndjson", "csv"]) -> AsyncIterator[bytes]:
        """All records as a stream of encoded lines, in pieces of some hundred rows. Ask `get` first for `NotFound`."""
        raise NotImplementedError
