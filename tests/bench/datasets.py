"""Datasets of a million rows on a service of their own: stored, run by their hash, compared, read in every form.

`BENCH_ROWS=100000` takes fewer rows.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.bench import servers
from tests.bench.rows import Row, at_most
from tests.bench.submit import client, example, wait
from tests.bench.watching import Seen, watched

ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))
EACH = 100
"""One row in so many is changed, one removed and one added from the first version to the second."""

BLOCK = 1_000
POLICY = "[[regressions]]\ntolerated = 0.05\n[[regressions]]\nlabel = '*'\ntolerated = 0.05\n"
READ = {"NDJSON": "application/x-ndjson", "CSV": "text/csv", "Parquet": "application/vnd.apache.parquet"}
MOST_MB = 250.0


def main() -> list[Row]:
    """Measure; prints as it goes."""
    with tempfile.TemporaryDirectory() as folder:
        port = servers.free_port()
        with servers.arbiter(port, Path(folder), {"ARBITER_MAX_UPLOAD_BYTES": "4000000000"}) as process:
            upload(port, 0, 100)
            return Measured(port, process.pid).rows()


class Measured:
    """One service, asked one thing after the other."""

    def __init__(self, port: int, pid: int) -> None:
        self._port = port
        self._pid = pid
        self._idle = psutil.Process(pid).memory_info().rss

    def rows(self) -> list[Row]:
        """All that is measured, in order."""
        old, rows = self._upload(1)
        new, more = self._upload(2)
        rows += more
        before, more = self._run(old, 1)
        rows += more
        after, more = self._run(new, 2)
        rows += [*more, *self._gate(after, before), *self._diff(old, new)]
        for name, accept in READ.items():
            rows += self._read(new, name, accept)
        return rows

    def _upload(self, version: int) -> tuple[str, list[Row]]:
        with watched(self._pid) as seen:
            dataset = upload(self._port, version, ROWS)
        return dataset, self._memory(f"upload of version {version}", seen)

    def _run(self, dataset: str, version: int) -> tuple[str, list[Row]]:
        with watched(self._pid) as seen, client(self._port) as http:
            run = http.post("/runs", json={"system": "recorded", "dataset_id": dataset}).raise_for_status().json()
            wait(self._port, run["run_id"], every=1.0)
        return run["run_id"], self._memory(f"run on the hash of version {version}", seen)

    def _gate(self, run: str, baseline: str) -> list[Row]:
        body = {"policy": POLICY, "baseline": baseline}
        with watched(self._pid) as seen, client(self._port) as http:
            verdict = http.post(f"/runs/{run}/gate", json=body).raise_for_status().json()
        pairs = verdict["comparison"]["pairs"]
        found = [pairs[name]["count"] for name in ("missing", "added", "relabelled")]
        if found != [ROWS // EACH] * 3:
            raise RuntimeError(f"the gate found {found} missing, added and relabelled")
        return self._memory("gate over both runs", seen)

    def _diff(self, old: str, new: str) -> list[Row]:
        path, n = f"/datasets/{old}/diff/{new}", ROWS // EACH
        with watched(self._pid) as seen, client(self._port) as http:
            diff = http.get(path).raise_for_status().json()
        rows = self._memory("diff of two versions", seen)
        expected = {"added": n, "removed": n, "changed": n, "unchanged": ROWS - 2 * n}
        if diff["counts"] != expected:
            raise RuntimeError(f"the versions differ in {diff['counts']}, not in {expected}")
        with watched(self._pid) as seen, client(self._port) as http:
            items, cursor = 0, None
            while page := _page(http, path, cursor):
                items, cursor = items + len(page["items"]), page["next_cursor"]
                if cursor is None:
                    break
        if items != 3 * n:
            raise RuntimeError(f"the pages list {items} differences, not {3 * n}")
        return [*rows, *self._memory("all pages of the diff", seen)]

    def _read(self, dataset: str, name: str, accept: str) -> list[Row]:
        size = 0
        with watched(self._pid) as seen, client(self._port) as http:
            path = f"/datasets/{dataset}/examples"
            with http.stream("GET", path, headers={"accept": accept}) as response:
                for piece in response.raise_for_status().iter_raw():
                    size += len(piece)
        return self._memory(f"{name} of {size / 1e6:.0f} MB read", seen)

    def _memory(self, what: str, seen: Seen) -> list[Row]:
        above = (seen.peak - self._idle) / 1e6
        print(f"{what}: {seen.seconds:.1f} s, RSS at most {above:.0f} MB above {self._idle / 1e6:.0f} MB", flush=True)
        return [at_most(f"{ROWS:,} rows, {what}: RSS above idle, MB", above, MOST_MB)]


def _page(http: httpx.Client, path: str, cursor: str | None) -> dict[str, Any]:
    params = {"limit": 500} if cursor is None else {"limit": 500, "cursor": cursor}
    return dict(http.get(path, params=params).raise_for_status().json())


def upload(port: int, version: int, n: int) -> str:
    """The id of a stored dataset of `n` rows, sent while it is made."""
    with client(port) as http:
        headers = {"content-type": "application/x-ndjson"}
        response = http.post("/datasets", content=_body(version, n), headers=headers, params={"name": "bench"})
    if response.status_code != 201:
        raise RuntimeError(f"the dataset was not stored: {response.status_code} {response.text[:300]}")
    return str(response.json()["dataset_id"])


def _body(version: int, n: int) -> Iterator[bytes]:
    for start in range(0, n, BLOCK):
        rows = (_row(index, version) for index in range(start, min(n, start + BLOCK)))
        yield b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _row(index: int, version: int) -> dict[str, Any]:
    row = example(index, recorded=True)
    if version == 2 and index % EACH == 1:
        row["id"] = f"new-{index}"
    if version == 2 and index % EACH == 2:
        row["expected_label"] = "degraded"
    return row
