"""`/evaluate` at a tenth of its ceiling, quiet and beside a run of 10,000 examples against a system of 20 ms."""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

from tests.bench import servers
from tests.bench.evaluate import requests
from tests.bench.load import Load, closed_loop, open_loop
from tests.bench.rows import Row, at_most
from tests.bench.submit import client, submit, wait, write_dataset
from tests.postgres import postgres_server

EXAMPLES = 10_000
MILLISECONDS = 20
CONNECTIONS = 32
SECONDS = 8.0
ROUNDS = 3


def main() -> list[Row]:
    """Measure; prints as it goes."""
    return [*_same_process(), *_separate_process()]


def _same_process() -> list[Row]:
    with ExitStack() as stack:
        folder, env = _surroundings(stack)
        port = servers.free_port()
        stack.enter_context(servers.arbiter(port, folder, env))
        ratio = _measure(port, folder, "in the same process, SQLite")
    return [at_most("p99 of /evaluate beside a run in the same process, over the quiet one", ratio, 3)]


def _separate_process() -> list[Row]:
    with ExitStack() as stack:
        folder, env = _surroundings(stack)
        url = stack.enter_context(stack.enter_context(postgres_server()).migrated_database())
        env |= {"ARBITER_DATABASE_URL": url, "ARBITER_LOG_KEY_FILE": str(folder / "log.key")}
        port = servers.free_port()
        stack.enter_context(servers.arbiter(port, folder, {**env, "ARBITER_RUN_WORK": "false"}))
        stack.enter_context(servers.worker(env))
        ratio = _measure(port, folder, "in a worker of its own, PostgreSQL")
    return [at_most("p99 of /evaluate beside a run in a worker process, over the quiet one", ratio, 2)]


def _surroundings(stack: ExitStack) -> tuple[Path, dict[str, str]]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    port = servers.free_port()
    command = [sys.executable, "-m", "tests.bench.system", str(port), str(MILLISECONDS)]
    stack.enter_context(servers.running(command, port, "/"))
    return folder, {"SYNAPSE_L4_BASE_URL": f"http://127.0.0.1:{port}", "ARBITER_TELEMETRY": "false"}


def _measure(port: int, folder: Path, where: str) -> float:
    dataset = write_dataset(folder / "dataset.ndjson", EXAMPLES, recorded=False)
    own = requests("/evaluate")
    ceiling = asyncio.run(closed_loop("127.0.0.1", port, own, connections=CONNECTIONS, seconds=4)).rate
    ratios = []
    for index in range(ROUNDS):
        quiet = _load(port, own, ceiling / 10)
        run_id = submit(port, dataset, "synapse-l4")
        ended = threading.Event()
        waiter = threading.Thread(target=_wait, args=(port, run_id, ended))
        waiter.start()
        busy = _load(port, own, ceiling / 10)
        if ended.is_set():
            raise RuntimeError("the run was over before the load was")
        _cancel(port, run_id)
        waiter.join()
        ratios.append(busy.quantile(0.99) / quiet.quantile(0.99))
        print(
            f"{where}, round {index + 1}, {ceiling / 10:.0f}/s: p99 {quiet.quantile(0.99) * 1000:.1f} ms quiet, "
            f"{busy.quantile(0.99) * 1000:.1f} ms beside a run, {ratios[-1]:.2f}"
        )
    return statistics.median(ratios)


def _load(port: int, own: object, rate: float) -> Load:
    load = asyncio.run(open_loop("127.0.0.1", port, own, rate=rate, connections=CONNECTIONS, seconds=SECONDS))  # type: ignore[arg-type]
    if set(load.statuses) != {200}:
        raise RuntimeError(f"answers other than 200: {load.statuses}")
    return load


def _wait(port: int, run_id: str, ended: threading.Event) -> None:
    try:
        wait(port, run_id, every=1.0)
    except RuntimeError:  # it was cancelled
        return
    ended.set()


def _cancel(port: int, run_id: str) -> None:
    with client(port) as http:
        http.post(f"/runs/{run_id}/cancel").raise_for_status()
