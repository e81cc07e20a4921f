"""Build the services in order and take them down in reverse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio
from fastapi import FastAPI
from starlette.middleware import Middleware

from adapters.http import new_http_client
from app.adjudication.entailment import settle
from app.adjudication.service import AdjudicationService
from app.critic.service import CriticReports
from app.datasets.service import DatasetService
from app.evaluation.evaluator import Evaluator
from app.evaluation.service import EvaluationService, Options
from app.gates.service import GateService
from app.index.service import IndexService
from app.log.keys import key_path
from app.log.service import LogService
from app.main import create_app
from app.reports.service import ReportService
from app.runs import judge_system
from app.runs.dataset_store import DatasetStore
from app.runs.dbos_engine import DbosEngine
from app.runs.engine import IdleEngine, RunEngine
from app.runs.event_store import EventStore
from app.runs.events import RunEvents
from app.runs.leftovers import Leftovers
from app.runs.service import RunService
from app.services import Connect, Services
from app.settings import Settings
from app.store.budget import SharedStates
from app.store.database import Database
from app.store.engines import locate
from app.store.ids import random_bytes
from app.telemetry.decisions import DecisionTelemetry
from app.telemetry.evaluations import EvaluationTelemetry
from app.telemetry.gauges import QueueGauge, show_store
from app.telemetry.http import trace_every_request
from app.telemetry.metrics import Metrics
from app.telemetry.middleware import HttpTelemetry
from app.telemetry.model_calls import ModelCallTelemetry
from app.telemetry.runs import RunTelemetry
from app.telemetry.setup import Telemetry
from app.verdicts.binding import Bindings
from app.version import service_version
from app.wiring.adjudication import claim_check, connect_adjudication, secrets_of
from app.wiring.critic import classifier_systems
from app.wiring.hooks import show_breakers, telemetry_hooks
from app.wiring.layers import build_layers, connect_judges, connect_retrieval, contracts_in_force, judge_layer
from app.wiring.remotes import Remotes
from app.wiring.systems import connect_neighbours, judge_as_system, known_systems
from app.wiring.verdicts import connect_verdicts
from layers.fingerprint import transaction_fingerprint
from layers.ports import System
from layers.provenance import Recorder
from layers.structured_call import StructuredCall


def service_app(settings: Settings, *, execute: bool = True, telemetry: Telemetry | None = None) -> FastAPI:
    """The whole service as an ASGI application, telemetry included; what `serve` runs.

    `execute` False: it reads and evaluates, and starts no run. `telemetry` None = as the settings say.
    """
    telemetry = telemetry or Telemetry(settings.telemetry)
    metrics = Metrics(telemetry)
    connect = connector(execute=execute, telemetry=telemetry, metrics=metrics)
    app = create_app(settings, connect, [Middleware(HttpTelemetry, telemetry=telemetry, metrics=metrics)])
    if settings.telemetry.requests == "all":
        trace_every_request(app, telemetry)
    return app


def connector(*, execute: bool, telemetry: Telemetry, metrics: Metrics, beside: bool = False) -> Connect:
    """How `create_app` builds its services. `beside` = another process calls the same remotes for the same store."""

    @asynccontextmanager
    async def connect(settings: Settings) -> AsyncIterator[Services]:
        async with AsyncExitStack() as stack:
            stack.callback(telemetry.shutdown)
            telemetry.hide(secrets_of(settings))
            yield await _Builder(settings, stack, telemetry, metrics, execute=execute, beside=beside).build()

    return connect


class _Builder:
    def __init__(
        self,
        settings: Settings,
        stack: AsyncExitStack,
        telemetry: Telemetry,
        metrics: Metrics,
        *,
        execute: bool,
        beside: bool,
    ) -> None:
        self.settings = settings
        self.stack = stack
        self.telemetry = telemetry
        self.metrics = metrics
        self.execute = execute
        self.works = execute and settings.runs.work
        self.beside = beside or (execute and not settings.runs.work)

    async def build(self) -> Services:
        settings = self.settings
        database = await Database.open(settings.store)
        self.stack.push_async_callback(database.close)
        show_store(self.metrics, database.counts)
        http = new_http_client(connect_timeout=settings.network.connect_timeout)
        self.stack.push_async_callback(http.aclose)
        # A SQLite file mostly belongs to one process: where it does, budgets need no account in the store.
        states = SharedStates(database) if self.beside or database.dialect == "postgresql" else None
        remotes = Remotes(settings.network, http, telemetry_hooks(self.metrics), states)
        neighbours = connect_neighbours(settings, remotes)
        judges = connect_judges(settings, remotes)
        count_call = ModelCallTelemetry(self.telemetry, self.metrics)
        calls = StructuredCall(record=count_call)
        systems = known_systems(settings, neighbours, remotes)
        systems[judge_system.NAME] = judge_as_system(
            judge_layer(settings, judges, "run", calls) if judges else None, systems
        )
        systems |= classifier_systems(settings, judges, systems, partial(StructuredCall, record=count_call))
        retrieval = connect_retrieval(settings, remotes, database, neighbours)
        log = await LogService.open(database, key_path(settings.store.url, settings.log.key_file))
        evaluator = Evaluator(
            build_layers(
                settings, neighbours, retrieval, judge_layer(settings, judges, "evaluate", calls) if judges else None
            ),
            request_timeout=settings.evaluation.request_timeout,
        )
        show_breakers(self.metrics, remotes.registry())
        options = Options(
            max_in_flight=settings.server.max_in_flight,
            observer=EvaluationTelemetry(self.telemetry, self.metrics, systems),
            new_recorder=partial(Recorder, random_bytes),
            ledger=log,
            contracts=contracts_in_force(settings, judged=bool(judges)),
            entail=partial(settle, claim_check(settings, judges, calls)),
        )
        evaluations = await self._evaluations(database, systems, evaluator, options)
        runs = await self._runs(database, systems)
        events = RunEvents(runs.get, EventStore(database))
        self.stack.push_async_callback(events.close)
        decisions = DecisionTelemetry(self.metrics, systems)
        gates = GateService(
            database,
            on_verdict=decisions.gate,
            check_binding=Bindings(database).check_run,
        )
        return Services(
            settings=settings,
            evaluations=evaluations,
            runs=runs,
            breakers=remotes.registry(),
            systems=systems,
            database=database,
            log=log,
            datasets=DatasetService(database, max_examples=settings.runs.max_examples),
            events=events,
            critics=CriticReports(database),
            gates=gates,
            reports=ReportService(database, runs, gates, version=service_version()),
            verdicts=connect_verdicts(settings, judges, calls, database, log, gates, decisions.verdict),
            adjudications=await self._adjudications(
                connect_adjudication(settings, judges, calls, database, retrieval.embedder, log)
            ),
            index=IndexService(
                retrieval.embedded,
                retrieval.embedder,
                fingerprint=transaction_fingerprint,
                policies_namespace=settings.vectors.policies_namespace,
                transactions_namespace=settings.vectors.transactions_namespace,
            ),
        )

    async def _adjudications(self, service: AdjudicationService) -> AdjudicationService:
        if self.works:
            group = await self.stack.enter_async_context(anyio.create_task_group())
            self.stack.callback(group.cancel_scope.cancel)
            group.start_soon(service.work)
        return service

    async def _evaluations(
        self, database: Database, systems: dict[str, System], evaluator: Evaluator, options: Options
    ) -> EvaluationService:
        service = EvaluationService(database, systems, evaluator, self.settings.evaluation, options)
        if self.execute:
            group = await self.stack.enter_async_context(anyio.create_task_group())
            self.stack.callback(group.cancel_scope.cancel)
            if self.works:
                group.start_soon(service.work)
            group.start_soon(QueueGauge(self.metrics, service.backlog).run)
        return service

    async def _runs(self, database: Database, systems: dict[str, System]) -> RunService:
        engine: RunEngine = DbosEngine(locate(self.settings.store.url).url) if self.works else IdleEngine()
        service = RunService(
            database,
            engine,
            systems,
            self.settings.runs,
            code_version=service_version(),
            observer=RunTelemetry(self.telemetry, self.metrics, systems),
        )
        if self.execute:
            await self.stack.enter_async_context(service.at_work())
            group = await self.stack.enter_async_context(anyio.create_task_group())
            self.stack.callback(group.cancel_scope.cancel)
            group.start_soon(Leftovers(DatasetStore(database)).clear_for_ever)
        return service
