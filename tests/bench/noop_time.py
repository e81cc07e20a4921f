"""How long the route that does nothing takes for a request: what a piece of work in the process is measured against."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable

from tests.bench import servers
from tests.bench.evaluate import CONNECTIONS, requests
from tests.bench.load import closed_loop

ROUNDS = 5
BATCH_SECONDS = 0.4


def against_noop(pieces: dict[str, Callable[[int], object]]) -> dict[str, float]:
    """Each piece's median time over the route's time for a request, measured in turn, as the median of the rounds.

    A piece is called with a number that is another one each time, so that it can't answer from memory. The route's
    time is one over its rate with all connections busy.
    """
    return asyncio.run(_measure(pieces))


async def _measure(pieces: dict[str, Callable[[int], object]]) -> dict[str, float]:
    ratios: dict[str, list[float]] = {name: [] for name in pieces}
    port = servers.free_port()
    with servers.noop(port):
        for index in range(ROUNDS):
            base = (
                1 / (await closed_loop("127.0.0.1", port, requests("/noop"), connections=CONNECTIONS, seconds=2)).rate
            )
            for name, piece in pieces.items():
                took = _median(piece, 1_000_000 * index)
                ratios[name].append(took / base)
                print(f"round {index + 1}: no-op {base * 1e6:.0f} us, {name} {took * 1e6:.0f} us, {took / base:.2f}")
    return {name: statistics.median(found) for name, found in ratios.items()}


def _median(piece: Callable[[int], object], first: int) -> float:
    times = []
    end = time.perf_counter() + BATCH_SECONDS
    number = first
    while (begun := time.perf_counter()) < end or len(times) < 20:
        piece(number)
        times.append(time.perf_counter() - begun)
        number += 1
    return statistics.median(times)
