"""What makes a process one of those that work on a store's runs: put together, begun and ended in the right order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.runs.chunks import ChunkStore
from app.runs.engine import RunEngine
from app.runs.fleet import Fleet
from app.runs.keys import KeyStore
from app.runs.observe import RunObserver
from app.runs.record_store import RecordStore
from app.runs.rounds import Rounds
from app.runs.store import RunStore
from app.runs.work import ChunkSize, RunWork
from app.settings import RunSettings
from app.store.database import Database
from layers.ports import System


@dataclass(frozen=True)
class Stores:
    """What work on runs reads and writes."""

    runs: RunStore
    records: RecordStore
    keys: KeyStore
    chunks: ChunkStore


class Crew:
    """This process's part in working on runs; with an engine that only reads, its part in taking them."""

    def __init__(
        self,
        database: Database,
        engine: RunEngine,
        systems: Mapping[str, System],
        settings: RunSettings,
        stores: Stores,
        *,
        code_version: str,
        observer: RunObserver,
    ) -> None:
        self._engine = engine
        self._keys = stores.keys
        self._fleet = Fleet(database, lease=settings.worker_lease, code_version=code_version)
        self._work = RunWork(
            stores.runs,
            stores.records,
            stores.chunks,
            systems,
            size=ChunkSize(settings.chunk_size, settings.chunk_seconds),
            observer=observer,
            on_rest=self.wake,
        )
        several = database.dialect == "postgresql"
        self.rounds = Rounds(
            engine,
            self._work,
            self._fleet,
            systems,
            (stores.runs, stores.chunks, stores.keys),
            shares=several and settings.shared,
            adopts=settings.shared or not several,
            most=settings.per_system,
        )
        observer.follow(self._work.under_way)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Work, with what earlier processes left unfinished; on leaving stop at once and hand the rest over."""
        try:
            await self._engine.launch(self._work)
            if self._engine.executor is not None:
                await self._keys.drop_unsettled(None)
            await self.rounds.begin()
            yield
        finally:
            await self.rounds.end()
            await self._engine.close()
            await self.rounds.leave()

    @property
    def me(self) -> str | None:
        """The name that this process goes by; None = it takes no runs."""
        return self._fleet.me

    @property
    def owner(self) -> str | None:
        """Whose a run is that is submitted here; None = of all who share."""
        return self.rounds.owner

    def wake(self) -> None:
        """There may be work."""
        self.rounds.wake()

    def poke(self, run_id: str) -> None:
        """The run's status was changed."""
        self._work.poke(run_id)

    def rate(self, run_id: str) -> float | None:
        """Examples per second of a run that is worked on here."""
        return self._work.rate(run_id)
