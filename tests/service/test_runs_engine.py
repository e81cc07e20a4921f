"""Runs on the real engine: they survive restarts and kills, and let go quickly."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from sqlalchemy import create_engine, make_url, select, text

from app.runs.dbos_engine import DbosEngine, engine_file
from app.runs.model import RunFilters, RunOptions, RunStatus
from app.runs.session import SHARE_BEHIND
from app.runs.start import open_runs
from app.runs.tables import dataset_examples, records
from app.settings import RunSettings, StoreSettings
from app.store.database import Database
from layers.model import EvalExample, EvalPrediction
from tests.runs import Scripted, answer_high, dataset, ended, request
from tests.service.run_process import CONCURRENCY

pytestmark = pytest.mark.anyio

SMALL = RunSettings(chunk_size=10)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def forget_engine(url: str) -> None:
    file = Path(engine_file(str(make_url(url).database)))
    for path in file.parent.glob(f"{file.name}*"):
        path.unlink()


async def open_database(url: str) -> Database:
    return await Database.open(StoreSettings(url=url))


async def test_a_run_succeeds_on_every_database(database: Database) -> None:
    """In chunks, on the loop that launched the engine, each example once."""
    loop, loops = asyncio.get_running_loop(), set()

    async def system(example: EvalExample) -> EvalPrediction:
        loops.add(asyncio.get_running_loop())
        return await answer_high(example)

    scripted = Scripted(system)
    async with open_runs(database, {"tested": scripted.as_system()}, SMALL) as service:
        run = await ended(service, (await service.submit(request(), dataset(35))).run_id)
    assert (run.status, run.progress.n_scored) == (RunStatus.SUCCEEDED, 35)
    assert set(scripted.asked.values()) == {1}
    assert loops == {loop}


async def test_closing_in_the_middle_is_quick_and_the_next_start_goes_on(url: str) -> None:
    """A slow system does not hold up the shutdown; only what was in flight is asked again."""
    slow, started = anyio.Event(), anyio.Event()

    async def stuck(example: EvalExample) -> EvalPrediction:
        if example.input["n"] >= 25:
            started.set()
            await slow.wait()
        return await answer_high(example)

    first, second = Scripted(stuck), Scripted()
    database = await open_database(url)
    async with open_runs(database, {"tested": first.as_system()}, SMALL) as service:
        options = RunOptions(concurrency=4)
        run_id = (await service.submit(request(options=options), dataset(60))).run_id
        await started.wait()
        begin = time.monotonic()
    assert time.monotonic() - begin < 3
    await database.close()

    database = await open_database(url)
    async with open_runs(database, {"tested": second.as_system()}, SMALL) as service:
        assert (await service.get(run_id)).status is RunStatus.RUNNING
        run = await ended(service, run_id)
    await database.close()
    assert (run.status, run.progress.n_scored) == (RunStatus.SUCCEEDED, 60)
    again = [name for name in second.asked if name in first.asked]
    assert len(again) <= 4
    assert set((first.asked + second.asked).values()) <= {1, 2}


async def test_a_lost_engine_file_loses_no_run(url: str) -> None:
    """The store is what is true; the engine is told anew."""
    started, first, second = anyio.Event(), Scripted(), Scripted()

    async def stuck(example: EvalExample) -> EvalPrediction:
        if first.asked.total() > 12:
            started.set()
            await anyio.sleep_forever()
        return await answer_high(example)

    first.script = stuck
    options = RunOptions(concurrency=3)
    database = await open_database(url)
    async with open_runs(database, {"tested": first.as_system()}, SMALL) as service:
        run_id = (await service.submit(request(options=options), dataset(30))).run_id
        await started.wait()
    forget_engine(url)
    async with open_runs(database, {"tested": second.as_system()}, SMALL) as service:
        assert (await ended(service, run_id)).status is RunStatus.SUCCEEDED
    await database.close()
    assert 30 <= (first.asked + second.asked).total() <= 33


async def test_a_workflow_that_ended_without_its_run_is_begun_anew(url: str) -> None:
    """Whatever went wrong in the engine, an unfinished run is worked on after the next start."""
    database = await open_database(url)
    held = anyio.Event()

    async def stuck(_: EvalExample) -> EvalPrediction:
        held.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with open_runs(database, {"tested": Scripted(stuck).as_system()}, SMALL) as service:
        run_id = (await service.submit(request(), dataset(5))).run_id
        await held.wait()
    engine = create_engine(f"sqlite:///{engine_file(str(make_url(url).database))}")
    with engine.begin() as conn:
        conn.execute(text("UPDATE workflow_status SET status = 'ERROR'"))
    engine.dispose()
    async with open_runs(database, {"tested": Scripted().as_system()}, SMALL) as service:
        assert (await ended(service, run_id)).status is RunStatus.SUCCEEDED
    await database.close()


async def test_a_paused_run_stays_paused_over_a_restart(url: str) -> None:
    database, held = await open_database(url), anyio.Event()

    async def slow(example: EvalExample) -> EvalPrediction:
        if example.input["n"] == 3:
            held.set()
            await anyio.sleep(0.05)
        return await answer_high(example)

    first, second = Scripted(slow), Scripted()
    async with open_runs(database, {"tested": first.as_system()}, SMALL) as service:
        run_id = (await service.submit(request(options=RunOptions(concurrency=1)), dataset(20))).run_id
        await held.wait()
        await service.pause(run_id)
    async with open_runs(database, {"tested": second.as_system()}, SMALL) as service:
        assert (await service.get(run_id)).status is RunStatus.PAUSED
        await service.resume(run_id)
        run = await ended(service, run_id)
    await database.close()
    assert (run.status, run.progress.n_scored) == (RunStatus.SUCCEEDED, 20)
    assert first.asked.total() < 20
    assert (first.asked + second.asked).total() <= 21


async def test_one_engine_at_a_time(url: str) -> None:
    """DBOS is a singleton; a second launch says so instead of taking over."""
    database = await open_database(url)
    async with open_runs(database, {"tested": Scripted().as_system()}, SMALL):
        with pytest.raises(RuntimeError, match="another run engine"):
            await DbosEngine(database.url).launch(lambda _id, _start: asyncio.sleep(0))
    await asyncio.to_thread(int)  # the loop's own threads work again
    await database.close()


# --- kill -9 ----------------------------------------------------------------------------------------------------------


def begin(url: str, log: Path, size: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.service.run_process", url, str(log), str(size)]
    )


def asked(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


async def asked_about(process: subprocess.Popen[bytes], log: Path, at_least: int) -> None:
    with anyio.fail_after(30):
        while len(asked(log)) < at_least:
            assert process.poll() is None, "it ended too early"
            await anyio.sleep(0.01)


async def kill_when(process: subprocess.Popen[bytes], log: Path, at_least: int) -> None:
    await asked_about(process, log, at_least)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


async def finished(url: str) -> set[str]:
    """The examples whose answer is on record."""
    database = await open_database(url)
    query = select(dataset_examples.c.example_id).join(records, dataset_examples.c.position == records.c.position)
    names = await database.read(lambda conn: set(conn.scalars(query)))
    await database.close()
    return names


async def survive(url: str, log: Path, size: int, kills: list[int]) -> None:
    """Kill the process whenever so many questions were asked; then the run ends with every example once on record."""
    for at_least in kills:
        await kill_when(begin(url, log, size), log, at_least)
        done, before = await finished(url), len(asked(log))
    process = begin(url, log, size)
    with anyio.fail_after(60):
        assert await anyio.to_thread.run_sync(process.wait) == 0
    questions = asked(log)
    assert not done & set(questions[before:]), "a finished example was asked again"
    in_flight = CONCURRENCY + CONCURRENCY // SHARE_BEHIND  # being asked, or answered and on its way to the disk
    assert len(questions) <= size + in_flight * len(kills), "more than what was in flight was asked again"
    assert len(await finished(url)) == size == len(set(questions))


async def test_a_killed_process_goes_on_where_it_was(url: str, tmp_path: Path) -> None:
    """SIGKILL in the middle: at most what was in flight is asked again."""
    await survive(url, tmp_path / "asked.log", 200, [90])


@pytest.mark.slow
async def test_a_process_killed_again_and_again_comes_to_the_end(url: str, tmp_path: Path) -> None:
    await survive(url, tmp_path / "asked.log", 1000, [5, 60, 300, 320, 700, 990])


@pytest.mark.slow
async def test_a_killed_process_goes_on_on_postgresql(postgres, tmp_path: Path) -> None:
    with postgres.migrated_database() as url:
        await survive(url, tmp_path / "asked.log", 400, [100, 250])


# --- several processes on one store -----------------------------------------------------------------------------------


async def test_a_living_process_keeps_its_runs_and_a_dead_ones_are_taken_over(url: str, tmp_path: Path) -> None:
    """A second process on the same store leaves the first one's run alone; after its death the run goes on."""
    log = tmp_path / "asked.log"
    other = begin(url, log, size := 3000)
    await asked_about(other, log, 20)
    mine = Scripted()
    database = await open_database(url)
    async with open_runs(database, {"tested": mine.as_system()}, SMALL) as service:
        await ended(service, (await service.submit(request(), dataset(3))).run_id)
        assert mine.asked.total() == 3
    await kill_when(other, log, 100)
    done = await finished(url)
    async with open_runs(database, {"tested": mine.as_system()}, SMALL) as service:
        for run in (await service.list(RunFilters())).items:
            assert (await ended(service, run.run_id)).status is RunStatus.SUCCEEDED
    await database.close()
    assert mine.asked.total() == 3 + size - (len(done))
