"""A process to be killed: `python -m tests.service.run_process URL LOG SIZE` works on a run until it is done."""

from __future__ import annotations

import asyncio
import os
import sys

from app.runs.model import RunFilters, RunOptions, RunStatus
from app.runs.start import open_runs
from app.settings import RunSettings, StoreSettings
from app.store.database import Database
from layers.model import EvalExample, EvalPrediction
from tests.runs import Scripted, dataset, ended, prediction, request

CONCURRENCY = 8


async def main(url: str, log: str, size: int) -> None:
    """Submit a run if there is none, and see it to its end. Every question is noted in the log when it is asked."""
    file = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    async def noting(example: EvalExample) -> EvalPrediction:
        os.write(file, f"{example.id}\n".encode())
        await asyncio.sleep(0.01)
        return prediction("high", id=example.id)

    database = await Database.open(StoreSettings(url=url))
    systems = {"tested": Scripted(noting).as_system()}
    async with open_runs(database, systems, RunSettings(chunk_size=50)) as service:
        known = (await service.list(RunFilters())).items
        run = (
            known[0]
            if known
            else await service.submit(request(options=RunOptions(concurrency=CONCURRENCY)), dataset(size))
        )
        run = await ended(service, run.run_id)
        assert run.status is RunStatus.SUCCEEDED, run.failure
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
