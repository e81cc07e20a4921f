"""How many examples a run asks about at once, as its system sees it."""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from app.runs.adaptive import FIRST
from app.runs.model import RunOptions, RunStatus
from app.settings import StoreSettings
from app.store.database import Database
from layers.errors import DependencyUnavailable
from layers.model import EvalExample, EvalPrediction
from layers.ports import System
from tests.runs import PROFILE, Scripted, answer_high, dataset, ended, request, run_service

pytestmark = pytest.mark.anyio

CAP = 40


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/store.db"))
    yield opened
    await opened.close()


class Crowded:
    """A system that notes how many ask at once; it says "later" once, to its `throttle`-th caller."""

    def __init__(self, throttle: int | None = None) -> None:
        self.at_once: list[int] = []
        self._now = 0
        self._throttle = throttle

    async def __call__(self, example: EvalExample) -> EvalPrediction:
        self._now += 1
        self.at_once.append(self._now)
        try:
            if len(self.at_once) == self._throttle:
                raise DependencyUnavailable("tested", "rate_limited", retry_after=0.0)
            await anyio.sleep(0.005)
            return await answer_high(example)
        finally:
            self._now -= 1


async def run(database: Database, crowd: Crowded, size: int, system: System | None = None) -> None:
    options = RunOptions(concurrency=CAP)
    async with run_service(database, system or Scripted(crowd)) as service:
        run = await ended(service, (await service.submit(request(options=options), dataset(size))).run_id)
    assert (run.status, run.progress.n_scored) == (RunStatus.SUCCEEDED, size)


async def test_it_begins_carefully_and_grows_to_the_cap(database: Database) -> None:
    crowd = Crowded()
    await run(database, crowd, 600)
    assert max(crowd.at_once[:FIRST]) <= FIRST < max(crowd.at_once) <= CAP


async def test_it_backs_off_when_the_system_says_later(database: Database) -> None:
    """Half as many, and a few more with each round; the throttle is nobody's result."""
    crowd = Crowded(throttle=400)
    await run(database, crowd, 600)
    before, after = max(crowd.at_once[:400]), statistics.median(crowd.at_once[400 + CAP : 400 + 2 * CAP])
    assert after < 0.75 * before


async def test_it_asks_no_more_at_once_than_a_rate_limit_can_use(database: Database) -> None:
    """One a second, though each answer takes milliseconds: one after the other will do."""
    crowd = Crowded()
    system = System(PROFILE, open=lambda _driver: Scripted(crowd), outlook=float)
    await run(database, crowd, 200, system)
    assert max(crowd.at_once[:FIRST]) > 2
    assert set(crowd.at_once[-100:]) == {1}
