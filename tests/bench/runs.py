"""`/runs` against a local system, over the throughput of a bare loop over the same client; memory of a large run."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from adapters.breaker import CircuitBreaker
from adapters.http import JsonClient, Reply, new_http_client
from adapters.limits import LocalLimiter
from app.runs.dataset import Source
from app.runs.model import TERMINAL, RunOptions, RunRequest, RunStatus
from app.runs.service import RunService
from app.runs.start import open_runs
from app.settings import RunSettings, StoreSettings
from app.store.database import Database
from layers.model import EvalDataset, EvalExample, EvalPrediction
from layers.ports import System
from layers.profile import SystemProfile
from tests.bench import servers
from tests.bench.evaluate import Row

CONCURRENCY = 64
ROUNDS = 5
LARGE = 100_000
"""Examples of the run whose memory is looked at."""


class Target:
    """The system under test, over the service's own client."""

    def __init__(self, client: JsonClient, url: str) -> None:
        self._client = client
        self._url = url

    async def predict(self, example: EvalExample) -> EvalPrediction:
        return await self._client.call("POST", self._url, json=example.input, read=lambda reply: read(reply, example))


def read(reply: Reply, example: EvalExample) -> EvalPrediction:
    """The prediction in a reply."""
    body = reply.json()
    return EvalPrediction(id=example.id or "", raw_output=body, label=body["label"], confidence=body["confidence"])


def examples(size: int) -> EvalDataset:
    """A dataset of about 300 bytes an example."""
    filler = "y" * 200
    return EvalDataset(
        examples=tuple(
            EvalExample(id=str(n), input={"n": n, "filler": filler}, expected_label="high") for n in range(size)
        )
    )


async def bare(target: Target, dataset: EvalDataset) -> float:
    """Predictions a second of a loop that does nothing else."""
    waiting = iter(dataset.examples)

    async def work() -> None:
        for example in waiting:
            await target.predict(example)

    begin = time.perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(CONCURRENCY):
            group.start_soon(work)
    return len(dataset.examples) / (time.perf_counter() - begin)


async def durable(service: RunService, dataset_id: str, size: int) -> float:
    """Predictions a second of a run, from its acceptance to its end."""
    begin = time.perf_counter()
    request = RunRequest(system="target", dataset_id=dataset_id, options=RunOptions(concurrency=CONCURRENCY))
    run_id = (await service.submit(request)).run_id
    while (run := await service.get(run_id)).status not in TERMINAL:  # noqa: ASYNC110 - as a client has to
        await anyio.sleep(0.02)
    if run.status is not RunStatus.SUCCEEDED:
        raise RuntimeError(str(run.failure))
    return size / (time.perf_counter() - begin)


@contextmanager
def target_server(delay_ms: float) -> Iterator[int]:
    """The target in a process of its own; its port."""
    port = servers.free_port()
    command = [sys.executable, "-m", "uvicorn", "tests.bench.target:app", "--port", str(port)]
    command += ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "error"]
    with servers.running(command, port, "/", {"TARGET_DELAY_MS": str(delay_ms)}):
        yield port


async def compare(delay_ms: float, size: int) -> float:
    """The median ratio of a run to the bare loop."""
    with tempfile.TemporaryDirectory() as folder, target_server(delay_ms) as port:
        http = new_http_client(connect_timeout=2)
        client = JsonClient(
            "target", http, CircuitBreaker("target"), limiter=LocalLimiter("target", slots=2 * CONCURRENCY), timeout=20,
            max_response_bytes=1_000_000,
        )  # fmt: skip
        target = Target(client, f"http://127.0.0.1:{port}/")
        database = await Database.open(StoreSettings(url=f"sqlite:///{folder}/bench.db"))
        system = System(SystemProfile(name="target"), open=lambda _driver: target)
        async with open_runs(database, {"target": system}, RunSettings()) as service:
            dataset = examples(size)
            first = await service.submit(RunRequest(system="target", options=RunOptions(limit=1)), dataset)
            ratios = []
            for number in range(ROUNDS):
                base, mine = await bare(target, dataset), await durable(service, first.dataset_id, size)
                ratios.append(mine / base)
                print(f"{delay_ms:g} ms, round {number + 1}: bare {base:.0f}/s, /runs {mine:.0f}/s, {mine / base:.2f}")
        await database.close()
        await http.aclose()
    return statistics.median(ratios)


# --- memory -----------------------------------------------------------------------------------------------------------


class Immediate:
    """Answers at once, with half a kilobyte."""

    async def predict(self, example: EvalExample) -> EvalPrediction:
        return EvalPrediction(id=example.id or "", raw_output={"text": "z" * 500}, label="high", confidence=0.5)


def rss() -> float:
    """Resident memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def memory() -> None:
    """Print by how many MB a large run raises the memory of a process that was idle before."""
    with tempfile.TemporaryDirectory() as folder:
        database = await Database.open(StoreSettings(url=f"sqlite:///{folder}/bench.db"))
        path = Path(folder) / "large.ndjson"
        with path.open("w") as file:
            file.writelines(
                f'{{"expected_label": "high", "input": {{"n": {n}, "filler": "{"y" * 200}"}}}}\n' for n in range(LARGE)
            )
        system = System(SystemProfile(name="target"), open=lambda _driver: Immediate())
        async with open_runs(database, {"target": system}, RunSettings()) as service:
            await _run_file(service, path, limit=100)
            idle, most = rss(), 0.0

            async def watch() -> None:
                nonlocal most
                while True:
                    most = max(most, rss())
                    await anyio.sleep(0.05)

            async with anyio.create_task_group() as group:
                group.start_soon(watch)
                begin = time.perf_counter()
                await _run_file(service, path, limit=None)
                rate = LARGE / (time.perf_counter() - begin)
                group.cancel_scope.cancel()
        await database.close()
    print(most - idle, idle, rate)


async def _run_file(service: RunService, path: Path, limit: int | None) -> None:
    with path.open("rb") as file:
        request = RunRequest(system="target", options=RunOptions(limit=limit, concurrency=CONCURRENCY))
        run_id = (await service.submit(request, Source(file, "ndjson"))).run_id
    while (await service.get(run_id)).status not in TERMINAL:  # noqa: ASYNC110 - as a client has to
        await anyio.sleep(0.05)
    await service.report(run_id)


def main() -> list[Row]:
    """Measure; prints as it goes."""
    slow = asyncio.run(compare(50, 4_000))
    fast = asyncio.run(compare(0, 8_000))
    command = [sys.executable, "-c", "import asyncio; from tests.bench.runs import memory; asyncio.run(memory())"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    grown, idle, rate = map(float, said)
    print(f"{LARGE} examples: idle {idle:.0f} MB, at most {grown:.0f} MB more, {rate:.0f} examples/s")
    return [
        Row("/runs against a 50 ms system, over a bare loop at concurrency 64", slow, ">= 0.8", slow >= 0.8),
        Row("/runs against a 0 ms system, over a bare loop at concurrency 64", fast, ">= 0.5", fast >= 0.5),
        Row(f"memory of a run of {LARGE} examples above idle, MB", grown, "<= 150", grown <= 150),
    ]
