"""Gather what a written report shows, and write it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, Protocol

from app.errors import NotFound, Unprocessable
from app.reports.html import render_html
from app.reports.markdown import render_markdown
from app.reports.paths import LOOKED_AT, MAX_EXAMPLES, choose_paths
from app.reports.store import CaseStore
from app.reports.view import ComparedReport, FailureCause, ReportView
from app.runs.contrasts import Comparison
from app.runs.model import EvalReport, Run
from app.runs.store import RunStore, StoredRun
from app.store.database import Database
from app.store.ids import now

MAX_WORST = 20
MAX_CASES = 3
"""Examples shown for one kind of failure."""


class Runs(Protocol):
    """Where runs and their figures come from. Both raise `NotFound`."""

    async def get(self, run_id: str) -> Run: ...
    async def report(
        self, run_id: str, *, predictions: bool = False, slices: Sequence[str] = (), binary: bool | None = None
    ) -> EvalReport: ...


class Comparisons(Protocol):
    """What sets a run against another one, given by its id or a baseline's name. Raises `NotFound`."""

    async def compare(self, run_id: str, baseline: str, *, slices: Sequence[str] = ()) -> Comparison: ...


class ReportService:
    """Reports for people. Raises the `ServiceError` family."""

    def __init__(self, database: Database, runs: Runs, comparisons: Comparisons | None, *, version: str) -> None:
        self._stored = RunStore(database)
        self._cases = CaseStore(database)
        self._runs = runs
        self._comparisons = comparisons
        self._version = version

    async def write(
        self,
        run_id: str,
        form: Literal["html", "markdown"],
        *,
        slices: Sequence[str] = (),
        binary: bool | None = None,
        baseline: str | None = None,
    ) -> str:
        """The report as one page of HTML, or as GitHub's Markdown. Raises `NotFound`, `Unprocessable`."""
        view = await self.view(run_id, slices=slices, binary=binary, baseline=baseline)
        return await asyncio.to_thread(render_html if form == "html" else render_markdown, view)

    async def view(
        self, run_id: str, *, slices: Sequence[str] = (), binary: bool | None = None, baseline: str | None = None
    ) -> ReportView:
        """What there is to show. Without `slices` some are chosen, where the run is small enough."""
        stored = await self._stored.get(run_id)
        if stored is None:
            raise NotFound("there is no such run")
        paths = slices or await self._choose(stored)
        report = await self._runs.report(run_id, slices=paths, binary=binary)
        return ReportView(
            run=await self._runs.get(run_id),
            report=report,
            worst=tuple(await self._cases.worst(stored, MAX_WORST)),
            n_wrong=report.n_scored - report.correct,
            failures=tuple([await self._cause(stored, *item) for item in _by_count(report)]),
            comparison=await self._compare(run_id, baseline, paths),
            certain=stored.config.profile.confidence_means == "certainty",
            chosen=not slices and bool(paths),
            made_at=now(),
            made_by=self._version,
        )

    async def figures(
        self,
        run_id: str,
        *,
        baseline: str,
        slices: Sequence[str] = (),
        binary: bool | None = None,
        predictions: bool = False,
    ) -> ComparedReport:
        """The report as values, with its comparison. Raises `NotFound`, `Unprocessable`."""
        comparison = await self._compare(run_id, baseline, slices)
        report = await self._runs.report(run_id, predictions=predictions, slices=slices, binary=binary)
        return ComparedReport.model_construct(**dict(report), comparison=comparison)

    async def _choose(self, run: StoredRun) -> Sequence[str]:
        if run.n_total > MAX_EXAMPLES:
            return ()
        return choose_paths(await self._cases.first_examples(run.dataset_no, LOOKED_AT))

    async def _cause(self, run: StoredRun, kind: str, count: int) -> FailureCause:
        return FailureCause(kind, count, tuple(await self._cases.failed(run, kind, MAX_CASES)))

    async def _compare(self, run_id: str, baseline: str | None, paths: Sequence[str]) -> Comparison | None:
        if baseline is None:
            return None
        if self._comparisons is None:
            raise Unprocessable("this service compares no runs")
        return await self._comparisons.compare(run_id, baseline, slices=paths)


def _by_count(report: EvalReport) -> list[tuple[str, int]]:
    return sorted(report.failures_by_kind.items(), key=lambda item: (-item[1], item[0]))
