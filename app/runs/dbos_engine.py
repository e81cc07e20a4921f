"""Durable runs on DBOS Transact: a run is a workflow, a chunk of examples is one of its steps."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSConfig, Serializer, SetWorkflowID
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL

from app.runs.engine import Work, drive
from app.runs.seats import seats_of
from layers.errors import ConfigurationError

APPLICATION_VERSION = "runs-1"
"""Version of the workflow's shape. It goes up only when an unfinished workflow could not be replayed by new code."""

MAX_RECOVERIES = 1_000_000
"""DBOS parks a workflow that was recovered too often; a run may be restarted as often as machines are."""

MAX_THREADS = 64
"""DBOS makes its pool the loop's default one as well, so the bound holds for all of the service's threads."""

_PYTHON_3_12 = 0x030C0000
_NEEDED_SQLITE = (3, 42)
_ENDED = frozenset({"SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"})

logger = logging.getLogger(__name__)


class _Json(Serializer):
    """What DBOS stores is an id and numbers: JSON, not pickle."""

    def serialize(self, data: Any) -> str:
        return json.dumps(data, default=repr)

    def deserialize(self, serialized_data: str) -> Any:
        return json.loads(serialized_data)

    def name(self) -> str:
        return "json"


class DbosEngine:
    """`RunEngine` over DBOS, which is a singleton of the process: one engine at a time is launched.

    `url` is the service's database. On PostgreSQL DBOS keeps its own schema there; beside a SQLite file it has one
    of its own, so that its locks and the store's never meet.
    """

    def __init__(self, url: URL, *, version: str = APPLICATION_VERSION) -> None:
        self._url = url
        self._version = version
        self._seats = seats_of(url)
        self._sqlite: Engine | None = None
        self._seat: int | None = None

    @property
    def executor(self) -> str | None:
        return None if self._seat is None else f"seat-{self._seat}"

    async def alive(self, executor: str) -> bool:
        number = executor.removeprefix("seat-")
        return number.isdecimal() and await asyncio.to_thread(self._seats.taken, int(number))

    async def launch(self, work: Work) -> None:
        """Begin. Blocks the loop for the part of a second that DBOS needs: only so does it adopt this loop."""
        if _running.engine is not None:
            raise RuntimeError("another run engine is active in this process")
        _running.engine, _running.work = self, work
        try:
            self._seat = await asyncio.to_thread(self._seats.take)
            DBOS(config=self._config())
            DBOS.launch()
        except BaseException:
            await self.close()
            raise

    def _config(self) -> DBOSConfig:
        logging.getLogger("dbos").setLevel(logging.ERROR)
        config: DBOSConfig = {
            "name": "arbiter-l8",
            "application_version": self._version,
            "executor_id": str(self.executor),
            "serializer": _Json(),
            "log_level": "ERROR",
            "enable_otlp": False,
            "max_executor_threads": MAX_THREADS,
            "notification_listener_polling_interval_sec": 0.2,
        }
        if self._url.get_backend_name() == "sqlite":
            path = engine_file(str(self._url.database), self._seat or 0)
            self._sqlite = _sqlite_engine(path)
            config |= {"system_database_url": f"sqlite:///{path}", "system_database_engine": self._sqlite}
        else:
            plain = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
            config |= {"system_database_url": plain, "sys_db_pool_size": 5, "use_listen_notify": False}
            config |= {"db_engine_kwargs": {"hide_parameters": True}}
        return config

    async def start(self, workflow_id: str) -> bool:
        status = await DBOS.get_workflow_status_async(workflow_id)
        if status is not None:
            # DBOS leaves alone what code of another version began, here or in an earlier seat's life: it never ends.
            ours = status.app_version == self._version and status.executor_id == self.executor
            return ours and status.status not in _ENDED
        with SetWorkflowID(workflow_id):
            await DBOS.start_workflow_async(run_workflow, workflow_id)
        return True

    async def close(self) -> None:
        if _running.engine is not self:
            return
        if _running.work is not None:
            _running.work.halt()
        # A cancelled workflow is left as it stands in the database, so the next launch finds it unfinished.
        tasks = list(_running.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(DBOS.destroy)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())  # DBOS's own, now shut, was the default
        if self._sqlite is not None:
            self._sqlite.dispose()
        await asyncio.to_thread(self._seats.leave)
        self._seat = None
        _running.engine = _running.work = None


class _Running:
    """What the workflow, a function of the module as DBOS needs it, works for at the moment."""

    def __init__(self) -> None:
        self.engine: DbosEngine | None = None
        self.work: Work | None = None
        self.tasks: set[asyncio.Task[Any]] = set()


_running = _Running()


def _work() -> Work:
    if _running.work is None:  # a straggler of a closed engine: the next launch does it
        raise asyncio.CancelledError
    return _running.work


async def _plan(workflow_id: str) -> int | None:
    return await _work().plan(workflow_id)


async def _chunk(workflow_id: str, size: int) -> int | None:
    return await _work().chunk(workflow_id, size)


async def _conclude(workflow_id: str) -> None:
    await _work().conclude(workflow_id)


@DBOS.workflow(name="run", max_recovery_attempts=MAX_RECOVERIES)
async def run_workflow(workflow_id: str) -> None:
    """A run's steps. A finished one is not done again: its recorded result is used."""
    task = asyncio.current_task()
    if task is not None:
        _running.tasks.add(task)
        task.add_done_callback(_running.tasks.discard)
    # Each step's place in the order is drawn when it is called, also where two run at once.
    await drive(
        lambda: DBOS.reserve_step().run_async({"name": "plan"}, _plan, workflow_id),
        lambda size: DBOS.reserve_step().run_async({"name": "chunk"}, _chunk, workflow_id, size),
        lambda: DBOS.reserve_step().run_async({"name": "conclude"}, _conclude, workflow_id),
    )


def engine_file(path: str, seat: int = 0) -> str:
    """The engine's own SQLite file, beside the store's; every process that works on runs has one."""
    return f"{path}.engine{seat or ''}"


def _sqlite_engine(path: str) -> Engine:
    module = _sqlite_module()
    Path(path).touch(mode=0o600)  # runs' ids and settings are nobody else's business
    engine = create_engine(
        f"sqlite:///{path}", module=module, connect_args={"check_same_thread": False}, hide_parameters=True
    )

    @event.listens_for(engine, "connect")
    def _connected(raw: Any, _record: Any) -> None:
        raw.isolation_level = "IMMEDIATE"
        for pragma in ("busy_timeout=30000", "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            raw.execute(f"PRAGMA {pragma}")

    return engine


def _sqlite_module() -> Any:
    """The driver to use. DBOS's tables need SQLite 3.42 where Python's own module is 3.12 or newer."""
    if sys.hexversion < _PYTHON_3_12 or sqlite3.sqlite_version_info >= _NEEDED_SQLITE:
        return sqlite3
    try:
        return importlib.import_module("pysqlite3.dbapi2")
    except ImportError:
        raise ConfigurationError(
            f"runs need SQLite 3.42 or newer, this Python has {sqlite3.sqlite_version}: install pysqlite3-binary, "
            "or use PostgreSQL"
        ) from None
