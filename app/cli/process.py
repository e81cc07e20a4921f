"""How a long-lived process of this service shares its time between requests, memory and threads."""

from __future__ import annotations

import gc
import sys

GENERATIONS = (5_000, 20, 50)
"""Allocations before the youngest objects are looked at, and how often the older ones are: a look stops all requests
for as long as it takes, which at 20,000 is 15 ms."""

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter when another one waits for it. The store's threads do a little work at a
time; with Python's own 5 ms the event loop stands still for that long after many a system call."""


def settle() -> None:
    """Call once when everything is built: what serves from here on neither stops to collect nor waits for its threads.

    What was built at start lives as long as the process. Looking through it again and again for garbage stops all
    requests for a tenth of a second each time, so it is put aside and only what requests allocate is looked through.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GENERATIONS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
