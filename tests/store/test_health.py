"""The store's trouble is told when it begins and when it ends, not for every call."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from app.errors import Unavailable
from app.store.database import Database

pytestmark = pytest.mark.anyio


def broken(_: Connection) -> None:
    raise OperationalError("SELECT 1", {}, Exception("the disk is gone"))


def fine(conn: Connection) -> int:
    return int(conn.exec_driver_sql("SELECT 1").scalar_one())


@pytest.mark.parametrize("way", ["read", "write"])
async def test_trouble_is_told_once_and_so_is_its_end(
    way: str, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    call = getattr(database, way)
    with caplog.at_level(logging.INFO, "app.store"):
        for _ in range(10):
            with pytest.raises(Unavailable):
                await call(broken)
        assert [(each.levelname, "the disk is gone" in each.getMessage()) for each in caplog.records] == [
            ("WARNING", True)
        ]
        for _ in range(10):
            assert await call(fine) == 1
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]


async def test_what_was_written_is_counted(database: Database) -> None:
    before = database.counts.jobs, database.counts.commits, database.counts.failures
    await database.write(fine)
    with pytest.raises(Unavailable):
        await database.write(broken)
    after = database.counts.jobs, database.counts.commits, database.counts.failures
    assert [new - old for new, old in zip(after, before, strict=True)] == [2, 1, 1]
    assert database.counts.busy_seconds > 0
