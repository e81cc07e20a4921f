"""Working stand-ins for the parts of the service, and a way to talk to an application without a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
from fastapi import FastAPI

from app.errors import Conflict, NotFound, Unprocessable
from app.evaluation.model import Accepted, BatchStatus, EvaluateRequest, LayerReport, OnlineScoringResult
from app.evaluation.service import Answer, EvaluationFilter
from app.runs.dataset import Source, check_unique, read_examples, with_ids
from app.runs.keys import KeyReused
from app.runs.metrics import score
from app.runs.model import (
    EvalReport,
    Page,
    Progress,
    Record,
    RecordFilters,
    Run,
    RunFilters,
    RunRequest,
    RunStatus,
    links_of,
)
from app.runs.tally import Tally
from app.services import Services
from app.settings import Settings
from app.store.ids import now, uuid7
from app.store.paging import Page as StorePage
from app.store.paging import decode_cursor, page_of
from layers.model import Disposition, EvalDataset, HeuristicResult, LayerName, SkipReason
from layers.ports import System
from layers.profile import SystemProfile


def verdict(request: EvaluateRequest, evaluation_id: str, *, replayed: bool = False) -> OnlineScoringResult:
    """The answer to a prediction about which nothing is odd."""
    skipped = LayerReport(status="skipped", reason=SkipReason.NOT_SELECTED, elapsed_ms=0, version="1")
    scored = LayerReport(status="scored", elapsed_ms=0.1, version="1")
    return OnlineScoringResult(
        evaluation_id=evaluation_id,
        prediction_id=request.id,
        system=request.system,
        label=request.label or "low",
        disposition=Disposition.PASS,
        decision="nothing_flagged",
        degraded=False,
        suspicion_score=0.0,
        escalated=False,
        escalation_reasons=(),
        inclusion_probability=1.0,
        heuristic_result=HeuristicResult(flagged=False),
        narrative_grounding_result=None,
        disagreement_result=None,
        consistency_result=None,
        judge_verdict=None,
        layers={name: scored if name is LayerName.HEURISTICS else skipped for name in LayerName},
        instrument_path=None,
        assurance=None,
        revision=1,
        replayed=replayed,
        created_at=now(),
    )


async def _nothing(_: EvaluateRequest) -> None:
    return None


@dataclass
class FakeEvaluations:
    """Keeps answers in memory. `before` is awaited ahead of each evaluation: it may wait, or raise."""

    before: Callable[[EvaluateRequest], Awaitable[None]] = _nothing
    stored: dict[str, OnlineScoringResult | Accepted] = field(default_factory=dict)
    by_content: dict[str, str] = field(default_factory=dict)
    batches: dict[str, BatchStatus] = field(default_factory=dict)

    async def evaluate_bytes(self, request: EvaluateRequest, *, fresh: bool = False, wait: bool = False) -> Answer:
        await self.before(request)
        if request.label is None and request.system == "generic":
            raise Unprocessable("the system's payload can't be read: give label and confidence")
        key = request.model_dump_json()
        known = None if fresh else self.by_content.get(key)
        result = verdict(request, known or uuid7(), replayed=known is not None)
        if known is None:
            self.by_content[key] = result.evaluation_id
            self.stored[result.evaluation_id] = result
        return Answer(result.evaluation_id, result.model_dump_json().encode(), result.replayed)

    async def accept(self, request: EvaluateRequest, *, fresh: bool = False) -> str:
        evaluation_id = uuid7()
        self.stored[evaluation_id] = Accepted(evaluation_id=evaluation_id, status="accepted", created_at=now())
        return evaluation_id

    async def accept_batch(self, requests: Sequence[EvaluateRequest]) -> tuple[str, tuple[str, ...]]:
        ids = tuple([await self.accept(request) for request in requests])
        batch_id = uuid7()
        self.batches[batch_id] = BatchStatus(
            batch_id=batch_id,
            status="accepted",
            n_total=len(ids),
            n_done=0,
            n_failed=0,
            evaluation_ids=ids,
            created_at=now(),
        )
        return batch_id, ids

    async def get_bytes(self, evaluation_id: str, revision: int | None = None) -> bytes | Accepted:
        found = self.stored.get(evaluation_id)
        if found is None or revision not in (None, 1):
            raise NotFound("there is no such evaluation")
        return found if isinstance(found, Accepted) else found.model_dump_json().encode()

    async def get_batch(self, batch_id: str) -> BatchStatus:
        if batch_id not in self.batches:
            raise NotFound("there is no such batch")
        return self.batches[batch_id]

    async def list(self, filters: EvaluationFilter, limit: int = 50, cursor: str | None = None) -> StorePage[bytes]:
        before = str(decode_cursor(cursor, str)[0]) if cursor else "~"
        rows = [
            result
            for result in sorted(self.stored.values(), key=lambda each: each.evaluation_id, reverse=True)
            if isinstance(result, OnlineScoringResult)
            and result.evaluation_id < before
            and filters.prediction_id in (None, result.prediction_id)
            and filters.system in (None, result.system)
        ]
        page = page_of(rows, limit, [(row.evaluation_id,) for row in rows])
        return StorePage(tuple(row.model_dump_json().encode() for row in page.items), page.next_cursor)


@dataclass
class FakeRuns:
    """Runs that are done at once: a recorded prediction is scored, an example without one fails."""

    runs: dict[str, Run] = field(default_factory=dict)
    kept: dict[str, list[Record]] = field(default_factory=dict)
    keys: dict[str, tuple[Any, str]] = field(default_factory=dict)

    async def submit(
        self,
        request: RunRequest,
        dataset: EvalDataset | Source | None = None,
        *,
        idempotency_key: str | None = None,
        body_hash: str | None = None,
    ) -> Run:
        if dataset is None:
            raise NotFound("there is no such dataset")
        examples = list(read_examples(dataset) if isinstance(dataset, Source) else with_ids(dataset))
        if idempotency_key in self.keys:
            seen, run_id = self.keys[idempotency_key or ""]
            if seen != (request, examples):
                raise KeyReused
            return self.runs[run_id]
        check_unique(example.id or "" for example in examples)
        run_id = uuid7()
        self.kept[run_id] = [
            Record(
                example_id=example.id or "",
                status="scored" if example.prediction else "failed",
                expected_label=example.expected_label,
                prediction=example.prediction,
                scored_label=example.prediction.label if example.prediction else None,
                correct=example.prediction.label == example.expected_label if example.prediction else None,
                elapsed_ms=1.0,
            )
            for example in examples
        ]
        n_scored = sum(record.status == "scored" for record in self.kept[run_id])
        progress = Progress(
            n_total=len(examples), n_done=len(examples), n_scored=n_scored, n_failed=len(examples) - n_scored
        )
        self.runs[run_id] = Run(
            run_id=run_id,
            name=request.name,
            system=request.system,
            status=RunStatus.SUCCEEDED,
            failure=None,
            dataset_id="sha256:" + "0" * 64,
            options=request.options,
            labels=request.labels,
            progress=progress,
            created_at=now(),
            started_at=now(),
            finished_at=now(),
            attempts=1,
            code_version="0",
            links=links_of(run_id),
        )
        if idempotency_key:
            self.keys[idempotency_key] = ((request, examples), run_id)
        return self.runs[run_id]

    async def get(self, run_id: str) -> Run:
        if run_id not in self.runs:
            raise NotFound("there is no such run")
        return self.runs[run_id]

    async def list(self, filters: RunFilters, *, limit: int = 50, cursor: str | None = None) -> Page[Run]:
        before = str(decode_cursor(cursor, str)[0]) if cursor else "~"
        ids = [run_id for run_id in sorted(self.runs, reverse=True) if run_id < before]
        page = page_of(ids, limit, [(run_id,) for run_id in ids])
        return Page[Run](items=tuple(self.runs[run_id] for run_id in page.items), next_cursor=page.next_cursor)

    async def cancel(self, run_id: str) -> Run:
        await self.get(run_id)
        raise Conflict("the run has ended")

    async def pause(self, run_id: str) -> Run:
        return await self.cancel(run_id)

    async def resume(self, run_id: str) -> Run:
        return await self.cancel(run_id)

    async def retry(self, run_id: str) -> Run:
        run = await self.get(run_id)
        if not run.progress.n_failed:
            raise Conflict("nothing failed")
        self.runs[run_id] = run.model_copy(update={"status": RunStatus.QUEUED, "attempts": run.attempts + 1})
        return self.runs[run_id]

    async def report(
        self, run_id: str, *, predictions: bool = False, slices: Sequence[str] = (), binary: bool | None = None
    ) -> EvalReport:
        records = self.kept[(await self.get(run_id)).run_id]
        scored = Counter((r.expected_label, r.scored_label or "") for r in records if r.status == "scored")
        failed = Counter((r.expected_label, "internal") for r in records if r.status == "failed")
        return EvalReport(**score(Tally(len(records), scored, failed)).model_dump())

    async def records(
        self, run_id: str, filters: RecordFilters, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Record]:
        records = self.kept[(await self.get(run_id)).run_id]
        start = int(decode_cursor(cursor, int)[0]) + 1 if cursor else 0
        page = page_of(records[start:], limit, [(start + at,) for at in range(len(records) - start)])
        return Page[Record](items=page.items, next_cursor=page.next_cursor)

    async def export(self, run_id: str, filters: RecordFilters, form: str) -> AsyncIterator[bytes]:
        if form == "csv":
            yield b"example_id,status\r\n"
        for record in self.kept[run_id]:
            line = f"{record.example_id},{record.status}\r\n" if form == "csv" else record.model_dump_json() + "\n"
            yield line.encode()


@dataclass(frozen=True)
class BreakerStands:
    """A breaker's snapshot."""

    state: str
    failures: int
    calls: int
    opened_at: datetime | None = None
    retry_at: datetime | None = None


class FakeBreaker:
    """Open until somebody resets it."""

    def __init__(self) -> None:
        self._stands = BreakerStands("open", 5, 5, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))

    def snapshot(self) -> BreakerStands:
        return self._stands

    def reset(self) -> None:
        self._stands = BreakerStands("closed", 0, 0)


class FakeDatabase:
    """Reachable and current, or neither when `error` is set."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def read(self, _: Callable[[Any], Any]) -> Any:
        if self.error is not None:
            raise self.error
        return True

    async def trouble(self) -> str | None:
        return None


def fake_services(settings: Settings, **parts: Any) -> Services:
    """Services of working fakes; `parts` replace some of them."""
    given: dict[str, Any] = {
        "evaluations": FakeEvaluations(),
        "runs": FakeRuns(),
        "breakers": {"ollama.judge": FakeBreaker()},
        "systems": {
            "generic": System(SystemProfile(name="generic"), why_closed="its predictions are recorded"),
        },
        "database": FakeDatabase(),
    }
    return Services(settings=settings, **{**given, **parts})


def connect_to(services: Services) -> Callable[[Settings], Any]:
    """A `connect` that hands out services there are already."""

    @asynccontextmanager
    async def connect(_: Settings) -> AsyncIterator[Services]:
        yield services

    return connect


@asynccontextmanager
async def client_of(app: FastAPI, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a started application; addressed as a local one unless `base_url` says otherwise."""
    async with app.router.lifespan_context(app) as state:

        async def with_state(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": dict(state or {})}, receive, send)

        transport = httpx.ASGITransport(with_state, raise_app_exceptions=False)
        async with httpx.AsyncClient(
            **{"transport": transport, "base_url": "http://127.0.0.1:8088", **options}
        ) as http:
            yield http
