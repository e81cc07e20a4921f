"""Identifiers and times of stored records."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime

_lock = threading.Lock()
_last = 0
"""Milliseconds and a 12-bit counter of the newest identifier, so that those of one process strictly grow."""

_POOL_BYTES = 4096
_pool = b""


def random_bytes(size: int) -> bytes:
    """Random bytes from the operating system, fetched in larger pieces: asking it each time is what costs."""
    global _pool  # noqa: PLW0603 - what is left of the last piece
    if size > _POOL_BYTES:
        return os.urandom(size)
    with _lock:
        if len(_pool) < size:
            _pool = os.urandom(_POOL_BYTES)
        taken, _pool = _pool[:size], _pool[size:]
    return taken


def _forget_pool() -> None:
    global _pool  # noqa: PLW0603
    _pool = b""


os.register_at_fork(after_in_child=_forget_pool)  # parent and child must not draw the same bytes


def uuid7() -> str:
    """A UUIDv7 (RFC 9562) as its 36-character text; those made by one process sort in the order they were made."""
    global _last  # noqa: PLW0603 - the order within a millisecond needs one memory per process
    stamp = (time.time_ns() // 1_000_000) << 12
    with _lock:
        _last = stamp = max(stamp, _last + 1)
    digits = f"{stamp >> 12:012x}7{stamp & 0xFFF:03x}"
    tail = f"{int.from_bytes(random_bytes(8)) >> 2 | 0x8000000000000000:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:]}-{tail[:4]}-{tail[4:]}"


def now() -> str:
    """The time as RFC 3339 in UTC with microseconds and `Z`; such texts sort by time."""
    return to_text(datetime.now(UTC))


def to_text(moment: datetime) -> str:
    """`moment`, which must know its zone, as `now` writes it."""
    if moment.tzinfo is None:
        raise ValueError("a time without a zone has no place on the record")
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"
