"""The words of runs: what is asked for, what is recorded, what is reported."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Generic, Literal, TypeAlias, TypeVar

from pydantic import Field, StringConstraints

from app.runs.figures import Calibration, Repeats, Scores, Slice
from layers.model import EvalPrediction, Identifier, JsonObject, Label, Value

SCHEMA_VERSION: Literal[1] = 1
"""Version of the report's shape; it goes up when a field changes its meaning."""

LabelKey: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=128)]
LabelValue: TypeAlias = Annotated[str, StringConstraints(max_length=512)]

T = TypeVar("T")


class RunStatus(StrEnum):
    """Where a run stands. `waiting`: its system is down or throttled, and it goes on by itself."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL: frozenset[RunStatus] = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED})
"""Statuses that a run leaves only by a new attempt."""

BUSY: frozenset[RunStatus] = frozenset({RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING})
"""Statuses in which examples may be asked about."""


class RunOptions(Value):
    """How to run. `concurrency` None = the service's default; `limit` takes the first so many examples.

    Of the runs against one system those of the highest `priority` go first.
    """

    driver: Identifier | None = None
    binary: bool = False
    limit: int | None = Field(default=None, ge=1, le=10_000_000)
    concurrency: int | None = Field(default=None, ge=1, le=1024)
    repeats: int = Field(default=1, ge=1, le=100)
    pipeline: Literal["offline", "critic"] = "offline"
    priority: int = Field(default=0, ge=-100, le=100)


class RunRequest(Value):
    """Which system to ask, how, and what to call it; the dataset comes beside it, or by its hash."""

    system: Identifier
    name: str | None = Field(default=None, max_length=256)
    dataset_id: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    options: RunOptions = RunOptions()
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=64)


class Progress(Value):
    """How far a run is, derived from its records. Rates are examples per second, `eta_s` seconds; null = unknown."""

    n_total: int
    n_done: int
    n_scored: int
    n_failed: int
    rate_per_s: float | None = None
    eta_s: float | None = None


class RunFailure(Value):
    """Why a run could not go on, as one sentence. `kind` is stable: `unreachable`, `too_many_failures`, `internal`."""

    kind: str
    message: str


class RunLinks(Value):
    """Where the rest of a run is."""

    report: str
    records: str
    events: str


class Run(Value):
    """One execution over a dataset. Times are RFC 3339 UTC."""

    run_id: str
    name: str | None
    system: str
    status: RunStatus
    failure: RunFailure | None
    dataset_id: str
    options: RunOptions
    labels: dict[str, str]
    progress: Progress
    created_at: str
    started_at: str | None
    finished_at: str | None
    attempts: int
    code_version: str
    links: RunLinks


class RecordError(Value):
    """Why an example has no prediction. `kind` is a `DependencyError` kind, or `internal`; `detail` is JSON-ready."""

    kind: str
    message: str
    detail: JsonObject = Field(default_factory=dict)


class Record(Value):
    """What happened to one example in one attempt.

    `scored_label` is the label as it is compared (folded only where the profile says so); `correct` is null for a
    failed one. `elapsed_ms` is the time the system took, retries included.
    """

    example_id: str
    repeat: int = 0
    status: Literal["scored", "failed"]
    expected_label: str
    prediction: EvalPrediction | None = None
    scored_label: str | None = None
    correct: bool | None = None
    error: RecordError | None = None
    attempt: int = 1
    elapsed_ms: float


class EvalReport(Scores):
    """What a dataset says about a system. `total` counts every example, failed ones included.

    `binary` holds the same figures with the labels collapsed as the profile says; None when it was not asked for.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    failures_by_kind: dict[str, int] = Field(default_factory=dict)
    binary: Scores | None = None
    slices: tuple[Slice, ...] = ()
    calibration: Calibration | None = None
    repeats: Repeats | None = None
    predictions: tuple[EvalPrediction, ...] | None = None


class Page(Value, Generic[T]):
    """One page of a list; `next_cursor` is null on the last."""

    items: tuple[T, ...]
    next_cursor: str | None = None


class RunFilters(Value):
    """What `GET /runs` can be narrowed to."""

    system: str | None = None
    status: RunStatus | None = None
    dataset_id: str | None = None
    name: str | None = None


class RecordFilters(Value):
    """What a run's records can be narrowed to. `current` leaves out attempts that a later one replaced."""

    status: Literal["scored", "failed"] | None = None
    correct: bool | None = None
    expected_label: Label | None = None
    scored_label: Label | None = None
    error_kind: str | None = None
    current: bool = True


def links_of(run_id: str) -> RunLinks:
    """The run's own addresses, relative to the service."""
    base = f"/runs/{run_id}"
    return RunLinks(report=f"{base}/report", records=f"{base}/records", events=f"{base}/events")
