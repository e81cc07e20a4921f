"""Chunks of runs in the store: who may write what was answered, the same on SQLite and PostgreSQL."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import select

from app.runs.chunks import ChunkStore, Claim, ClaimLost
from app.runs.dataset import with_ids
from app.runs.dataset_store import DatasetStore
from app.runs.model import BUSY, RunStatus
from app.runs.record_store import RecordStore, row_of
from app.runs.store import RunStore, StoredRun
from app.runs.submission import new_run
from app.runs.tables import records
from app.settings import RunSettings
from app.store.database import Database
from tests.runs import PROFILE, dataset, record, request

pytestmark = pytest.mark.anyio

Happening = Callable[[Database, StoredRun, Claim], Awaitable[object]]


async def a_run(database: Database) -> StoredRun:
    stored = await DatasetStore(database).add(with_ids(dataset(10)))
    run = new_run(request(), stored, PROFILE, RunSettings(), "test")
    await RunStore(database).create(run)
    found = await RunStore(database).get(run.run_id)
    assert found is not None
    return found


async def answered(database: Database, run: StoredRun, claim: Claim, position: int) -> None:
    row = row_of(run.no, position, record("high", "high", example_id=f"e{position}"), PROFILE)
    await RecordStore(database).add([row], claim)


async def claimed(database: Database, run: StoredRun, owner: str) -> Claim:
    claim = await ChunkStore(database).claim(run, owner, 10, 1)
    assert claim is not None
    return claim


async def freed(database: Database, _run: StoredRun, _claim: Claim) -> None:
    await ChunkStore(database).free(["slow"])


async def taken(database: Database, run: StoredRun, claim: Claim) -> None:
    await freed(database, run, claim)
    await claimed(database, run, "other")


async def taken_and_back(database: Database, run: StoredRun, claim: Claim) -> None:
    """The same owner got the same chunk again: answers to its first claim are late all the same."""
    await freed(database, run, claim)
    await claimed(database, run, "slow")


async def finished(database: Database, run: StoredRun, claim: Claim) -> None:
    await taken(database, run, claim)
    assert await ChunkStore(database).finish(dataclasses.replace(claim, owner="other", number=claim.number + 1))


async def given_up(database: Database, run: StoredRun, claim: Claim) -> None:
    await freed(database, run, claim)
    assert await RunStore(database).move(run.run_id, RunStatus.FAILED, only_from=BUSY)


async def retried(database: Database, run: StoredRun, _claim: Claim) -> None:
    """The run gave up while answers were on their way, and was begun anew before they came."""
    runs = RunStore(database)
    assert await runs.move(run.run_id, RunStatus.FAILED, only_from=BUSY)
    assert await runs.retry(dataclasses.replace(run, status=RunStatus.FAILED), None)


@pytest.mark.parametrize("happening", [freed, taken, taken_and_back, finished, given_up, retried])
async def test_who_lost_a_chunk_writes_nothing_into_it(database: Database, happening: Happening) -> None:
    """Not even where nobody has answered yet: a run that ended, or its next attempt, must not change behind itself."""
    run = await a_run(database)
    claim = await claimed(database, run, "slow")
    await answered(database, run, claim, 0)
    await happening(database, run, claim)
    with pytest.raises(ClaimLost):
        await answered(database, run, claim, 1)
    assert not await ChunkStore(database).finish(claim)
    assert await database.read(lambda conn: conn.scalars(select(records.c.position)).all()) == [0]


async def test_a_chunk_is_never_two_peoples(database: Database) -> None:
    run = await a_run(database)
    chunks = ChunkStore(database)
    assert await chunks.claim(run, "one", 6, 1) is not None
    second = await chunks.claim(run, "two", 6, 4)
    assert (second and second.start, second and second.stop) == (6, 10)
    assert await chunks.claim(run, "three", 6, 1) is None
