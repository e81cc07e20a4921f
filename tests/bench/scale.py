"""Recorded runs from 10,000 examples on, on SQLite, and one run shared by two workers on PostgreSQL.

`BENCH_LARGEST=1000000` goes up to a million examples; without it the largest run has 100,000.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
from sqlalchemy import create_engine, delete, func, insert, select

from app.runs.tables import records
from tests.bench import servers
from tests.bench.rows import Row, at_least, at_most
from tests.bench.submit import client, rate_of, submit, wait, write_dataset
from tests.bench.watching import watched
from tests.postgres import postgres_server

SIZES = (10_000, 100_000, 1_000_000)
LARGEST = int(os.environ.get("BENCH_LARGEST", "100000"))
BATCH = 500
WRITTEN = ("text/html", "text/markdown")

SHARED = 5_000
WORKER_CONCURRENCY = 16
SHARED_ROUNDS = 3


def main() -> list[Row]:
    """Measure; prints as it goes."""
    return [*_recorded(), *_two_workers()]


# --- a long run of recorded predictions -------------------------------------------------------------------------------


def _recorded() -> list[Row]:
    sizes = [size for size in SIZES if size <= LARGEST]
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), servers.free_port()
        with servers.arbiter(port, folder, {"ARBITER_MAX_UPLOAD_BYTES": "4000000000"}) as process:
            service = psutil.Process(process.pid)
            _run(port, folder, 100)
            idle = service.memory_info().rss
            seconds = []
            for size in sizes:
                peak, took = _measured(port, folder, size, service)
                seconds.append(took)
                print(f"{size:>9,}: RSS at most {(peak - idle) / 1e6:.0f} MB above {idle / 1e6:.0f} MB")
            bare = _bare(folder / "bench.db", sizes[-1])
            own, reported = sizes[-1] / seconds[-1], _report_seconds(port)
            written = [row for form in WRITTEN for row in _written(port, process.pid, idle, form)]
            written += _gated(port, process.pid, idle)
            print(f"bare batches of {BATCH}: {bare:.0f}/s; scored and stored: {own:.0f}/s; report in {reported:.1f} s")
    n = f"{sizes[-1]:,} recorded examples"
    per_example = [took / size for took, size in zip(seconds, sizes, strict=True)]
    return [
        at_most(f"RSS above idle in a run of {n}, MB", (peak - idle) / 1e6, 250),
        at_most(f"report of {n}, s", reported, 60),
        at_least(f"{n} scored and stored, over bare batches of the same rows", own / bare, 0.25),
        at_most(
            f"time for each example at {sizes[-1]:,} over that at {sizes[0]:,}", per_example[-1] / per_example[0], 1.5
        ),
        *written,
    ]


def _run(port: int, folder: Path, size: int) -> str:
    dataset = write_dataset(folder / "dataset.ndjson", size, recorded=True)
    run_id = submit(port, dataset, "recorded")
    wait(port, run_id)
    return run_id


def _measured(port: int, folder: Path, size: int, service: psutil.Process) -> tuple[int, float]:
    """Peak memory while it is uploaded, run and reported; seconds of the run itself."""
    peak = 0

    def watch() -> None:
        nonlocal peak
        peak = max(peak, service.memory_info().rss)

    dataset = write_dataset(folder / "dataset.ndjson", size, recorded=True)
    began = time.perf_counter()
    run_id = submit(port, dataset, "recorded")
    uploaded = time.perf_counter() - began
    dataset.unlink()
    watch()
    run = wait(port, run_id, watch, every=max(0.2, size / 200_000))
    took = size / rate_of(run)
    began = time.perf_counter()
    with client(port) as http:
        http.get(f"/runs/{run_id}/report").raise_for_status()
    watch()
    print(
        f"{size:>9,}: upload {uploaded:.1f} s, run {took:.1f} s ({size / took:.0f}/s), "
        f"report {time.perf_counter() - began:.2f} s"
    )
    return peak, took


def _report_seconds(port: int) -> float:
    with client(port) as http:
        run_id = http.get("/runs", params={"limit": 1}).json()["items"][0]["run_id"]
        began = time.perf_counter()
        http.get(f"/runs/{run_id}/report").raise_for_status()
    return time.perf_counter() - began


def _written(port: int, pid: int, idle: int, form: str) -> list[Row]:
    """The report of the newest run as people read it."""
    with client(port) as http:
        run = http.get("/runs", params={"limit": 1}).json()["items"][0]
        with watched(pid) as seen:
            http.get(f"/runs/{run['run_id']}/report", headers={"accept": form}).raise_for_status()
    what = f"{form} of {run['progress']['n_total']:,} recorded examples"
    return [at_most(f"{what}, s", seen.seconds, 60), at_most(f"{what}, MB above idle", (seen.peak - idle) / 1e6, 250)]


def _gated(port: int, pid: int, idle: int) -> list[Row]:
    """A gate on the newest run with itself as the baseline: every example is paired, along a path too."""
    policy = "min_n = 1\n[[regressions]]\ntolerated = 0.01\n[[regressions]]\nlabel = '*'\ntolerated = 0.1\n"
    policy += "[[regressions]]\nslice = { path = '/input/payload/n' }\nseverity = 'warn'\n"
    with client(port) as http:
        run = http.get("/runs", params={"limit": 1}).json()["items"][0]
        with watched(pid) as seen:
            body = {"policy": policy, "baseline": run["run_id"]}
            verdict = http.post(f"/runs/{run['run_id']}/gate", json=body).raise_for_status().json()
    n = verdict["comparison"]["strict"]["n"]
    print(f"gate over {n:,} pairs: {verdict['verdict']}, {seen.seconds:.1f} s")
    what = f"gate of {n:,} pairs"
    return [at_most(f"{what}, s", seen.seconds, 60), at_most(f"{what}, MB above idle", (seen.peak - idle) / 1e6, 250)]


def _bare(path: Path, most: int) -> float:
    """Rows per second of the same records put into the same table of the same file again, a commit for each batch.

    Through SQLAlchemy Core, which is what a bare loop would use here.
    """
    n, engine = min(most, 100_000), create_engine(f"sqlite:///{path}", connect_args={"timeout": 30})
    with engine.connect() as conn:
        conn.exec_driver_sql("PRAGMA synchronous=NORMAL")
        newest = conn.scalar(select(func.max(records.c.run_no))) or 0
        query = select(records).where(records.c.run_no == newest).limit(n)
        again = [{**row, "run_no": -newest} for row in conn.execute(query).mappings()]
        conn.rollback()
        began = time.perf_counter()
        for start in range(0, len(again), BATCH):
            conn.execute(insert(records), again[start : start + BATCH])
            conn.commit()
        took = time.perf_counter() - began
        conn.execute(delete(records).where(records.c.run_no == -newest))
        conn.commit()
    engine.dispose()
    return len(again) / took


# --- one run, two workers ---------------------------------------------------------------------------------------------


def _two_workers() -> list[Row]:
    ratios = []
    with postgres_server() as postgres, postgres.migrated_database() as url, ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        system, port = servers.free_port(), servers.free_port()
        stack.enter_context(
            servers.running([sys.executable, "-m", "tests.bench.system", str(system), "50"], system, "/")
        )
        env = {
            "ARBITER_DATABASE_URL": url,
            "ARBITER_LOG_KEY_FILE": str(folder / "log.key"),
            "SYNAPSE_L4_BASE_URL": f"http://127.0.0.1:{system}",
            "ARBITER_TELEMETRY": "false",
        }
        stack.enter_context(servers.arbiter(port, folder, {**env, "ARBITER_RUN_WORK": "false"}))
        dataset = write_dataset(folder / "dataset.ndjson", SHARED, recorded=False)
        for index in range(SHARED_ROUNDS):
            rates = []
            for n_workers in (1, 2):
                with ExitStack() as crew:
                    for _ in range(n_workers):
                        crew.enter_context(servers.worker(env))
                    time.sleep(8)  # both are up: how fast they start is not what is measured
                    run = wait(port, submit(port, dataset, "synapse-l4", concurrency=WORKER_CONCURRENCY))
                    rates.append(rate_of(run))
            ratios.append(rates[1] / rates[0])
            print(f"round {index + 1}: one worker {rates[0]:.0f}/s, two {rates[1]:.0f}/s, {ratios[-1]:.2f}")
    name = f"two workers over one, {SHARED:,} examples at 50 ms, {WORKER_CONCURRENCY} at once each"
    return [at_least(name, statistics.median(ratios), 1.8)]
