"""The servers that are compared, each in a process of its own on a free loopback port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], port: int, ready: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen]:
    """Start `command` and wait until `ready` answers 200; stop it at the end."""
    process = subprocess.Popen(
        command, env={**os.environ, **(env or {})}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait(process, f"http://127.0.0.1:{port}{ready}")
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen, url: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode} before it was ready")
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"{url} did not answer within 30 s")


@contextmanager
def noop(port: int) -> Iterator[subprocess.Popen]:
    """FastAPI, a pydantic model in and out, nothing else."""
    command = [sys.executable, "-m", "uvicorn", "tests.bench.noop:app", "--port", str(port)]
    command += ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "error"]
    with running(command, port, "/livez") as process:
        yield process


@contextmanager
def arbiter(port: int, folder: Path, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen]:
    """The service as an operator starts it, on an SQLite file in `folder`."""
    settings = {"ARBITER_PORT": str(port), "ARBITER_DATABASE_URL": f"sqlite:///{folder}/bench.db", **(env or {})}
    with running([sys.executable, "-m", "app.cli", "serve"], port, "/readyz", settings) as process:
        yield process


@contextmanager
def worker(env: dict[str, str]) -> Iterator[subprocess.Popen]:
    """A worker beside a service; ready a moment after it is started."""
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "worker"], env={**os.environ, **env}, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(15)
