"""A process that is killed at any moment loses nothing that it had answered or accepted."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from app.evaluation.model import OnlineScoringResult
from app.settings import StoreSettings
from app.store.database import Database
from tests.evaluations import Stage, build_service

pytestmark = pytest.mark.anyio

CHILD = """
import asyncio, itertools, sys
import anyio
from app.settings import StoreSettings
from app.store.database import Database
from layers.model import LayerName
from tests.evaluations import FLAGGED, Stage, build_service, hangs, request

async def main(url):
    service = build_service(await Database.open(StoreSettings(url=url)), Stage({LayerName.JUDGE: hangs}))
    numbers = itertools.count()

    async def post():
        for number in numbers:
            print("answered", (await service.evaluate(request(number))).evaluation_id, flush=True)

    async with anyio.create_task_group() as group:
        group.start_soon(service.work)
        for number in range(5):
            print("accepted", await service.accept(request(f"later-{number}", **FLAGGED)), flush=True)
        for _ in range(32):
            group.start_soon(post)

asyncio.run(main(sys.argv[1]))
"""


async def test_what_was_answered_or_accepted_survives_a_kill(tmp_path: Path) -> None:
    """SIGKILL in the middle of work: each answer is stored, accepted work is done by the next process at once."""
    url = f"sqlite:///{tmp_path}/crash.db"
    root = Path(__file__).parents[2]
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, url, cwd=root, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    said: list[tuple[str, str]] = []
    while len(said) < 500:
        line = (await child.stdout.readline()).decode().split()
        assert line, "the child ended by itself"
        said.append((line[0], line[1]))
    child.send_signal(signal.SIGKILL)
    await child.wait()

    database = await Database.open(StoreSettings(url=url))
    service = build_service(database, Stage())
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        worker = group.create_task(service.work())
        for what, evaluation_id in said:
            while not isinstance(await service.get(evaluation_id), OnlineScoringResult):
                assert what == "accepted"
        worker.cancel()
    await database.close()
    assert {what for what, _ in said} == {"answered", "accepted"}
