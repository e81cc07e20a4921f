"""Erasing what was accepted and is not done: nothing of it is stored once the caller was told that it is gone."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from sqlalchemy import text

from app.errors import Conflict, NotFound
from app.evaluation.evaluator import Evaluator
from app.evaluation.model import Accepted, EvaluateRequest
from app.evaluation.run_layer import LayerSpec
from app.evaluation.service import EvaluationFilter, EvaluationService, Options
from app.log.service import LogService
from app.settings import EvaluationSettings
from app.store.database import Database
from app.store.ids import random_bytes
from layers.errors import DependencyMalformed
from layers.model import Finding, LayerName
from layers.ports import LayerInput, System
from layers.profile import SystemProfile
from layers.provenance import Recorder
from layers.provenance import Stage as Kept
from tests.evaluations import DOUBT, gives, judged, raises

pytestmark = pytest.mark.anyio

PRIVATE = "Corner-Books-of-Jane-Doe"
ALL = [stage.value for stage in Kept]
REQUEST = EvaluateRequest.model_validate(
    {"id": "1", "system": "s", "raw_output": {"note": PRIVATE}, "label": "high", "confidence": 0.3}
)
NAMES = LayerName


class Held:
    """A judge that answers when it is let."""

    def __init__(self) -> None:
        self.asked, self.go_on = anyio.Event(), anyio.Event()

    async def __call__(self, _item: LayerInput) -> Finding:
        self.asked.set()
        await self.go_on.wait()
        return judged()


async def service_of(database: Database, folder: Path, judge: object = None) -> EvaluationService:
    specs = {name: LayerSpec(None, 60, "1") for name in LayerName}
    specs[LayerName.HEURISTICS] = LayerSpec(gives(DOUBT), 60, "1")
    specs[LayerName.JUDGE] = LayerSpec(judge or gives(judged()), 60, "1")  # type: ignore[arg-type]
    log = await LogService.open(database, folder / "log.key")
    options = Options(new_recorder=lambda: Recorder(random_bytes), ledger=log)
    return EvaluationService(
        database,
        {"s": System(SystemProfile(name="s", labels=("low", "high")))},
        Evaluator(specs, request_timeout=75),
        EvaluationSettings(audit_rate=0),
        options,
    )


async def stored(database: Database) -> bytes:
    """All that the tables of evaluations hold, as one text."""
    return await database.read(
        lambda conn: b"".join(
            bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
            for table in ("evaluations", "accepted_work", "provenance_stages")
            for row in conn.execute(text(f"SELECT * FROM {table}"))  # noqa: S608 - names from above
            for value in row
        )
    )


async def check_gone(service: EvaluationService, database: Database, work_id: str) -> None:
    assert PRIVATE.encode() not in await stored(database)
    state = await service.get(work_id)
    assert isinstance(state, Accepted)
    assert state.error is not None
    assert (state.status, state.error.kind) == ("failed", "erased")


@pytest.mark.parametrize("stages", [["input"], ALL], ids=["input", "all"])
async def test_what_waits_fails_as_erased(database: Database, tmp_path: Path, stages: list[str]) -> None:
    service = await service_of(database, tmp_path)
    work_id = await service.accept(REQUEST)
    erased = await service.erase(work_id, stages)
    assert (erased.evaluation_id, erased.revisions, erased.n_erased) == (work_id, (), 1)
    await service.drain()
    await check_gone(service, database, work_id)
    assert (await service.erase(work_id, stages)).n_erased == 0


@pytest.mark.parametrize("fresh", [False, True])
async def test_what_is_being_done_is_not_stored(database: Database, tmp_path: Path, *, fresh: bool) -> None:
    """The layers run to their end, and what they found goes nowhere."""
    judge = Held()
    service = await service_of(database, tmp_path, judge)
    work_id = await service.accept(REQUEST, fresh=fresh)
    async with anyio.create_task_group() as group:
        group.start_soon(service.drain)
        await judge.asked.wait()
        assert (await service.erase(work_id, ALL)).n_erased == 1
        judge.go_on.set()
    await check_gone(service, database, work_id)


async def test_who_asked_for_the_same_gets_an_answer_of_his_own(database: Database, tmp_path: Path) -> None:
    """He waited for the work that was erased; his own request was not."""
    judge, answers = Held(), []
    service = await service_of(database, tmp_path, judge)
    work_id = await service.accept(REQUEST)

    async def ask() -> None:
        answers.append(await service.evaluate(REQUEST))

    async with anyio.create_task_group() as group:
        group.start_soon(service.drain)
        await judge.asked.wait()
        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        await service.erase(work_id, ALL)
        judge.go_on.set()
    (answer,) = answers
    assert answer.evaluation_id != work_id
    assert len((await service.list(EvaluationFilter())).items) == 1


@pytest.mark.parametrize("accepted", [False, True])
async def test_a_next_revision_of_what_was_erased_is_not_stored(
    database: Database, tmp_path: Path, *, accepted: bool
) -> None:
    """Mending it was under way: who asked for that gets an evaluation of his own."""
    down = await service_of(database, tmp_path, raises(DependencyMalformed("judge", "x")))
    first = await down.evaluate(REQUEST)
    assert first.degraded
    judge = Held()
    service = await service_of(database, tmp_path, judge)
    work_id = await service.accept(REQUEST) if accepted else None
    async with anyio.create_task_group() as group:
        group.start_soon(service.drain if accepted else lambda: service.evaluate(REQUEST))
        await judge.asked.wait()
        await service.erase(first.evaluation_id, ["input", "verdict"])
        judge.go_on.set()
    records = [json.loads(item) for item in (await service.list(EvaluationFilter())).items]
    assert {record["evaluation_id"]: (record["revision"], record["erased"]) for record in records} == {
        first.evaluation_id: (1, True),
        next(r["evaluation_id"] for r in records if not r["erased"]): (1, False),
    }
    assert work_id is None or work_id in {record["evaluation_id"] for record in records}


async def test_erased_work_mends_nothing(database: Database, tmp_path: Path) -> None:
    """Nor does it leave its data as the next revision of another's evaluation."""
    down = await service_of(database, tmp_path, raises(DependencyMalformed("judge", "x")))
    first = await down.evaluate(REQUEST)
    judge = Held()
    service = await service_of(database, tmp_path, judge)
    work_id = await service.accept(REQUEST)
    async with anyio.create_task_group() as group:
        group.start_soon(service.drain)
        await judge.asked.wait()
        await service.erase(work_id, ["input"])
        judge.go_on.set()
    shown = await service.get(first.evaluation_id)
    assert not isinstance(shown, Accepted)
    assert shown.revision == 1


async def test_an_id_that_shows_anothers_evaluation_erases_that_one(database: Database, tmp_path: Path) -> None:
    """Work that found its answer stored leads to it."""
    service = await service_of(database, tmp_path)
    ids = [await service.accept(REQUEST) for _ in range(2)]
    await service.drain()
    erased = await service.erase(ids[1], ["input", "verdict", "evidence"])
    shown = await service.get(ids[0])
    assert not isinstance(shown, Accepted)
    assert erased.evaluation_id == shown.evaluation_id
    assert shown.erased


async def test_what_waits_has_an_input_and_nothing_else(database: Database, tmp_path: Path) -> None:
    service = await service_of(database, tmp_path)
    work_id = await service.accept(REQUEST)
    with pytest.raises(Conflict):
        await service.erase(work_id, ["verdict"])
    for stages, revision in ((["input", "odd"], None), (["input"], 1)):
        with pytest.raises(NotFound):
            await service.erase(work_id, stages, revision)
    await service.drain()
    assert not isinstance(await service.get(work_id), Accepted)
