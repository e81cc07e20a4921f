"""What the tests of runs share: records, datasets, systems that do as they are told, an engine without durability."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from app.runs.engine import IdleEngine, Work, drive
from app.runs.model import TERMINAL, Record, RecordError, Run, RunRequest, RunStatus
from app.runs.service import RunService
from app.settings import RunSettings
from app.store.database import Database
from layers.model import EvalDataset, EvalExample, EvalPrediction
from layers.ports import System
from layers.profile import SystemProfile

PROFILE = SystemProfile(name="tested")


def prediction(label: str, **fields: object) -> EvalPrediction:
    return EvalPrediction(**{"id": "p", "raw_output": {}, "label": label, "confidence": 0.5, **fields})


def record(expected: str, scored: str | None, *, error: str = "timeout", **fields: object) -> Record:
    """A record that was scored, or failed when `scored` is None."""
    if scored is None:
        outcome: dict[str, object] = {"status": "failed", "error": RecordError(kind=error, message=error)}
    else:
        outcome = {"status": "scored", "prediction": prediction(scored), "scored_label": scored}
        outcome["correct"] = expected == scored
    return Record(**{"example_id": "0", "expected_label": expected, "elapsed_ms": 1.0, **outcome, **fields})


def dataset(size: int, expected: str = "high") -> EvalDataset:
    return EvalDataset(
        examples=tuple(EvalExample(id=f"e{n}", input={"n": n}, expected_label=expected) for n in range(size))
    )


async def answer_high(example: EvalExample) -> EvalPrediction:
    return prediction("high", id=example.id)


class Scripted:
    """A system that does what `script` does, and counts how often it was asked about each example."""

    def __init__(self, script: Callable[[EvalExample], Awaitable[EvalPrediction]] = answer_high) -> None:
        self.script = script
        self.asked: Counter[str] = Counter()

    async def predict(self, example: EvalExample) -> EvalPrediction:
        self.asked[example.id or ""] += 1
        return await self.script(example)

    def as_system(self, profile: SystemProfile = PROFILE) -> System:
        return System(profile, open=lambda _driver: self)


class TaskEngine:
    """A `RunEngine` of plain tasks: it forgets everything when it is closed."""

    def __init__(self, executor: str | None = "tasks") -> None:
        self.executor = executor
        self._work: Work | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def alive(self, executor: str) -> bool:
        return True  # as far as can be told without signs of life

    async def launch(self, work: Work) -> None:
        self._work = work

    async def start(self, workflow_id: str) -> bool:
        if workflow_id not in self._tasks:
            self._tasks[workflow_id] = asyncio.create_task(self._drive(workflow_id))
        return not self._tasks[workflow_id].done()

    async def close(self) -> None:
        if self._work is not None:
            self._work.halt()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _drive(self, workflow_id: str) -> None:
        work = self._work
        assert work is not None
        await drive(
            lambda: work.plan(workflow_id),
            lambda size: work.chunk(workflow_id, size),
            lambda: work.conclude(workflow_id),
        )


@asynccontextmanager
async def run_service(
    database: Database, system: Scripted | System, settings: RunSettings | None = None, executor: str | None = "tasks"
) -> AsyncIterator[RunService]:
    """A service whose only system is `tested`, in a process called `executor`; None = one that only takes runs."""
    engine = IdleEngine() if executor is None else TaskEngine(executor)
    given = system if isinstance(system, System) else system.as_system()
    service = RunService(database, engine, {"tested": given}, settings or RunSettings(), code_version="test")
    async with service.at_work():
        yield service


async def ended(service: RunService, run_id: str) -> Run:
    """The run, once it has ended."""
    return await reached(service, run_id, *TERMINAL)


async def reached(service: RunService, run_id: str, *statuses: RunStatus, seconds: float = 20) -> Run:
    """The run, once it has one of these statuses; a test that waits in vain fails."""
    with anyio.fail_after(seconds):
        while (run := await service.get(run_id)).status not in statuses:  # noqa: ASYNC110 - as a client has to
            await anyio.sleep(0.005)
    return run


def request(**fields: object) -> RunRequest:
    return RunRequest(**{"system": "tested", **fields})
