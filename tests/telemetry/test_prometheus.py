"""A real Prometheus, filled with what a real service emitted: every query of every dashboard finds something."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from docs.grafana.dashboards import BOARDS
from tests.bench.servers import free_port, running
from tests.telemetry.observed import Observed
from tests.telemetry.promql import PROMTOOL, plain

SERVER = shutil.which("prometheus")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SERVER is None or PROMTOOL is None, reason="prometheus (Debian's package) is not installed"),
]

QUERIES = [(panel.title, query.expr) for board in BOARDS.values() for panel in board.panels for query in panel.queries]
STEP_S, STEPS = 60, 30


def history(observed: Observed, end: int) -> str:
    """Half an hour in OpenMetrics' words: counters rise by what they are, gauges stay."""
    latest = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in observed.samples}
    lines = []
    for family, kind in observed.types.items():
        lines.append(f"# TYPE {family} {kind}")
        for (name, labels), value in latest.items():
            if not _is_of(name, family, kind):
                continue
            shown = ",".join(f'{label}="{text}"' for label, text in (("job", "arbiter-l8"), ("instance", "1"), *labels))
            for step in range(1, STEPS + 1):
                grown = value if kind == "gauge" else value * step
                lines.append(f"{name}{{{shown}}} {grown} {end - (STEPS - step) * STEP_S}")
    return "\n".join([*lines, "# EOF"]) + "\n"


def _is_of(name: str, family: str, kind: str) -> bool:
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}[kind]
    return name in {family + suffix for suffix in suffixes}


@pytest.fixture(scope="module")
def prometheus(observed: Observed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, int]]:
    """A client of the server, and the time at which its data ends."""
    folder: Path = tmp_path_factory.mktemp("prometheus")
    end = int(time.time()) - 7200  # blocks are made of what is over
    (folder / "metrics.txt").write_text(history(observed, end))
    (folder / "prometheus.yml").write_text("global: {}\n")
    made = subprocess.run(
        [str(PROMTOOL), "tsdb", "create-blocks-from", "openmetrics", "metrics.txt", "data"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    port = free_port()
    command = [
        str(SERVER), "--config.file", str(folder / "prometheus.yml"), "--storage.tsdb.path", str(folder / "data"),
        "--web.listen-address", f"127.0.0.1:{port}",
    ]  # fmt: skip
    with running(command, port, "/-/ready"), httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        yield client, end


@pytest.mark.parametrize(
    ("title", "expr"), QUERIES, ids=[f"{title}: {number}" for number, (title, _) in enumerate(QUERIES)]
)
def test_a_query_finds_what_the_service_said(title: str, expr: str, prometheus: tuple[httpx.Client, int]) -> None:
    client, end = prometheus
    reply = client.get("/api/v1/query", params={"query": plain(expr), "time": str(end)}).json()
    assert reply["status"] == "success", reply
    assert reply["data"]["result"], f"{title} would be empty"


def test_shares_are_shares(prometheus: tuple[httpx.Client, int]) -> None:
    client, end = prometheus
    for title in ("% Scored by Judge", "Degraded share", "Escalated share", "Cache hits", "Failed share"):
        (expr,) = [expr for name, expr in QUERIES if name == title]
        reply = client.get("/api/v1/query", params={"query": plain(expr), "time": str(end)}).json()
        assert all(0 <= float(row["value"][1]) <= 100 for row in reply["data"]["result"]), title
