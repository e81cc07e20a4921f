"""`/evaluate` of an unflagged item, stored, with default telemetry, against a FastAPI route that does nothing."""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench import servers
from tests.bench.load import Load, closed_loop, open_loop, post
from tests.bench.rows import Row, at_least, at_most

CONNECTIONS = 32
ROUNDS = 5
SECONDS = 3.0
BODY_BYTES = 2_000


def body(index: int) -> bytes:
    """A Sentinel prediction of about 2 KB that nothing flags; each has an id of its own."""
    narrative = "A routine purchase that matches the usual pattern of this customer. "
    raw = {
        "source": "cache_miss", "is_threat": False, "message": "Transaction analysed.", "elapsed_ms": 5120,
        "risk_level": "low", "confidence": 0.93, "policy_refs": [], "narrative": "",
    }  # fmt: skip
    request = {"id": f"txn-{index}", "system": "sentinel-l7", "raw_output": raw, "label": "low", "confidence": 0.93}
    missing = BODY_BYTES - len(json.dumps(request))
    raw["narrative"] = (narrative * (missing // len(narrative) + 1))[:missing]
    return json.dumps(request).encode()


def requests(path: str) -> Callable[[], bytes]:
    """Requests with ever new ids."""
    counter = itertools.count()
    return lambda: post("127.0.0.1", path, body(next(counter)))


def main() -> list[Row]:
    """Measure; prints as it goes."""
    return asyncio.run(_measure())


async def _measure() -> list[Row]:
    noop_port, own_port = servers.free_port(), servers.free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        servers.noop(noop_port),
        servers.arbiter(own_port, Path(folder)),
    ):
        noop, own = requests("/noop"), requests("/evaluate")
        ratios, rates = [], []
        for index in range(ROUNDS):
            base = await closed_loop("127.0.0.1", noop_port, noop, connections=CONNECTIONS, seconds=SECONDS)
            mine = await closed_loop("127.0.0.1", own_port, own, connections=CONNECTIONS, seconds=SECONDS)
            _all_200(base, mine)
            ratios.append(mine.rate / base.rate)
            rates.append(mine.rate)
            print(f"round {index + 1}: no-op {base.rate:.0f}/s, /evaluate {mine.rate:.0f}/s, {ratios[-1]:.2f}")
        half = statistics.median(rates) / 2
        tails = []
        for _ in range(ROUNDS):
            base = await open_loop("127.0.0.1", noop_port, noop, rate=half, connections=CONNECTIONS, seconds=SECONDS)
            mine = await open_loop("127.0.0.1", own_port, own, rate=half, connections=CONNECTIONS, seconds=SECONDS)
            _all_200(base, mine)
            tails.append(mine.quantile(0.99) / base.quantile(0.99))
            print(
                f"at {half:.0f}/s: p99 no-op {base.quantile(0.99) * 1000:.1f} ms, "
                f"/evaluate {mine.quantile(0.99) * 1000:.1f} ms, {tails[-1]:.2f}"
            )
    rate, tail = statistics.median(ratios), statistics.median(tails)
    return [
        at_least("/evaluate, requests/s over the no-op route's", rate, 0.3),
        at_most("/evaluate at half its rate, p99 over the no-op route's at the same rate", tail, 2),
    ]


def _all_200(*loads: Load) -> None:
    for load in loads:
        if set(load.statuses) != {200}:
            raise RuntimeError(f"answers other than 200: {load.statuses}")
