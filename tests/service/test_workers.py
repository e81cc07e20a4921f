"""Several processes on one PostgreSQL share runs, rescue each other's work, and keep each other from doing harm."""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import anyio
import anyio.lowlevel
import pytest
from sqlalchemy import Connection, select

from app.errors import Conflict
from app.runs.chunks import ChunkStore
from app.runs.fleet import Fleet
from app.runs.model import BUSY, RecordFilters, RunOptions, RunStatus
from app.runs.store import RunStore
from app.runs.tables import records, run_chunks, workers
from app.settings import RunSettings, StoreSettings
from app.store.database import Database
from layers.errors import DependencyRejected, DependencyUnavailable
from layers.model import EvalExample, EvalPrediction
from layers.ports import System
from tests.postgres import PostgresServer
from tests.runs import PROFILE, Scripted, answer_high, dataset, ended, prediction, reached, request, run_service

pytestmark = pytest.mark.anyio

SMALL = RunSettings(chunk_size=10, concurrency=2)
HASTY = RunSettings(chunk_size=10, concurrency=2, worker_lease=0.5)


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.migrated_database() as lent:
        yield lent


@pytest.fixture
async def shared(url: str) -> AsyncIterator[tuple[Database, Database]]:
    """One database, as two processes have it open."""
    both = await Database.open(StoreSettings(url=url)), await Database.open(StoreSettings(url=url))
    yield both
    for database in both:
        await database.close()


async def slowly(example: EvalExample) -> EvalPrediction:
    await anyio.sleep(0.01)
    return await answer_high(example)


async def attempts_of(database: Database) -> list[tuple[int, int, str]]:
    query = select(records.c.position, records.c.attempt, records.c.status).order_by(
        records.c.position, records.c.attempt
    )
    return [tuple(row) for row in await database.read(lambda conn: conn.execute(query).all())]


# --- sharing ----------------------------------------------------------------------------------------------------------


async def test_two_processes_share_one_run(shared: tuple[Database, Database]) -> None:
    """Each asks a part, no example is asked twice, and the last one says how it ended."""
    one, two = Scripted(slowly), Scripted(slowly)
    async with run_service(shared[0], one, SMALL, "one") as first, run_service(shared[1], two, SMALL, "two"):
        run = await ended(first, (await first.submit(request(), dataset(400))).run_id)
        rows = await attempts_of(shared[0])
    assert (run.status, run.progress.n_scored) == (RunStatus.SUCCEEDED, 400)
    assert set((one.asked + two.asked).values()) == {1}
    assert min(one.asked.total(), two.asked.total()) > 100
    assert [position for position, _, _ in rows] == list(range(400))


async def test_a_process_that_does_not_work_takes_runs_for_those_that_do(shared: tuple[Database, Database]) -> None:
    """The API may run without workers: its runs wait, steered as ever, until one comes."""
    idle, worker = Scripted(), Scripted()
    async with run_service(shared[0], idle, SMALL, None) as api:
        run_id = (await api.submit(request(), dataset(30), idempotency_key="k")).run_id
        paused = await api.pause((await api.submit(request(), dataset(5))).run_id)
        assert (await api.get(run_id)).status is RunStatus.QUEUED
        async with run_service(shared[1], worker, SMALL, "worker"):
            assert (await ended(api, run_id)).status is RunStatus.SUCCEEDED
            assert (await api.get(paused.run_id)).status is RunStatus.PAUSED
            await api.resume(paused.run_id)
            assert (await ended(api, paused.run_id)).status is RunStatus.SUCCEEDED
    assert (idle.asked.total(), worker.asked.total()) == (0, 35)


@pytest.mark.parametrize(
    ("steer", "status"), [("cancel", RunStatus.CANCELLED), ("pause", RunStatus.PAUSED)], ids=["cancel", "pause"]
)
async def test_a_run_is_stopped_wherever_it_is_worked_on(shared: tuple[Database, Database], steer, status) -> None:
    """Within a second of the word, however far away; what was being asked is recorded, and nobody holds it back."""
    one, two, started = Scripted(slowly), Scripted(slowly), anyio.Event()

    async def telling(example: EvalExample) -> EvalPrediction:
        if one.asked and two.asked:
            started.set()
        return await slowly(example)

    one.script = two.script = telling
    async with run_service(shared[0], one, SMALL, "one") as first, run_service(shared[1], two, SMALL, "two") as second:
        run_id = (await first.submit(request(), dataset(5000))).run_id
        with anyio.fail_after(10):
            await started.wait()
        await getattr(second, steer)(run_id)
        run = await reached(first, run_id, status)
        with anyio.fail_after(5):
            while await ChunkStore(shared[0]).owners():  # noqa: ASYNC110 - as another process has to
                await anyio.sleep(0.01)
        asked = (one.asked + two.asked).total()
        assert len(await attempts_of(shared[0])) == asked < 5000
    assert run.finished_at is not None or status is RunStatus.PAUSED


async def test_a_process_without_the_system_leaves_its_runs_to_others(shared: tuple[Database, Database]) -> None:
    async with (
        run_service(shared[0], System(PROFILE, why_closed="not here"), SMALL, "poor"),
        run_service(shared[1], Scripted(), SMALL, None) as api,
    ):
        run_id = (await api.submit(request(), dataset(3))).run_id
        await anyio.lowlevel.checkpoint()
        async with run_service(shared[1], Scripted(), SMALL, "able"):
            assert (await ended(api, run_id)).status is RunStatus.SUCCEEDED


async def test_an_unshared_process_and_the_others_leave_each_others_runs_alone(
    shared: tuple[Database, Database],
) -> None:
    """Its systems may be elsewhere, so nobody may ask for it."""
    mine, theirs = Scripted(slowly), Scripted(slowly)
    alone = SMALL.model_copy(update={"shared": False})
    async with run_service(shared[0], mine, alone, "alone") as own, run_service(shared[1], theirs, SMALL, "x") as all_:
        first = (await own.submit(request(), dataset(60))).run_id
        second = (await all_.submit(request(), dataset(70))).run_id
        await ended(own, first)
        await ended(own, second)
    assert (mine.asked.total(), theirs.asked.total()) == (60, 70)


# --- rescue -----------------------------------------------------------------------------------------------------------


class Frozen(Scripted):
    """A system that answers nobody after the first `free` until it is thawed: its process seems dead."""

    def __init__(self, free: int) -> None:
        super().__init__(self._answer)
        self.thaw, self.stuck = anyio.Event(), anyio.Event()
        self._free = free

    async def _answer(self, example: EvalExample) -> EvalPrediction:
        if self.asked.total() > self._free:
            self.stuck.set()
            await self.thaw.wait()
        return prediction("low", id=example.id)


async def test_a_silent_process_loses_its_chunks_and_can_do_no_harm(
    shared: tuple[Database, Database], caplog: pytest.LogCaptureFixture
) -> None:
    """After its lease another asks what it had not recorded; its late answers are refused, and it asks no more."""
    caplog.set_level(logging.WARNING)  # whatever level other tests left
    frozen, living = Frozen(free=5), Scripted()
    async with run_service(shared[0], frozen, HASTY, "frozen") as slow:
        run_id = (await slow.submit(request(), dataset(40))).run_id
        with anyio.fail_after(10):
            await frozen.stuck.wait()
        await slow._crew.rounds.end()  # no more signs of life
        async with run_service(shared[1], living, HASTY, "living") as other:
            run = await ended(other, run_id)
            assert (run.status, run.progress.n_scored) == (RunStatus.SUCCEEDED, 40)
            before, asked = await attempts_of(shared[1]), frozen.asked.total()
            frozen.thaw.set()
            await anyio.sleep(0.1)
            assert await attempts_of(shared[1]) == before
            low = (await other.records(run_id, RecordFilters(scored_label="low"))).items
    assert any(re.fullmatch(r"silent processes: 1; chunks freed: [1-9]", line) for line in caplog.messages)
    assert len(before) == 40
    assert len(low) == 40 - living.asked.total() <= 5
    assert frozen.asked.total() == asked, "it asked on about a chunk that it had lost"


async def test_who_was_taken_for_dead_comes_back(shared: tuple[Database, Database]) -> None:
    """With its next sign of life it is one of them again, with nothing in its hands."""
    fleet, others = Fleet(shared[0], lease=1.0, code_version="1"), Fleet(shared[1], lease=1.0, code_version="1")
    me = await fleet.join("seat-7")
    await others.join("seat-8")
    assert [(worker.worker_id, worker.expired) for worker in await others.others()] == [(me, False)]
    await others.forget([me])
    assert await others.others() == []
    await fleet.beat()
    assert [worker.worker_id for worker in await others.others()] == [me]
    await fleet.leave()
    assert await others.others() == []


async def test_a_chunk_on_a_name_that_nobody_goes_by_is_freed(shared: tuple[Database, Database]) -> None:
    """Whoever claimed it died before anybody heard of it."""
    async with run_service(shared[0], Scripted(), HASTY, None) as api:
        run_id = (await api.submit(request(), dataset(20))).run_id
        stored = await api._stored(run_id)
        assert await ChunkStore(shared[0]).claim(stored, "ghost", 10, 1) is not None
        async with run_service(shared[1], Scripted(), HASTY, "worker"):
            assert (await ended(api, run_id)).progress.n_scored == 20


async def test_whoever_leaves_hands_over_at_once(shared: tuple[Database, Database]) -> None:
    """A process that is told to stop needs nobody to wait for its lease."""
    frozen, patient = Frozen(free=3), SMALL.model_copy(update={"worker_lease": 3600.0})
    async with run_service(shared[1], Scripted(), patient, None) as api:
        async with run_service(shared[0], frozen, patient, "leaving"):
            run_id = (await api.submit(request(), dataset(30))).run_id
            with anyio.fail_after(10):
                await frozen.stuck.wait()
        async with run_service(shared[0], Scripted(), patient, "coming"):
            assert (await ended(api, run_id)).status is RunStatus.SUCCEEDED
        # The run has ended before the last of its chunks is put away, and the one that came leaves after that.
        with anyio.fail_after(10):
            while (left := await shared[0].read(_left)) != ([], [None]):  # noqa: ASYNC110 - another service's doing
                await anyio.sleep(0.01)
    assert left == ([], [None])  # the API process alone


def _left(conn: Connection) -> tuple[list[int], list[str | None]]:
    """Chunks that somebody has to do, and who works."""
    chunks = conn.execute(select(run_chunks.c.start)).scalars().all()
    return list(chunks), list(conn.execute(select(workers.c.executor)).scalars().all())


# --- turns ------------------------------------------------------------------------------------------------------------


async def test_the_highest_priority_goes_first(shared: tuple[Database, Database]) -> None:
    """A run that comes later and is more urgent is done before the one that was under way goes on."""
    order: list[str] = []

    async def noting(example: EvalExample) -> EvalPrediction:
        order.append(example.expected_label)
        return await slowly(example)

    async with run_service(shared[0], Scripted(noting), SMALL) as service:
        slow = (await service.submit(request(), dataset(300, "routine"))).run_id
        await reached(service, slow, RunStatus.RUNNING)
        urgent = (await service.submit(request(options=RunOptions(priority=5)), dataset(60, "urgent"))).run_id
        await ended(service, urgent)
        assert (await service.get(slow)).status in {RunStatus.QUEUED, RunStatus.RUNNING}
        await ended(service, slow)
    began, through = order.index("urgent"), len(order) - 1 - order[::-1].index("urgent")
    between = [label for label in order[began : through + 1] if label == "routine"]
    assert len(between) <= 40, "what is being asked ends, nothing more is begun"
    assert through < 250


async def test_a_run_in_the_middle_of_a_long_chunk_makes_way_for_a_more_urgent_one(database: Database) -> None:
    """It stops within a second, and at no time do more runs ask than may; nothing is asked twice."""
    asking, most = Counter[str](), 0

    async def counting(example: EvalExample) -> EvalPrediction:
        nonlocal most
        asking[example.expected_label] += 1
        most = max(most, len(+asking))
        await anyio.sleep(0.01)
        asking[example.expected_label] -= 1
        return await answer_high(example)

    system = Scripted(counting)
    settings = RunSettings(chunk_size=500, concurrency=2, per_system=1)
    async with run_service(database, system, settings) as service:
        slow = (await service.submit(request(), dataset(600, "routine"))).run_id
        await reached(service, slow, RunStatus.RUNNING)
        urgent = (await service.submit(request(options=RunOptions(priority=5)), dataset(20, "urgent"))).run_id
        assert (await ended(service, urgent)).status is RunStatus.SUCCEEDED
        run = await service.get(slow)
        assert run.progress.n_scored < 550
        assert (await ended(service, slow)).progress.n_scored == 600
    assert most == 1
    assert set(system.asked.values()) <= {1, 2}  # both datasets count from the same id on


async def test_at_most_so_many_runs_ask_one_system(shared: tuple[Database, Database]) -> None:
    """The others are queued, and each goes on when it is its turn."""
    at_once: set[str] = set()
    most = 0

    async def counting(example: EvalExample) -> EvalPrediction:
        nonlocal most
        at_once.add(example.expected_label)
        most = max(most, len(at_once))
        await anyio.sleep(0.02)
        at_once.discard(example.expected_label)
        return await answer_high(example)

    settings = RunSettings(concurrency=1, per_system=2)
    async with run_service(shared[0], Scripted(counting), settings) as service:
        ids = [(await service.submit(request(), dataset(6, f"run {n}"))).run_id for n in range(5)]
        for run_id in ids:
            assert (await ended(service, run_id)).status is RunStatus.SUCCEEDED
    assert most == 2


# --- retry ------------------------------------------------------------------------------------------------------------


async def test_retrying_asks_only_what_failed_as_a_new_attempt(database: Database) -> None:
    broken = True

    async def sometimes(example: EvalExample) -> EvalPrediction:
        if broken and example.input["n"] % 4 == 0:
            raise DependencyRejected("tested", "rejected")
        return await answer_high(example)

    system = Scripted(sometimes)
    async with run_service(database, system, SMALL) as service:
        first = await ended(service, (await service.submit(request(), dataset(20))).run_id)
        assert (first.status, first.progress.n_failed, first.attempts) == (RunStatus.SUCCEEDED, 5, 1)
        broken = False
        again = await service.retry(first.run_id)
        assert (again.attempts, again.finished_at) == (2, None)
        run = await ended(service, first.run_id)
        assert (run.status, run.progress.n_scored, run.progress.n_failed) == (RunStatus.SUCCEEDED, 20, 0)
        report = await service.report(first.run_id)
        with pytest.raises(Conflict, match="nothing to retry"):
            await service.retry(first.run_id)
    assert (report.n_scored, report.n_failed) == (20, 0)
    assert {name: n for name, n in system.asked.items() if n > 1} == {f"e{n}": 2 for n in range(0, 20, 4)}
    rows = await attempts_of(database)
    assert len(rows) == 25
    assert (0, 1, "failed") in rows
    assert (0, 2, "scored") in rows


async def test_a_run_that_gave_up_can_be_retried_once_its_system_is_back(database: Database) -> None:
    """What failed before is not held against the new attempt."""
    down = True

    async def system(example: EvalExample) -> EvalPrediction:
        if down:
            raise DependencyUnavailable("tested", "refused")
        return await answer_high(example)

    async with run_service(database, Scripted(system), SMALL) as service:
        run_id = (await service.submit(request(), dataset(60))).run_id
        assert (await ended(service, run_id)).status is RunStatus.FAILED
        with pytest.raises(Conflict, match="failed can't be paused"):
            await service.pause(run_id)
        down = False
        await service.retry(run_id)
        run = await ended(service, run_id)
    assert (run.status, run.failure, run.progress.n_scored) == (RunStatus.SUCCEEDED, None, 60)


async def test_a_run_that_goes_on_can_not_be_retried(database: Database) -> None:
    go = asyncio.Event()

    async def held(example: EvalExample) -> EvalPrediction:
        await go.wait()
        return await answer_high(example)

    async with run_service(database, Scripted(held), SMALL) as service:
        run_id = (await service.submit(request(), dataset(3))).run_id
        with pytest.raises(Conflict, match="can't be retried"):
            await service.retry(run_id)
        go.set()
        await ended(service, run_id)


async def test_what_is_left_of_an_earlier_attempt_has_no_say(database: Database) -> None:
    """A chunk of the attempt that gave up ends when the next attempt has begun."""
    async with run_service(database, Scripted(), executor=None) as service:
        run_id = (await service.submit(request(), dataset(3))).run_id
        runs, first = RunStore(database), (await service._stored(run_id)).workflow_id
        assert await runs.move(run_id, RunStatus.FAILED, only_from=BUSY, stretch=first)
        await service.retry(run_id)
        assert not await runs.move(run_id, RunStatus.FAILED, only_from=BUSY, stretch=first)
        again = (await service._stored(run_id)).workflow_id
        assert await runs.move(run_id, RunStatus.RUNNING, only_from=BUSY, stretch=f"{again}:worker:7")
