"""How much memory a process takes while something is done with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

EVERY_S = 0.05


@dataclass
class Seen:
    """The largest resident set that was seen, in bytes, and how long it was looked at, in seconds."""

    peak: int = 0
    seconds: float = 0.0


@contextmanager
def watched(pid: int) -> Iterator[Seen]:
    """Look at the process again and again until the block ends."""
    process, seen, over = psutil.Process(pid), Seen(), threading.Event()

    def look() -> None:
        while not over.wait(EVERY_S):
            seen.peak = max(seen.peak, process.memory_info().rss)

    thread = threading.Thread(target=look)
    began = time.perf_counter()
    thread.start()
    try:
        yield seen
    finally:
        seen.seconds = time.perf_counter() - began
        over.set()
        thread.join()
        seen.peak = max(seen.peak, process.memory_info().rss)
