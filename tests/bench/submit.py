"""Submit a run to a service and wait for its end, as a client would."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

ENDED = frozenset({"succeeded", "failed", "cancelled"})


def example(index: int, *, recorded: bool) -> dict[str, Any]:
    """An example for Synapse; with a recorded prediction of half a kilobyte where it is not to be asked."""
    made: dict[str, Any] = {"id": str(index), "input": {"payload": {"n": index}}, "expected_label": "nominal"}
    if recorded:
        raw = {"status": "nominal", "anomaly_score": 0.1, "metric_value": index, "note": "x" * 300}
        made["prediction"] = {"id": str(index), "raw_output": raw, "label": "nominal", "confidence": 0.1}
    return made


def write_dataset(path: Path, n: int, *, recorded: bool) -> Path:
    """A file of NDJSON, line by line."""
    with path.open("w") as file:
        file.writelines(_lines(n, recorded=recorded))
    return path


def _lines(n: int, *, recorded: bool) -> Iterator[str]:
    return (json.dumps(example(index, recorded=recorded)) + "\n" for index in range(n))


def submit(port: int, dataset: Path, system: str, **options: Any) -> str:
    """The id of the new run."""
    request = json.dumps({"system": system, "options": options})
    with client(port) as http, dataset.open("rb") as file:
        part = ("d.ndjson", file, "application/x-ndjson")
        files = {"request": (None, request, "application/json"), "dataset": part}
        return str(http.post("/runs", files=files).raise_for_status().json()["run_id"])


def wait(port: int, run_id: str, watch: Callable[[], None] = lambda: None, *, every: float = 0.2) -> dict[str, Any]:
    """The run once it has succeeded; anything else is an error. `watch` is called again and again."""
    with client(port) as http:
        while (run := http.get(f"/runs/{run_id}").raise_for_status().json())["status"] not in ENDED:
            watch()
            time.sleep(every)
    if run["status"] != "succeeded" or run["progress"]["n_failed"]:
        raise RuntimeError(f"the run ended as {run['status']}: {run['failure']} {run['progress']}")
    return dict(run)


def rate_of(run: dict[str, Any]) -> float:
    """Examples per second between the run's own start and end."""
    began, ended = (datetime.fromisoformat(run[name]).timestamp() for name in ("started_at", "finished_at"))
    return float(run["progress"]["n_total"]) / (ended - began)


def client(port: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=None)  # noqa: S113 - a million rows take their time
