"""A sick collector is nobody's trouble: the service answers, ends in time, and says so once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.bench.servers import free_port
from tests.telemetry.sick import KINDS, collector

pytestmark = pytest.mark.slow
BODY = {"system": "generic", "raw_output": {"a": 1}, "label": "low", "confidence": 0.2}


def _ready(url: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/readyz", timeout=1).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.05)
    raise AssertionError("the service did not start")


@pytest.mark.parametrize("kind", KINDS)
def test_the_service_ends_in_three_seconds_and_warns_once(kind: str, tmp_path: Path) -> None:
    """All of it is traced, so that there is something to send."""
    port, log = free_port(), tmp_path / "log"
    with collector(kind) as endpoint, log.open("wb") as stderr:
        env = {
            **os.environ,
            "ARBITER_PORT": str(port),
            "ARBITER_DATABASE_URL": f"sqlite:///{tmp_path}/sick.db",
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "ARBITER_TRACE_RATIO": "1",
            "ARBITER_LOG_FORMAT": "json",
        }
        process = subprocess.Popen([sys.executable, "-m", "app.cli", "serve"], env=env, stderr=stderr)
        try:
            url = f"http://127.0.0.1:{port}"
            _ready(url)
            with httpx.Client(base_url=url) as http:
                began = time.monotonic()
                for number in range(150):
                    assert http.post("/evaluate", json={**BODY, "id": str(number)}).status_code == 200
                assert time.monotonic() - began < 30
            time.sleep(3)  # what was sent so far fails now
            asked = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.wait(20)
            took = time.monotonic() - asked
        finally:
            process.kill()
            process.wait()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    warnings = [line for line in lines if line["level"] != "info"]
    assert took <= 3.0, (took, warnings)
    assert len(warnings) <= 1, warnings
    assert all(line["logger"] == "arbiter.telemetry" for line in warnings)
