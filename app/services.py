"""What the service is made of while it runs: built once by `connect`, handed to every request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from app.adjudication.service import AdjudicationService
from app.critic.service import CriticReports
from app.datasets.service import DatasetService
from app.evaluation.service import EvaluationService
from app.gates.service import GateService
from app.index.service import IndexService
from app.log.service import LogService
from app.reports.service import ReportService
from app.runs.events import RunEvents
from app.runs.service import RunService
from app.settings import Settings
from app.store.database import Database
from app.verdicts.service import VerdictService
from layers.ports import System


class BreakerState(Protocol):
    """How a circuit breaker stands: `closed`, `open` or `half_open`; times are UTC and None while closed."""

    @property
    def state(self) -> str: ...
    @property
    def failures(self) -> int: ...
    @property
    def calls(self) -> int: ...
    @property
    def opened_at(self) -> datetime | None: ...
    @property
    def retry_at(self) -> datetime | None: ...


class Breaker(Protocol):
    """What the service shows of a circuit breaker, and the one thing an operator may do to it."""

    def snapshot(self) -> BreakerState: ...
    def reset(self) -> None: ...


@dataclass(frozen=True)
class Services:
    """Everything a route may use."""

    settings: Settings
    evaluations: EvaluationService
    runs: RunService
    breakers: Mapping[str, Breaker]
    systems: Mapping[str, System]
    database: Database
    log: LogService | None = None
    index: IndexService | None = None
    adjudications: AdjudicationService | None = None
    datasets: DatasetService | None = None
    events: RunEvents | None = None
    gates: GateService | None = None
    critics: CriticReports | None = None
    reports: ReportService | None = None
    verdicts: VerdictService | None = None


Connect: TypeAlias = Callable[[Settings], AbstractAsyncContextManager[Services]]
"""Builds the services and takes them down again; tests pass another one."""
