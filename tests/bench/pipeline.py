"""A flagged `/evaluate` with every layer, against the time that its remotes take: one alone, and a hundred at once."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.bench import servers
from tests.bench.load import open_connection, post
from tests.bench.rows import Row, at_most
from tests.standins import FLAGGED

ONES = 15
AT_ONCE = 100
ROUNDS = 3
MOST_MS = 860
"""Providers at 300 ms beside embedding and index, then the judge at 500 ms, and 60 ms of our own."""

_numbers = count(1)


def main() -> list[Row]:
    """Measure; prints as it goes."""
    return asyncio.run(_measure())


def body() -> bytes:
    """A flagged prediction that no other one is like, so that nobody answers from memory."""
    number = next(_numbers)
    amount = 9000 + number / 100
    own = {**FLAGGED["input"], "amount": amount, "id": f"txn-{number}"}
    narrative = f"Two deposits of {amount} USD on one day, see AML-BSA-001."
    raw_output = {**FLAGGED["raw_output"], "narrative": narrative}
    return json.dumps({**FLAGGED, "id": f"txn-{number}", "input": own, "raw_output": raw_output}).encode()


async def _measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, _remotes() as remotes:
        port = servers.free_port()
        with servers.arbiter(port, Path(folder), _settings(remotes)):
            await _at_once(port, 4)  # handshakes, first connections
            ones = [await _at_once(port, 1) for _ in range(ONES)]
            one = statistics.median(ones)
            many = [await _at_once(port, AT_ONCE) for _ in range(ROUNDS)]
            breakers = await asyncio.to_thread(_breakers, port)
    print(f"one: p50 {one * 1000:.0f} ms, {AT_ONCE} at once: {', '.join(f'{each * 1000:.0f}' for each in many)} ms")
    closed = sum(state["state"] != "closed" for state in breakers.values())
    return [
        at_most("flagged evaluation, p50 in ms, remotes at 300, 30 + 30 and 500 ms", one * 1000, MOST_MS),
        at_most(f"{AT_ONCE} flagged evaluations at once over one", statistics.median(many) / one, 1.5),
        at_most("breakers not closed after it", closed, 0),
    ]


async def _at_once(port: int, how_many: int) -> float:
    """Seconds until all of so many evaluations, begun together, are answered; each must have heard every layer."""
    connections = [await open_connection("127.0.0.1", port) for _ in range(how_many)]
    requests = [post("127.0.0.1", "/evaluate", body()) for _ in connections]
    begun = time.perf_counter()
    answers = await asyncio.gather(
        *(connection.exchange(request) for connection, request in zip(connections, requests, strict=True))
    )
    took = time.perf_counter() - begun
    for status, answer in answers:
        said = json.loads(answer)
        if status != 200 or said["degraded"] or not said["escalated"]:
            raise RuntimeError(f"not an answer of every layer: {status} {said}")
    for connection in connections:
        connection.close()
    return took


def _breakers(port: int) -> dict[str, dict[str, object]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/breakers") as answer:
        shown: dict[str, dict[str, object]] = json.load(answer)
    return shown


@contextmanager
def _remotes() -> Iterator[str]:
    port = servers.free_port()
    with servers.running([sys.executable, "-m", "tests.bench.remotes", str(port)], port, "/"):
        yield f"http://127.0.0.1:{port}"


def _settings(remotes: str) -> dict[str, str]:
    """All remotes at one address, rate limits off, slots to spare."""
    return {
        "SENTINEL_L7_MCP_URL": f"{remotes}/mcp",
        "ARBITER_SENTINEL_DRIVERS": "gemini,openrouter,ollama",
        "ARBITER_SENTINEL_RATE_PER_MINUTE": "off",
        "ARBITER_SENTINEL_SLOTS": "512",
        "OLLAMA_JUDGE_HOST": remotes,
        "OLLAMA_URL": remotes,
        "UPSTASH_VECTOR_REST_URL": remotes,
        "UPSTASH_VECTOR_REST_TOKEN": "token",
        "ARBITER_POLICY_SOURCE": "embedded",
    }
