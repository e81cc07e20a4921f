"""The use case `/evaluate`: evaluate now, or accept for later; show what was stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import anyio
import anyio.lowlevel

from app.errors import NotFound, Unprocessable
from app.evaluation import erasure
from app.evaluation.drafting import Place
from app.evaluation.erasure import Erased
from app.evaluation.evaluator import Evaluator
from app.evaluation.evidence import number_evidence
from app.evaluation.flights import Flights, Gate
from app.evaluation.inquiry import NumberEvidence
from app.evaluation.item import Item, read_item
from app.evaluation.model import Accepted, BatchStatus, EvaluateRequest, OnlineScoringResult, WorkError
from app.evaluation.observe import UNWATCHED, Observer
from app.evaluation.pipeline import AuditSample, Entail, NewRecorder, Pipeline, Rules, no_entailment
from app.evaluation.record import as_replayed
from app.evaluation.standing import ErasedMeanwhile
from app.evaluation.store import EvaluationFilter, EvaluationStore, Ledger, Stored
from app.evaluation.work import Work, WorkStore, work_row
from app.evaluation.worker import Worker
from app.settings import EvaluationSettings
from app.store.database import Database
from app.store.ids import uuid7
from app.store.paging import DEFAULT_LIMIT, Page
from app.store.rows import Row
from layers.contracts import Contracts, PreflightPolicy, make_contracts
from layers.judge import JudgeMetrics, judge_metrics
from layers.ports import System
from layers.profile import SystemProfile

__all__ = ["Answer", "EvaluationFilter", "EvaluationService", "Options"]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer ready to be sent: `body` is the JSON of an `OnlineScoringResult`."""

    evaluation_id: str
    body: bytes
    replayed: bool


@dataclass(frozen=True)
class Options:
    """How the service works: `work_concurrency` pieces of accepted work at once, beside the `max_in_flight` requests.

    `ledger` keeps the provenance that recorders collect; without a recorder there is none. `contracts` states what is
    agreed for a profile: asked once for each system.
    """

    max_in_flight: int = 512
    work_concurrency: int = 16
    observer: Observer = UNWATCHED
    new_recorder: NewRecorder | None = None
    ledger: Ledger | None = None
    contracts: Callable[[SystemProfile], Contracts] = make_contracts
    preflight: PreflightPolicy = field(default_factory=PreflightPolicy)
    number: NumberEvidence = number_evidence
    entail: Entail = no_entailment


class EvaluationService:
    """Evaluates predictions, now or later, and shows what was stored."""

    def __init__(
        self,
        database: Database,
        systems: Mapping[str, System],
        evaluator: Evaluator,
        settings: EvaluationSettings,
        options: Options = Options(),
    ) -> None:
        self._systems = systems
        self._database = database
        self._ledger = options.ledger
        self._store = EvaluationStore(database, options.ledger)
        self._work = WorkStore(database)
        self._observer = options.observer
        self._worker = Worker(
            self._work, self._perform, concurrency=options.work_concurrency, within=options.observer.job
        )
        self._pipeline = Pipeline(
            evaluator,
            self._store,
            AuditSample(settings.audit_rate, settings.audit_key.get_secret_value().encode()),
            Rules(
                {name: options.contracts(system.profile) for name, system in systems.items()},
                options.preflight,
                options.number,
            ),
            observer=options.observer,
            new_recorder=options.new_recorder,
            on_follow_up=self._worker.wake_soon,
            entail=options.entail,
        )
        self._gate = Gate(options.max_in_flight)
        self._flights: Flights[Stored] = Flights()

    # --- now ----------------------------------------------------------------------------------------------------------

    async def evaluate_bytes(self, request: EvaluateRequest, *, fresh: bool = False, wait: bool = False) -> Answer:
        """Evaluate, store, answer. A content that has an answer gets that one, marked as replayed, unless `fresh`.

        Raises `Unprocessable`, `Unavailable`, and `Overloaded` when too much is in flight; with `wait` it waits
        for its turn instead. Cancelled, it leaves nothing behind.
        """
        item = read_item(request, self._systems)
        if wait:
            async with self._gate.patiently():
                return await self._answer(item, Place(uuid7(), fresh=fresh))
        with self._gate.at_once():
            return await self._answer(item, Place(uuid7(), fresh=fresh))

    async def evaluate(self, request: EvaluateRequest, *, fresh: bool = False) -> OnlineScoringResult:
        """`evaluate_bytes`, decoded."""
        return OnlineScoringResult.model_validate_json((await self.evaluate_bytes(request, fresh=fresh)).body)

    async def _answer(self, item: Item, place: Place) -> Answer:
        try:
            if place.fresh:
                stored, shared = await self._pipeline.evaluate(item, place), False
            else:
                stored, shared = await self._flights.fly(item.digest, lambda: self._once(item, place))
        except ErasedMeanwhile as exc:
            if exc.about == place.work_id:
                raise
            return await self._answer(item, place)  # what stood there is gone: this one is asked for on its own
        replayed = shared or not stored.created
        return Answer(stored.evaluation_id, as_replayed(stored.record) if replayed else stored.record, replayed)

    async def _once(self, item: Item, place: Place) -> Stored:
        stored = await self._pipeline.evaluate(item, place)
        return stored if stored.created else await self._pipeline.mend(item, stored, work_id=place.work_id)

    # --- later --------------------------------------------------------------------------------------------------------

    async def accept(self, request: EvaluateRequest, *, fresh: bool = False) -> str:
        """Store the request durably and return the id under which its answer will stand. Raises `Unprocessable`."""
        item = read_item(request, self._systems)
        if not fresh and (stored := await self._store.find(item.digest)) is not None and not stored.degraded:
            return stored.evaluation_id
        work_id = uuid7()
        await self._work.add([work_row(work_id, item.content, fresh=fresh, traceparent=self._observer.caller())])
        self._worker.wake()
        return work_id

    async def accept_batch(self, requests: Sequence[EvaluateRequest]) -> tuple[str, tuple[str, ...]]:
        """Store many at once, all or none; the batch's id and the evaluations' ids in order.

        A request that makes no sense is part of the batch, as one that failed.
        """
        batch_id = uuid7()
        rows: list[Row] = []
        caller = self._observer.caller()
        for position, request in enumerate(requests):
            rows.append(self._batch_row(request, batch_id, position, caller))
            if position % 64 == 63:
                await anyio.lowlevel.checkpoint()  # other requests get their turn
        await self._work.add(rows)
        self._worker.wake()
        return batch_id, tuple(row[0] for row in rows)

    def _batch_row(self, request: EvaluateRequest, batch_id: str, position: int, caller: str | None) -> Row:
        try:
            content, error = read_item(request, self._systems).content, None
        except Unprocessable as exc:
            content, error = b"", WorkError(kind="unprocessable", message=exc.detail)
        return work_row(uuid7(), content, batch=(batch_id, position), error=error, traceparent=caller)

    async def work(self) -> None:
        """Work off what was accepted, for ever; the lifespan's task group runs it."""
        await self._worker.run()

    async def drain(self) -> None:
        """Work off what was accepted until there is nothing left."""
        await self._worker.drain()

    async def backlog(self) -> int:
        """How much is accepted and not done, in the whole store. Raises `Unavailable`."""
        return await self._work.backlog()

    async def _perform(self, work: Work) -> str:
        if work.attempts and await self._store.get(work.work_id) is not None:
            return work.work_id  # an earlier worker stored it and ended before it could say so
        request = EvaluateRequest.model_validate(json.loads(work.request))
        item = read_item(request, self._systems)
        if work.kind == "audit":
            place = Place(work.work_id, parent_id=work.parent_id, work_id=work.work_id)
            return (await self._pipeline.evaluate(item, place)).evaluation_id
        place = Place(work.work_id, fresh=work.fresh, work_id=work.work_id)
        return (await self._answer(item, place)).evaluation_id

    # --- stored -------------------------------------------------------------------------------------------------------

    async def get_bytes(self, evaluation_id: str, revision: int | None = None) -> bytes | Accepted:
        """The stored answer, newest revision by default, or how its accepted work stands. Raises `NotFound`."""
        stored = await self._store.get(evaluation_id, revision)
        if stored is None and (found := await self._work.status(evaluation_id)) is not None:
            accepted, result_id = found
            if result_id is None and revision is None:
                return accepted
            stored = None if result_id is None else await self._store.get(result_id, revision)
        if stored is None:
            which = "" if revision is None else f" with revision {revision}"
            raise NotFound(f"there is no evaluation {evaluation_id[:64]}{which}")
        return stored.record

    async def get(self, evaluation_id: str, revision: int | None = None) -> OnlineScoringResult | Accepted:
        """`get_bytes`, decoded."""
        found = await self.get_bytes(evaluation_id, revision)
        return OnlineScoringResult.model_validate_json(found) if isinstance(found, bytes) else found

    async def get_batch(self, batch_id: str) -> BatchStatus:
        """How far an accepted batch is. Raises `NotFound`."""
        status = await self._work.batch(batch_id)
        if status is None:
            raise NotFound(f"there is no batch {batch_id[:64]}")
        return status

    async def list(
        self, filters: EvaluationFilter, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[bytes]:
        """Stored answers, newest first, as the JSON of each. Raises `BadRequest` for a foreign cursor."""
        return await self._store.page(filters, limit, cursor)

    async def judge_metrics(self, *, system: str | None = None, since: datetime | None = None) -> JudgeMetrics:
        """How often a judge really answered, of what is stored; `since` is inclusive."""
        return judge_metrics(await self._store.count_by_path(system, since))

    async def erase(self, evaluation_id: str, stages: Collection[str], revision: int | None = None) -> Erased:
        """Erase stages of an evaluation, of every revision unless one is named; of one that was accepted and is not
        done, all there is. Raises `NotFound`, `Conflict`."""
        if self._ledger is None:
            raise NotFound("this service keeps no provenance")
        return await erasure.erase(self._database, self._ledger, evaluation_id, stages, revision)
