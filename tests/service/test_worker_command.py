"""`arbiter-l8 worker` beside `arbiter-l8 serve --no-work`: one takes, the other does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from app.settings import StoreSettings
from tests.bench.servers import free_port, running

EXAMPLES = [
    {"expected_label": "low", "prediction": {"id": "p", "raw_output": {}, "label": "low", "confidence": 1.0}}
] * 5
EVALUATION = {"id": "p", "system": "generic", "raw_output": {"a": 1}, "label": "low", "confidence": 0.9}


@contextmanager
def worker(env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "app.cli", "worker"], env={**os.environ, **env})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(http: httpx.Client, path: str, wanted: str | None) -> None:
    """Wait for a status; None = an answer that has none any more, since it is the evaluation itself."""
    deadline = time.monotonic() + 60
    while (status := http.get(path).json().get("status")) != wanted:
        assert time.monotonic() < deadline, status
        time.sleep(0.1)


@pytest.mark.slow
def test_a_service_without_work_leaves_it_to_a_worker(store_settings: StoreSettings, tmp_path: Path) -> None:
    """Runs and accepted evaluations wait until a worker comes; told to stop, it is gone at once and leaves no trace."""
    from app.store.migrate import upgrade

    upgrade(store_settings.url)
    port, key = free_port(), tmp_path / "log.key"
    env = {
        "ARBITER_DATABASE_URL": store_settings.url,
        "ARBITER_PORT": str(port),
        "ARBITER_LOG_KEY_FILE": str(key),
        "ARBITER_TELEMETRY": "false",
    }
    command = [sys.executable, "-m", "app.cli", "serve", "--no-work"]
    with (
        running(command, port, "/readyz", env),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as http,
    ):
        run = http.post("/runs", json={"system": "recorded", "dataset": {"examples": EXAMPLES}}).raise_for_status()
        path = run.headers["location"]
        accepted = http.post("/evaluate", json=EVALUATION, headers={"Prefer": "respond-async"}).raise_for_status()
        assert (accepted.status_code, http.get(path).json()["status"]) == (202, "queued")
        with worker(env) as process:
            until(http, path, "succeeded")
            until(http, accepted.headers["location"], None)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=10) == 0
        assert http.get(f"{path}/report").json()["accuracy"] == 1.0
