"""Workers that die, vanish or are replaced by newer code: nothing is lost, nothing is done twice."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import anyio
import pytest

from app.runs.dbos_engine import DbosEngine
from app.runs.model import RunOptions, RunStatus
from app.runs.start import open_runs
from app.settings import RunSettings, StoreSettings
from app.store.database import Database
from app.store.engines import locate
from layers.model import EvalExample, EvalPrediction
from tests.postgres import PostgresServer
from tests.runs import Scripted, answer_high, dataset, ended, reached, request, run_service
from tests.service.kills import IN_FLIGHT, Crew, careful, survive, taking_runs

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_kills_of_any_worker_or_of_all_lose_and_double_nothing(
    store_settings: StoreSettings, tmp_path: Path
) -> None:
    """Five seeded kills among three workers."""
    (await survive(store_settings.url, tmp_path, kills=5, seed=20_261)).check()


@pytest.mark.slow
async def test_a_living_worker_rescues_a_dead_ones_work_within_30_seconds(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """With the settings as they come, and nobody started again."""
    size = 600
    with postgres.migrated_database() as url:
        crew = Crew(url, tmp_path, size=2, lease=RunSettings().worker_lease)
        async with taking_runs(url) as (_, service):
            run_id = (await service.submit(careful(), dataset(size))).run_id
            try:
                crew.fill()
                await crew.asked_about(300)
                began = time.monotonic()
                assert crew.kill(random.Random(2)) == 1
                with anyio.fail_after(30):
                    await reached(service, run_id, RunStatus.SUCCEEDED, seconds=30)
                assert time.monotonic() - began < 30
            finally:
                crew.end()
    assert len(set(crew.asked())) == size
    assert len(crew.asked()) <= size + IN_FLIGHT


# --- rolling deploys --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [("runs-0", None), (None, "runs-2")], ids=["forward", "back"])
async def test_what_other_code_began_is_finished(store_settings: StoreSettings, before, after) -> None:
    """A new version goes on with what an old one left, and the other way round, without asking anything again."""
    stuck = anyio.Event()

    async def until_20(example: EvalExample) -> EvalPrediction:
        if example.input["n"] >= 20:
            stuck.set()
            await anyio.sleep_forever()
        return await answer_high(example)

    def engine(version: str | None) -> DbosEngine:
        url = locate(store_settings.url).url
        return DbosEngine(url) if version is None else DbosEngine(url, version=version)

    old, new, small = Scripted(until_20), Scripted(), RunSettings(chunk_size=10)
    database = await Database.open(store_settings)
    async with open_runs(database, {"tested": old.as_system()}, small, engine=engine(before)) as service:
        run_id = (await service.submit(request(options=RunOptions(concurrency=4)), dataset(60))).run_id
        with anyio.fail_after(20):
            await stuck.wait()
    async with open_runs(database, {"tested": new.as_system()}, small, engine=engine(after)) as service:
        run = await ended(service, run_id)
    await database.close()
    assert (run.status, run.progress.n_scored) == (RunStatus.SUCCEEDED, 60)
    again = {name for name, n in (old.asked + new.asked).items() if n > 1}
    assert len(again) <= 4 + 1, "more than what was in flight was asked again"
    assert Counter(new.asked).total() <= 60 - 15


async def test_workers_of_two_versions_share_a_run(postgres: PostgresServer) -> None:
    """While one version replaces the other both work, on the same runs."""

    async def slowly(example: EvalExample) -> EvalPrediction:
        await anyio.sleep(0.01)
        return await answer_high(example)

    old, new = Scripted(slowly), Scripted(slowly)
    settings = RunSettings(chunk_size=10, concurrency=2)
    with postgres.migrated_database() as url:
        first, second = await Database.open(StoreSettings(url=url)), await Database.open(StoreSettings(url=url))
        engine = DbosEngine(locate(url).url, version="runs-0")
        async with (
            open_runs(first, {"tested": old.as_system()}, settings, engine=engine) as service,
            run_service(second, new, settings, "newer"),
        ):
            run = await ended(service, (await service.submit(request(), dataset(300))).run_id)
        await first.close()
        await second.close()
    assert run.progress.n_scored == 300
    assert set((old.asked + new.asked).values()) == {1}
    assert min(old.asked.total(), new.asked.total()) > 50
