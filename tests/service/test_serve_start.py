"""A `serve` or `worker` that can't start says why in one line, without a traceback, with the table's exit code."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.exits import FAILED, OK, USAGE
from app.store.migrate import upgrade
from tests.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
DATABASE = "ARBITER_DATABASE_URL"


def start(folder: Path, command: str, **env: str) -> subprocess.CompletedProcess[str]:
    given = {"PATH": os.environ["PATH"], "ARBITER_PORT": "0", "ARBITER_TELEMETRY": "false", **env}
    path = os.pathsep.join([str(ROOT), str(folder)])
    return subprocess.run(
        [sys.executable, "-m", "app.cli", command],
        cwd=folder,
        env={**given, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def junk(folder: Path) -> dict[str, str]:
    (folder / "store.db").write_bytes(os.urandom(5_000))
    return {DATABASE: "sqlite:///store.db"}


def no_folder(_: Path) -> dict[str, str]:
    return {DATABASE: "sqlite:///no/such/folder/store.db"}


def cut(folder: Path) -> dict[str, str]:
    upgrade(f"sqlite:///{folder}/store.db")
    with (folder / "store.db").open("r+b") as file:
        file.truncate(100_000)
    return {DATABASE: "sqlite:///store.db"}


def damaged_within(folder: Path) -> dict[str, str]:
    """Its schema reads well, a table that the start needs doesn't."""
    upgrade(f"sqlite:///{folder}/store.db")
    with sqlite3.connect(folder / "store.db") as conn:
        (page,) = conn.execute("SELECT rootpage FROM sqlite_master WHERE name = 'log_keys'").fetchone()
    conn.close()
    with (folder / "store.db").open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    return {DATABASE: "sqlite:///store.db"}


def nobody_there(_: Path) -> dict[str, str]:
    return {DATABASE: "postgresql://me:secret@127.0.0.1:9/arbiter"}


def plugin(folder: Path) -> dict[str, str]:
    (folder / "raising.py").write_text('def build(context):\n    raise RuntimeError("no luck today")\n')
    made = folder / "raising-1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: raising\nVersion: 1.0\n")
    (made / "entry_points.txt").write_text("[arbiter_l8.systems]\nraising = raising:build\n")
    return {}


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        pytest.param(junk, "can't be used: file is not a database", id="no database"),
        pytest.param(no_folder, "the folder 'no/such/folder' does not exist; make it first", id="no folder"),
        pytest.param(cut, "can't be used: database disk image is malformed", id="truncated"),
        pytest.param(nobody_there, "can't be used: connection", id="PostgreSQL is away"),
        pytest.param(plugin, "system plugin raising (raising:build): RuntimeError: no luck today", id="plugin"),
    ],
)
def test_what_keeps_it_from_starting_is_said_in_one_line(tmp_path: Path, harm, says: str) -> None:
    check(start(tmp_path, "serve", **harm(tmp_path)), says)


def test_a_worker_says_it_the_same_way(tmp_path: Path) -> None:
    check(start(tmp_path, "worker", **junk(tmp_path)), "can't be used: file is not a database")


def test_a_database_that_can_be_opened_and_not_used_is_a_start_that_was_not_done(tmp_path: Path) -> None:
    done = start(tmp_path, "serve", **damaged_within(tmp_path))
    check(done, "the store's database is damaged: restore a backup", FAILED)


def test_a_database_without_tables_is_told_with_the_command_that_helps(empty_database: str, tmp_path: Path) -> None:
    check(start(tmp_path, "serve", **{DATABASE: empty_database}), "run `arbiter-l8 db upgrade` first")


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_is_told_to_stop_has_done_its_work(tmp_path: Path, told: signal.Signals) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "ARBITER_PORT": "0", "ARBITER_TELEMETRY": "false"}
    command = [sys.executable, "-m", "app.cli", "serve"]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "listens on" in line)
        process.send_signal(told)
        said += process.stderr.read()
        assert process.wait(30) == OK
    assert "Traceback" not in said


@pytest.fixture
def empty_database(postgres: PostgresServer) -> str:
    return postgres.empty_database()


def check(done: subprocess.CompletedProcess[str], says: str, code: int = USAGE) -> None:
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("arbiter-l8: ")]
    assert says in line
    assert done.stderr.splitlines()[-1] == line
    assert ("Traceback" in done.stderr, "secret" in done.stderr, done.stdout) == (False, False, "")
    assert done.returncode == code
