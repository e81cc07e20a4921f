"""`/runs` against local systems of 50 ms and of 0 ms, beside a bare loop; and the memory of a long run."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from adapters.breaker import CircuitBreaker
from adapters.http import JsonClient, new_http_client
from adapters.limits import LocalLimiter
from adapters.synapse_l4 import SynapseSystem
from layers.model import EvalExample
from tests.bench import servers
from tests.bench.rows import Row, at_least, at_most

CONCURRENCY = 64
ROUNDS = 3
EXAMPLES = {50: 4_000, 0: 8_000}
LONG_RUN = 100_000


def main() -> list[Row]:
    """Measure; prints as it goes."""
    return [*_throughput(50, 0.8), *_throughput(0, 0.5), *_memory()]


def _throughput(milliseconds: int, floor: float) -> list[Row]:
    n = EXAMPLES[milliseconds]
    with _system(milliseconds) as base, tempfile.TemporaryDirectory() as folder:
        port = servers.free_port()
        env = {"SYNAPSE_L4_BASE_URL": base, "ARBITER_SYNAPSE_SLOTS": "96"}
        with servers.arbiter(port, Path(folder), env):
            ratios, bare_rates = [], []
            for index in range(ROUNDS):
                bare = asyncio.run(_bare_loop(base, n))
                own = _run(port, _ndjson(n, recorded=False), "synapse-l4")
                bare_rates.append(bare)
                ratios.append(own / bare)
                print(
                    f"{milliseconds} ms, round {index + 1}: bare loop {bare:.0f}/s, run {own:.0f}/s, {ratios[-1]:.2f}"
                )
    name = f"/runs at {milliseconds} ms and concurrency {CONCURRENCY}, examples/s over a bare loop's"
    return [at_least(name, statistics.median(ratios), floor)]


def _memory() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        port = servers.free_port()
        with servers.arbiter(port, Path(folder)) as process:
            service = psutil.Process(process.pid)
            _run(port, _ndjson(100, recorded=True), "recorded")
            idle = service.memory_info().rss
            peak = idle

            def watch() -> None:
                nonlocal peak
                peak = max(peak, service.memory_info().rss)

            rate = _run(port, _ndjson(LONG_RUN, recorded=True), "recorded", watch)
    grown = (peak - idle) / 1e6
    print(f"{LONG_RUN} recorded examples at {rate:.0f}/s: RSS {idle / 1e6:.0f} MB idle, {peak / 1e6:.0f} MB at most")
    return [at_most(f"RSS of a {LONG_RUN:,}-example run above idle, MB", grown, 150)]


@contextmanager
def _system(milliseconds: int) -> Iterator[str]:
    port = servers.free_port()
    command = [sys.executable, "-m", "tests.bench.system", str(port), str(milliseconds)]
    with servers.running(command, port, "/"):
        yield f"http://127.0.0.1:{port}"


async def _bare_loop(base: str, n: int) -> float:
    """Examples per second of `CONCURRENCY` tasks that do nothing but ask, over the same client."""
    async with new_http_client(connect_timeout=2) as http:
        limiter = LocalLimiter("bench", slots=CONCURRENCY, evaluate_share=0.0)
        client = JsonClient(
            "bench", http, CircuitBreaker("bench"), limiter=limiter, timeout=25, max_response_bytes=1_000_000
        )
        system = SynapseSystem(client, base)
        ids = iter(range(n))

        async def worker() -> None:
            for index in ids:
                await system.predict(
                    EvalExample(id=str(index), input={"payload": {"n": index}}, expected_label="nominal")
                )

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENCY):
                group.create_task(worker())
        return n / (time.perf_counter() - began)


def _ndjson(n: int, *, recorded: bool) -> bytes:
    lines = []
    for index in range(n):
        example = {"id": str(index), "input": {"payload": {"n": index}}, "expected_label": "nominal"}
        if recorded:
            raw = {"status": "nominal", "anomaly_score": 0.1, "metric_value": index, "note": "x" * 300}
            example["prediction"] = {"id": str(index), "raw_output": raw, "label": "nominal", "confidence": 0.1}
        lines.append(json.dumps(example))
    return "\n".join(lines).encode()


def _run(port: int, dataset: bytes, system: str, watch: object = None) -> float:
    """Submit a run and wait for its end; examples per second between its own start and end."""
    request = json.dumps({"system": system, "options": {"concurrency": CONCURRENCY}})
    files = {"request": (None, request, "application/json"), "dataset": ("d.ndjson", dataset, "application/x-ndjson")}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as client:
        run = client.post("/runs", files=files).raise_for_status().json()
        while run["status"] not in {"succeeded", "failed", "cancelled"}:
            time.sleep(0.1)
            if callable(watch):
                watch()
            run = client.get(f"/runs/{run['run_id']}").raise_for_status().json()
    if run["status"] != "succeeded" or run["progress"]["n_failed"]:
        raise RuntimeError(f"the run ended as {run['status']}: {run['failure']} {run['progress']}")
    began, ended = (_seconds(run[name]) for name in ("started_at", "finished_at"))
    return float(run["progress"]["n_total"]) / (ended - began)


def _seconds(stamp: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(stamp).timestamp()
