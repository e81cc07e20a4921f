"""Events of runs in the store, the same on SQLite and PostgreSQL."""

from __future__ import annotations

import anyio
import pytest

from app.runs.event_store import EventStore
from app.runs.model import Run
from app.store.database import Database
from tests.service.test_events import RUN_ID, a_run

pytestmark = pytest.mark.anyio


async def test_events_are_numbered_without_gaps_and_cut_at_the_old_end(database: Database) -> None:
    store = EventStore(database, keep=3)
    for done in range(6):
        await store.tell(a_run("running", done))
    await store.tell(a_run("succeeded", 10))
    assert [(event.seq, event.kind) for event in await store.since(RUN_ID, 0)] == [
        (5, "progress"),
        (6, "progress"),
        (7, "end"),
    ]
    (last,) = await store.since(RUN_ID, 6)
    assert Run.model_validate_json(last.data) == a_run("succeeded", 10)


async def test_whoever_tells_the_same_at_once_tells_it_once(database: Database) -> None:
    stores = [EventStore(database) for _ in range(8)]
    async with anyio.create_task_group() as group:
        for store in stores:
            group.start_soon(store.tell, a_run("running", 1))
    assert [event.seq for event in await stores[0].since(RUN_ID, 0)] == [1]
