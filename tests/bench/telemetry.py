"""What telemetry costs `/evaluate`, with collectors that are sick in every way, against telemetry switched off."""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import servers
from tests.bench.evaluate import Row, body
from tests.bench.load import Load, closed_loop, post
from tests.telemetry.sick import KINDS, collector

CONNECTIONS = 4
ROUNDS = 16
SECONDS = 1.0
WARM, COUNTED = 10_000, 50_000


def requests() -> Callable[[], bytes]:
    """Evaluations with ever new ids."""
    counter = itertools.count()
    return lambda: post("127.0.0.1", "/evaluate", body(next(counter)))


@dataclass
class Side:
    """One of two services that are compared: its port and process, and what it has answered."""

    port: int
    process: subprocess.Popen
    ask: Callable[[], bytes] = field(default_factory=requests)
    answered: int = 0

    async def load(self) -> float:
        """The median latency under load, in seconds."""
        load = await closed_loop("127.0.0.1", self.port, self.ask, connections=CONNECTIONS, seconds=SECONDS, warmup=0.0)
        _all_200(load)
        self.answered += len(load.latencies)
        return load.quantile(0.5)

    def cpu(self) -> float:
        """Processor time of the whole process so far, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _compare(own: Side, silent: Side) -> tuple[float, float]:
    """Over rounds in turns: how much longer the median answer takes, and how much more processor time one costs."""
    await own.load()
    await silent.load()
    own.answered = silent.answered = 0
    spent = own.cpu(), silent.cpu()
    ratios = []
    for number in range(ROUNDS):
        if number % 2:
            base, mine = await silent.load(), await own.load()
        else:
            mine, base = await own.load(), await silent.load()
        ratios.append(mine / base)
    costs = (own.cpu() - spent[0]) / own.answered, (silent.cpu() - spent[1]) / silent.answered
    print(
        f"  rounds: {' '.join(f'{each:.2f}' for each in ratios)}; {costs[0] * 1e6:.0f} and {costs[1] * 1e6:.0f} us each"
    )
    return statistics.median(ratios), costs[0] / costs[1]


def compare(kind: str) -> tuple[float, float]:
    """The ratios of latency and of processor time beside a collector of this kind, with default settings."""
    own, silent = servers.free_port(), servers.free_port()
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as other,
        collector(kind) as endpoint,
        servers.arbiter(own, Path(one), {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}) as first,
        servers.arbiter(silent, Path(other), {"ARBITER_TELEMETRY": "false"}) as second,
    ):
        return asyncio.run(_compare(Side(own, first), Side(silent, second)))


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
        slower, dearer = compare(kind)
        rows += [
            Row(f"median latency over that without telemetry, {kind} collector", slower, "<= 1.1", slower <= 1.1),
            Row(f"processor time over that without telemetry, {kind} collector", dearer, "<= 1.1", dearer <= 1.1),
        ]
    silent = growth({"ARBITER_TELEMETRY": "false"})
    with collector("black hole") as endpoint:
        grown = growth({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "ARBITER_TRACE_RATIO": "1"})
    print(
        f"{COUNTED} evaluations: {grown:.1f} MB more with every one traced into a black hole, {silent:.1f} MB without"
    )
    more = grown - silent
    rows.append(Row(f"memory that {COUNTED} traced evaluations add beside a black hole, MB", more, "<= 20", more <= 20))
    return rows
