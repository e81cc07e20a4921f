"""Kill workers at seeded moments, one or all, and look whether anything was lost, doubled or asked again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from sqlalchemy import select

from app.runs.model import TERMINAL, RunOptions, RunRequest, RunStatus
from app.runs.service import RunService
from app.runs.session import SHARE_BEHIND
from app.runs.tables import dataset_examples, records, runs
from app.settings import StoreSettings
from app.store.database import Database
from tests.runs import Scripted, dataset, request, run_service
from tests.service.worker_process import CONCURRENCY

IN_FLIGHT = CONCURRENCY + CONCURRENCY // SHARE_BEHIND
"""Being asked, or answered and on its way to the disk."""

EXAMPLES_PER_KILL = 500


@dataclass(frozen=True)
class Survived:
    """What came of it. `again` = questions beyond one for each example."""

    size: int
    n_records: int
    n_examples: int
    killed: int
    again: int
    asked_although_done: frozenset[str]

    def check(self) -> None:
        """Raise `AssertionError` naming what did not survive."""
        assert self.n_examples == self.size, f"{self.size - self.n_examples} records are lost"
        assert self.n_records == self.size, f"{self.n_records - self.size} records are doubled"
        assert not self.asked_although_done, f"finished examples were asked again: {self.asked_although_done}"
        assert self.again <= self.killed * IN_FLIGHT, "more than what was in flight was asked again"


class Crew:
    """Worker processes on one store, and the log of what they asked."""

    def __init__(self, url: str, folder: Path, *, size: int, lease: float) -> None:
        self._url, self._size, self._lease = url, size, lease
        self.log = folder / "asked.log"
        self._processes: list[subprocess.Popen[bytes]] = []

    def fill(self) -> None:
        """Start as many as are missing."""
        while len(self._processes) < self._size:
            command = [sys.executable, "-W", "ignore", "-m", "tests.service.worker_process"]
            self._processes.append(subprocess.Popen([*command, self._url, str(self.log), str(self._lease)]))

    def kill(self, rng: random.Random) -> int:
        """Kill any of them, or all; how many that were."""
        victims = list(self._processes) if rng.random() < 0.3 else [rng.choice(self._processes)]
        for victim in victims:
            os.kill(victim.pid, signal.SIGKILL)
        for victim in victims:
            victim.wait()
            self._processes.remove(victim)
        return len(victims)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()

    def asked(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    async def asked_about(self, at_least: int) -> None:
        with anyio.fail_after(120):
            while len(self.asked()) < at_least:
                assert all(process.poll() is None for process in self._processes), "one ended by itself"
                await anyio.sleep(0.02)


def careful() -> RunRequest:
    """A run that asks so many at once on each worker as `IN_FLIGHT` assumes."""
    return request(options=RunOptions(concurrency=CONCURRENCY))


@asynccontextmanager
async def taking_runs(url: str) -> AsyncIterator[tuple[Database, RunService]]:
    """A process, this one, that takes runs and does not work on them."""
    database = await Database.open(StoreSettings(url=url))
    async with run_service(database, Scripted(), executor=None) as service:
        yield database, service
    await database.close()


async def survive(url: str, folder: Path, *, kills: int, seed: int, workers: int = 3, lease: float = 3.0) -> Survived:
    """One run under so many kills."""
    rng, size = random.Random(seed), EXAMPLES_PER_KILL * (kills + 1)
    crew = Crew(url, folder, size=workers, lease=lease)
    killed, asked_again = 0, set[str]()
    async with taking_runs(url) as (database, service):
        run_id = (await service.submit(careful(), dataset(size))).run_id
        try:
            watched: list[tuple[frozenset[str], int]] = []
            for number in range(kills):
                crew.fill()
                low = number * EXAMPLES_PER_KILL
                await crew.asked_about(rng.randrange(low + 1, low + EXAMPLES_PER_KILL))
                killed += crew.kill(rng)
                watched.append((await _finished(database), len(crew.asked())))
            crew.fill()
            await _ended(database, run_id, 60.0 + size / 50)
        finally:
            crew.end()
        questions = crew.asked()
        for done, since in watched:
            asked_again |= done & set(questions[since:])
        n_records, n_examples = await _counts(database)
    counted = Counter(questions)
    again = counted.total() - len(counted)
    return Survived(size, n_records, n_examples, killed, again, frozenset(asked_again))


async def _ended(database: Database, run_id: str, patience: float) -> None:
    query = select(runs.c.status).where(runs.c.run_id == run_id)
    with anyio.fail_after(patience):
        while (status := await database.read(lambda conn: conn.scalar(query))) not in TERMINAL:  # noqa: ASYNC110
            await anyio.sleep(0.1)
    assert status == RunStatus.SUCCEEDED, status


async def _finished(database: Database) -> frozenset[str]:
    query = select(dataset_examples.c.example_id).join(records, dataset_examples.c.position == records.c.position)
    return frozenset(await database.read(lambda conn: list(conn.scalars(query))))


async def _counts(database: Database) -> tuple[int, int]:
    rows = await database.read(lambda conn: conn.execute(select(records.c.position)).all())
    return len(rows), len({row.position for row in rows})
