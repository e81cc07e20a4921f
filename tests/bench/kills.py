"""Fifty seeded kills of one of three workers, or of all, on SQLite and on PostgreSQL: nothing lost, nothing doubled."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from tests.bench.rows import Row, at_most
from tests.postgres import postgres_server
from tests.service.kills import IN_FLIGHT, survive

KILLS = int(os.environ.get("BENCH_KILLS", "50"))
SEED = 7


def main() -> list[Row]:
    """Kill; prints as it goes."""
    with tempfile.TemporaryDirectory() as folder:
        rows = _kill(f"sqlite:///{folder}/kills.db", Path(folder), "SQLite")
    with tempfile.TemporaryDirectory() as folder, postgres_server() as server, server.migrated_database() as url:
        return rows + _kill(url, Path(folder), "PostgreSQL")


def _kill(url: str, folder: Path, name: str) -> list[Row]:
    began = time.perf_counter()
    what = asyncio.run(survive(url, folder, kills=KILLS, seed=SEED))
    print(
        f"{name}: {KILLS} kills of {what.killed} processes in {time.perf_counter() - began:.0f} s, "
        f"{what.size} examples, {what.again} asked again (at most {what.killed * IN_FLIGHT} were in flight)"
    )
    return [
        at_most(f"{name}: records lost or doubled", abs(what.n_records - what.size) + what.size - what.n_examples, 0),
        at_most(f"{name}: finished examples asked again", len(what.asked_although_done), 0),
        at_most(f"{name}: asked again over what was in flight", what.again / (what.killed * IN_FLIGHT), 1),
    ]
