"""How a long-lived process of this service treats its memory."""

from __future__ import annotations

import gc

GENERATIONS = (20_000, 20, 50)
"""Allocations before the youngest objects are looked at, and how often the older ones are."""


def settle_memory() -> None:
    """Call once when everything is built.

    What was built at start lives as long as the process. Looking through it again and again for garbage stops all
    requests for a tenth of a second each time, so it is put aside and only what requests allocate is looked through.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GENERATIONS)
