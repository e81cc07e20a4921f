"""What telemetry costs `/evaluate`, with collectors that are sick in every way, against telemetry switched off."""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench import servers
from tests.bench.evaluate import Row, body
from tests.bench.load import Load, closed_loop, post
from tests.telemetry.sick import KINDS, collector

CONNECTIONS = 4
ROUNDS = 7
SECONDS = 2.0
WARM, COUNTED = 10_000, 50_000


def requests() -> Callable[[], bytes]:
    """Evaluations with ever new ids."""
    counter = itertools.count()
    return lambda: post("127.0.0.1", "/evaluate", body(next(counter)))


async def _compare(own: int, silent: int) -> float:
    """The median over rounds of how much longer the first one's median answer takes."""
    ratios = []
    first, second = requests(), requests()
    for _ in range(ROUNDS):
        mine = await closed_loop("127.0.0.1", own, first, connections=CONNECTIONS, seconds=SECONDS)
        base = await closed_loop("127.0.0.1", silent, second, connections=CONNECTIONS, seconds=SECONDS)
        _all_200(mine, base)
        ratios.append(mine.quantile(0.5) / base.quantile(0.5))
    print("  rounds:", " ".join(f"{ratio:.2f}" for ratio in ratios))
    return statistics.median(ratios)


def latency(kind: str) -> float:
    """The ratio beside a collector of this kind, with default settings."""
    own, silent = servers.free_port(), servers.free_port()
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as other,
        collector(kind) as endpoint,
        servers.arbiter(own, Path(one), {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}),
        servers.arbiter(silent, Path(other), {"ARBITER_TELEMETRY": "false"}),
    ):
        return asyncio.run(_compare(own, silent))


def rss(process: subprocess.Popen) -> float:
    """Resident memory, in MB."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def growth(env: dict[str, str]) -> float:
    """By how many MB a service grows over 50,000 evaluations, after 10,000 that do not count."""
    port = servers.free_port()
    with tempfile.TemporaryDirectory() as folder, servers.arbiter(port, Path(folder), env) as process:
        ask = requests()
        asyncio.run(_post(port, ask, WARM))
        before = rss(process)
        asyncio.run(_post(port, ask, COUNTED))
        return rss(process) - before


async def _post(port: int, ask: Callable[[], bytes], count: int) -> None:
    left = count
    while left > 0:
        load = await closed_loop("127.0.0.1", port, ask, connections=16, seconds=3.0, warmup=0.0)
        _all_200(load)
        left -= len(load.latencies)


def _all_200(*loads: Load) -> None:
    for load in loads:
        if set(load.statuses) != {200}:
            raise RuntimeError(f"answers other than 200: {load.statuses}")


def main() -> list[Row]:
    """Measure; prints as it goes."""
    rows = []
    for kind in KINDS:
        print(f"{kind} collector")
        ratio = latency(kind)
        rows.append(
            Row(
                f"/evaluate, median latency over that without telemetry, {kind} collector",
                ratio,
                "<= 1.1",
                ratio <= 1.1,
            )
        )
    silent = growth({"ARBITER_TELEMETRY": "false"})
    with collector("black hole") as endpoint:
        grown = growth({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "ARBITER_TRACE_RATIO": "1"})
    print(
        f"{COUNTED} evaluations: {grown:.1f} MB more with every one traced into a black hole, {silent:.1f} MB without"
    )
    more = grown - silent
    rows.append(Row(f"memory that {COUNTED} traced evaluations add beside a black hole, MB", more, "<= 20", more <= 20))
    return rows
