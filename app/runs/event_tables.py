"""The table of what listeners were told about a run, so that they can be told it again."""

from __future__ import annotations

from sqlalchemy import Column, Integer, LargeBinary, String, Table

from app.store.schema import metadata

run_events = Table(
    "run_events",
    metadata,
    Column("run_id", String(36), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("status", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("n_done", Integer, nullable=False),
    Column("n_failed", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
"""`seq` counts from 1; `data` is the event's JSON to the byte. Old rows go when new ones come."""
