"""Put the service of runs together over a database and the systems there are."""

from __future__ import annotations

import importlib.metadata
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from app.runs.dbos_engine import DbosEngine
from app.runs.engine import RunEngine
from app.runs.service import RunService
from app.settings import RunSettings
from app.store.database import Database
from layers.ports import System


@asynccontextmanager
async def open_runs(
    database: Database,
    systems: Mapping[str, System],
    settings: RunSettings,
    *,
    engine: RunEngine | None = None,
    code_version: str | None = None,
) -> AsyncIterator[RunService]:
    """The service, working on what was left unfinished. On leaving it stops at once; the rest is done next time.

    Enter it on the event loop that the systems' clients belong to, and leave it before the database is closed.
    """
    engine = engine or DbosEngine(database.url)
    service = RunService(database, engine, systems, settings, code_version=code_version or _version())
    async with service.at_work():
        yield service


def _version() -> str:
    try:
        return importlib.metadata.version("arbiter-l8")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
