"""Which databases the service opens, and what it says of the others."""

from __future__ import annotations

import importlib
import os
import sqlite3
import stat
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine

import app
from app.settings import StoreSettings
from app.store import migrate
from app.store.database import Database
from app.store.engines import locate
from app.store.schema import metadata
from layers.errors import ConfigurationError
from tests.postgres import PostgresServer

pytestmark = pytest.mark.anyio


async def open_and_close(url: str) -> None:
    await (await Database.open(StoreSettings(url=url))).close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        pytest.param("sqlite://", "plain file", id="in memory"),
        pytest.param("sqlite:///:memory:", "plain file", id="in memory, named"),
        pytest.param("sqlite:///file:x?mode=memory&uri=true", "plain file", id="in memory, as a URI"),
        pytest.param("sqlite:///a.db?timeout=3", "path only", id="query"),
        pytest.param("mysql://root:secret@h/db", "not supported", id="another kind"),
        pytest.param("no url", "not a URL", id="no url"),
        pytest.param("sqlite:////nowhere/at/all/a.db", "does not exist", id="no folder"),
        pytest.param("sqlite:////", "is a folder", id="a folder"),
    ],
)
async def test_an_address_that_can_not_be_used_is_refused_in_a_sentence(url: str, says: str) -> None:
    """The refusal names the setting and never the password."""
    with pytest.raises(ConfigurationError, match=says) as refusal:
        await open_and_close(url)
    assert "ARBITER_DATABASE_URL" in str(refusal.value)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("url", ["postgresql://u:secret@h/db", "postgres://u:secret@h/db"])
def test_a_plain_postgresql_url_is_taken(url: str) -> None:
    """Whichever of its names the operator writes, the driver is psycopg, and the password is never shown."""
    location = locate(url)
    assert location.url.drivername == "postgresql+psycopg"
    assert "secret" not in str(location)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """A foreign file is left as it is."""
    path = tmp_path / "text.db"
    path.write_text("this is not a database, but long enough to look like one" * 40)
    with pytest.raises(ConfigurationError, match="not a database"):
        await open_and_close(f"sqlite:///{path}")
    assert path.read_text().startswith("this is not")


async def test_an_unreachable_postgresql_is_refused_without_its_password(tmp_path: Path) -> None:
    """The service says which database it can't reach."""
    with pytest.raises(ConfigurationError, match="can't be used") as refusal:
        await open_and_close(f"postgresql://me:secret@/db?host={tmp_path}")
    assert "secret" not in str(refusal.value)


async def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    """Records may hold personal data: nobody else reads the file or its journal."""
    database = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/new.db"))
    try:
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}  # noqa: ASYNC240
        assert set(modes.values()) == {0o600}
        assert "new.db-wal" in modes
    finally:
        await database.close()


async def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    """What the operator chose is not changed."""
    path = tmp_path / "old.db"
    path.touch()
    path.chmod(0o640)
    await open_and_close(f"sqlite:///{path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


async def test_a_read_only_file_is_refused(tmp_path: Path) -> None:
    """A file that can't be written is said so at start, not at the first record."""
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    path = tmp_path / "ro.db"
    path.touch(0o400)
    with pytest.raises(ConfigurationError, match="can't be opened"):
        await open_and_close(f"sqlite:///{path}")


async def test_sqlite_is_brought_to_the_newest_schema_at_start(tmp_path: Path) -> None:
    """Opening a new or an older file upgrades it, and opening it again changes nothing."""
    url = f"sqlite:///{tmp_path}/s.db"
    for _ in range(2):
        await open_and_close(url)
        assert migrate.current_revision(url) == migrate.head_revision()


async def test_sqlite_runs_in_wal_with_the_chosen_durability(tmp_path: Path) -> None:
    """WAL always; NORMAL by default, FULL on demand; foreign keys are enforced."""
    for synchronous, number in (("NORMAL", 1), ("FULL", 2)):
        settings = StoreSettings(url=f"sqlite:///{tmp_path}/{synchronous}.db", synchronous=synchronous)
        database = await Database.open(settings)
        found = await database.write(
            lambda conn: [conn.exec_driver_sql(f"PRAGMA {name}").scalar() for name in _PRAGMAS]
        )
        await database.close()
        assert found == ["wal", number, 1]


_PRAGMAS = ("journal_mode", "synchronous", "foreign_keys")


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """A database that a newer version made is not touched."""
    path = tmp_path / "newer.db"
    await open_and_close(f"sqlite:///{path}")
    with sqlite3.connect(path) as conn:
        conn.execute("UPDATE alembic_version SET version_num = '9999'")
    conn.close()
    with pytest.raises(ConfigurationError, match=r"9999.*newer version"):
        await open_and_close(f"sqlite:///{path}")


async def test_postgresql_is_never_upgraded_unasked(postgres: PostgresServer) -> None:
    """The service refuses to start, says which command helps, and starts after it."""
    url = postgres.empty_database()
    assert migrate.current_revision(url) is None
    with pytest.raises(ConfigurationError, match="db upgrade"):
        await open_and_close(url)
    migrate.upgrade(url)
    assert migrate.current_revision(url) == migrate.head_revision()
    await open_and_close(url)


async def test_a_newer_schema_on_postgresql_is_refused_too(postgres: PostgresServer) -> None:
    """By the service and by the upgrade, which would be no help."""
    url = postgres.empty_database()
    migrate.upgrade(url)
    engine = create_engine(locate(url).url)
    with engine.begin() as conn:
        conn.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()
    with pytest.raises(ConfigurationError, match="newer version"):
        await open_and_close(url)
    with pytest.raises(ConfigurationError, match="newer version"):
        migrate.upgrade(url)


async def test_the_migrations_make_what_the_code_declares(store_settings: StoreSettings) -> None:
    """Tables, columns, keys and indexes of the code and of a migrated database are the same."""
    for package in Path(str(app.__file__)).parent.glob("*/*tables.py"):
        importlib.import_module(f"app.{package.parent.name}.{package.stem}")
    await open_and_close(store_settings.url)
    engine = create_engine(locate(store_settings.url).url)
    with engine.connect() as conn:
        context = MigrationContext.configure(conn, opts={"include_object": _is_ours, "compare_type": True})
        differences = compare_metadata(context, metadata)
    engine.dispose()
    assert differences == []


def _is_ours(_object: object, name: str | None, kind: str, *_: object) -> bool:
    return not (kind == "table" and name == "alembic_version")
