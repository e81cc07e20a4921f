"""A process to be killed: `python -m tests.service.worker_process URL LOG LEASE` works on runs until it is ended."""

from __future__ import annotations

import asyncio
import os
import sys

from app.runs.start import open_runs
from app.settings import RunSettings, StoreSettings
from app.store.database import Database
from layers.model import EvalExample, EvalPrediction
from tests.runs import Scripted, prediction

CONCURRENCY = 4
SECONDS = 0.05


async def main(url: str, log: str, lease: float) -> None:
    """Note every question in the log when it is asked."""
    file = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    async def noting(example: EvalExample) -> EvalPrediction:
        os.write(file, f"{example.id}\n".encode())
        await asyncio.sleep(SECONDS)
        return prediction("high", id=example.id)

    database = await Database.open(StoreSettings(url=url))
    settings = RunSettings(chunk_size=50, chunk_seconds=1, worker_lease=lease)
    async with open_runs(database, {"tested": Scripted(noting).as_system()}, settings):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
