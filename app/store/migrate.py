"""Schema versions: what the database has, what this code needs, and the way from one to the other."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DatabaseError

from app.settings import StoreSettings
from app.store.engines import Location, locate, prepare_file, writer_engine
from layers.errors import ConfigurationError

_LOCK = 0x41524C38
"""The advisory lock that keeps two processes from upgrading one PostgreSQL database at once."""


def head_revision() -> str:
    """The schema version that this code needs."""
    return _revisions()[0]


def current_revision(url: str) -> str | None:
    """The schema version of the database at `url`; None = it has no tables yet. Raises `ConfigurationError`."""
    location = locate(url)
    engine = _engine(location)
    try:
        with engine.connect() as conn:
            return revision_of(conn)
    except DatabaseError as exc:
        raise _unusable(location, exc) from exc
    finally:
        engine.dispose()


def upgrade(url: str) -> None:
    """Bring the database at `url` to `head_revision`, all of it or nothing. Raises `ConfigurationError`."""
    location = locate(url)
    engine = _engine(location)
    try:
        upgrade_engine(engine, location)
    finally:
        engine.dispose()


def upgrade_engine(engine: Engine, location: Location) -> None:
    """`upgrade`, over an engine there is."""
    try:
        with engine.begin() as conn:
            if location.dialect == "postgresql":
                conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            current = revision_of(conn)
            _refuse_unknown(current)
            if current != head_revision():
                config = _config()
                config.attributes["connection"] = conn
                command.upgrade(config, "head")
    except DatabaseError as exc:
        raise _unusable(location, exc) from exc


def check_current(engine: Engine, location: Location) -> None:
    """Raise `ConfigurationError` unless the schema is the one this code needs."""
    try:
        with engine.connect() as conn:
            current = revision_of(conn)
    except DatabaseError as exc:
        raise _unusable(location, exc) from exc
    _refuse_unknown(current)
    if current != head_revision():
        have = "has no tables yet" if current is None else f"is at schema version {current}"
        raise ConfigurationError(
            f"the database {have}, this service needs {head_revision()}; run `arbiter-l8 db upgrade` first"
        )


def revision_of(conn: Connection) -> str | None:
    """The schema version on this connection's database."""
    return MigrationContext.configure(conn).get_current_revision()


def _refuse_unknown(current: str | None) -> None:
    if current is not None and current not in _revisions():
        raise ConfigurationError(
            f"the database is at schema version {current}, which this service does not know: "
            f"a newer version of it made that database; its own newest is {head_revision()}"
        )


@cache
def _revisions() -> tuple[str, ...]:
    """Every schema version this code knows, newest first."""
    return tuple(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _engine(location: Location) -> Engine:
    if location.dialect == "sqlite":
        prepare_file(location)
    return writer_engine(location, StoreSettings())


def _unusable(location: Location, exc: DatabaseError) -> ConfigurationError:
    said = str(exc.orig).strip().splitlines()
    return ConfigurationError(
        f"ARBITER_DATABASE_URL: {location} can't be used: {said[0] if said else 'no reason given'}"
    )
