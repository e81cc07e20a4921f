"""What the log says of a statement that failed: which, and why, and nothing of what was to be stored."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import BigInteger, Column, Connection, LargeBinary, MetaData, String, Table, insert
from sqlalchemy.exc import DBAPIError

from app.store.database import Database
from app.telemetry.logs import JsonFormatter, PrettyFormatter

pytestmark = pytest.mark.anyio

PAYLOAD = "Corner-Books-of-Jane-Doe"
notes = Table(
    "notes",
    MetaData(),
    Column("note", String(80), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("data", LargeBinary),
)


def add(conn: Connection, **more: object) -> None:
    conn.execute(insert(notes).values({"note": PAYLOAD, "size": 1, "data": PAYLOAD.encode(), **more}))


def line(formatter: logging.Formatter, exc: BaseException) -> str:
    outer = RuntimeError("the request failed")
    outer.__cause__ = exc
    what = (RuntimeError, outer, None)
    return formatter.format(logging.LogRecord("x", logging.ERROR, __file__, 1, "it failed", (), what))


@pytest.mark.parametrize("formatter", [JsonFormatter(), PrettyFormatter()], ids=["json", "pretty"])
@pytest.mark.parametrize(
    "more",
    [{}, {"note": PAYLOAD + "\nin lines", "size": None}, {"note": PAYLOAD * 9, "size": None}],
    ids=["twice", "null", "long"],
)
async def test_a_failing_insert_logs_no_payload(
    database: Database, formatter: logging.Formatter, more: dict[str, object]
) -> None:
    """Neither the statement's parameters nor the row that PostgreSQL quotes."""
    await database.write(notes.create)
    await database.write(add)
    with pytest.raises(DBAPIError) as failed:
        await database.write(lambda conn: add(conn, **more))
    assert PAYLOAD not in str(failed.value).split("DETAIL")[0]
    for exc in (failed.value, ExceptionGroup("all", [failed.value])):
        said = line(formatter, exc)
        assert PAYLOAD not in said
        assert "in lines" not in said
        assert "INSERT INTO notes" in said
        assert "the request failed" in said


@pytest.mark.parametrize("formatter", [JsonFormatter(), PrettyFormatter()], ids=["json", "pretty"])
async def test_a_value_that_the_database_can_not_read_is_not_quoted(
    database: Database, formatter: logging.Formatter
) -> None:
    if database.dialect == "sqlite":
        pytest.skip("SQLite reads every value")
    with pytest.raises(DBAPIError) as failed:
        await database.write(lambda conn: conn.exec_driver_sql("SELECT %s::text::int", (PAYLOAD,)))
    assert PAYLOAD not in line(formatter, failed.value)
    assert "22P02" in line(formatter, failed.value)
