"""What others make of it: receivers that this project did not write read back what a real service sent."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from app.wiring import service_app
from tests.bench.servers import free_port
from tests.fakes import client_of
from tests.telemetry.observed import evaluate_all, prediction, settings_of

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(shutil.which("uv") is None, reason="the receivers are started with uv"),
]

PHOENIX, ROTEL = "arize-phoenix==20.26.1", "rotel==0.0.1a15"
TRACE, CALLER = "a" * 32, "b" * 16
START_S = 300.0
"""The first start fetches a hundred packages."""


@contextmanager
def receiver(package: str, command: list[str], ready: Callable[[], bool], **env: str) -> Iterator[None]:
    """Run a command of `package` in an environment of its own until the block ends."""
    whole = ["uv", "run", "--isolated", "--no-project", "--with", package, *command]
    process = subprocess.Popen(whole, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(ready, process)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(ready: Callable[[], bool], process: subprocess.Popen[bytes] | None = None, seconds: float = START_S) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert process is None or process.poll() is None, "the receiver ended before it was ready"
        assert time.monotonic() < deadline, "the receiver was not ready in time"
        time.sleep(0.2)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code < 500
    except httpx.HTTPError:
        return False


async def work(folder: Path, endpoint: str) -> None:
    """Let a service with real exporters judge things; it ends, and with it everything was sent."""
    script = {"down": False, "babbles": False}
    with settings_of(folder, script, endpoint=endpoint) as settings:
        async with client_of(service_app(settings)) as http:
            parent = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
            answer = await http.post("/evaluate", json=prediction(999, 0.3), headers=parent)
            assert answer.status_code == 200
            await evaluate_all(http, script)


# --- traces -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """The spans that arize-phoenix gives out of its own API, after a service sent them."""
    folder, port = tmp_path_factory.mktemp("phoenix"), free_port()
    url = f"http://127.0.0.1:{port}"
    env = {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    with receiver(PHOENIX, ["phoenix", "serve"], lambda: _answers(f"{url}/healthz"), **env):
        anyio.run(work, folder, url)
        wanted = "rejected"
        _wait(lambda: any(wanted in str(span["attributes"].get("error.type")) for span in _spans(url)), seconds=30)
        yield _spans(url)


def _spans(url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        params = {"limit": 500, **({"cursor": cursor} if cursor else {})}
        page = httpx.get(f"{url}/v1/projects/default/spans", params=params, timeout=30).json()
        found += page["data"]
        cursor = page.get("next_cursor")
        if cursor is None:
            return found


def test_phoenix_shows_the_trace_of_an_evaluation_as_it_was(phoenix: list[dict[str, Any]]) -> None:
    mine = {span["name"]: span for span in phoenix if span["context"]["trace_id"] == TRACE}
    parents = {name: span["parent_id"] for name, span in mine.items()}
    ids = {name: span["context"]["span_id"] for name, span in mine.items()}
    assert parents == {
        "POST /evaluate": CALLER,
        "evaluate_item": ids["POST /evaluate"],
        "heuristics_check": ids["evaluate_item"],
        "narrative_grounding": ids["evaluate_item"],
        "cross_provider_disagreement": ids["evaluate_item"],
        "embedding_consistency": ids["evaluate_item"],
        "judge_call": ids["evaluate_item"],
        "ollama_attempt": ids["judge_call"],
    }


def test_phoenix_shows_what_stands_on_the_spans(phoenix: list[dict[str, Any]]) -> None:
    mine = {span["name"]: span for span in phoenix if span["context"]["trace_id"] == TRACE}
    item = mine["evaluate_item"]["attributes"]
    assert (item["prediction_id"], item["system"], item["instrument_path"]) == ("txn-999", "sentinel-l7", "ollama")
    attempt = mine["ollama_attempt"]["attributes"]
    assert (attempt["gen_ai.operation.name"], attempt["gen_ai.provider.name"]) == ("chat", "ollama")
    assert (attempt["gen_ai.usage.input_tokens"], attempt["gen_ai.usage.output_tokens"]) == (90, 7)
    (event,) = mine["evaluate_item"]["events"]
    assert event["name"] == "gen_ai.evaluation.result"
    assert event["attributes"]["gen_ai.evaluation.score.label"] == item["disposition"]


def test_phoenix_shows_failures_as_columns(phoenix: list[dict[str, Any]]) -> None:
    failed = [span for span in phoenix if span["name"] == "flash_attempt"]
    assert failed
    for span in failed:
        assert span["status_code"] == "ERROR"
        assert span["attributes"]["error.type"] == "rejected"
        assert span["attributes"]["exception.type"] == "DependencyRejected"
        assert span["attributes"]["exception.message"] == "answered HTTP 404"


# --- metrics ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rotel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the Rotel collector, written in Rust, prints of the metrics that it was sent."""
    folder, port = tmp_path_factory.mktemp("rotel"), free_port()
    log = folder / "printed"
    find = (
        "import rotel, pathlib, os, sys; os.execv(str(pathlib.Path(rotel.__file__).with_name('rotel-agent')), sys.argv)"
    )
    options = ["start", "--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}"]
    options += ["--exporter", "blackhole", "--debug-log", "metrics", "--debug-log-verbosity", "detailed"]
    whole = ["sh", "-c", 'exec "$0" "$@" > "$PRINTED" 2>&1', "python", "-c", find, *options]
    endpoint = f"http://127.0.0.1:{port}"
    with receiver(ROTEL, whole, lambda: _answers(endpoint), PRINTED=str(log)):
        anyio.run(work, folder, endpoint)
        _wait(lambda: "arbiter_l8.judge.outcome" in log.read_text(), seconds=30)
    return log.read_text()


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("arbiter_l8.judge.outcome", ""),
        ("arbiter_l8.layer.latency", "ms"),
        ("arbiter_l8.evaluations", ""),
        ("arbiter_l8.breaker.state", ""),
        ("http.server.request.duration", "s"),
    ],
)
def test_rotel_reads_the_metrics_by_name_and_unit(rotel: str, name: str, unit: str) -> None:
    assert re.search(rf"Name *: {re.escape(name)}\n(.*\n)*? *(?:-> )?Unit *: {unit}\n", rotel), name


def test_rotel_reads_labels(rotel: str) -> None:
    for label in ("source: Str(ollama)", "layer: Str(judge_call)", "disposition: Str(review)", "state: Str(open)"):
        assert label in rotel
