"""Bodies too large for memory: streamed to a temporary file, bounded, gone when done."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from mmap import ACCESS_READ, mmap
from typing import BinaryIO

from starlette.requests import Request

from app.api.body import chunks

_FLUSH = 1 << 20
"""Bytes gathered before a write to the file, which happens in a thread."""


@asynccontextmanager
async def spooled(request: Request, limit: int) -> AsyncIterator[BinaryIO]:
    """The request's body as a nameless file, at its start. Raises `TooLarge` beyond `limit` bytes."""
    with tempfile.TemporaryFile() as file:
        held: list[bytes] = []
        size = 0
        async for part in chunks(request, limit):
            held.append(part)
            size += len(part)
            if size >= _FLUSH:
                await asyncio.to_thread(file.writelines, held)
                held, size = [], 0
        await asyncio.to_thread(file.writelines, held)
        file.seek(0)
        yield file


def mapped(file: BinaryIO) -> mmap | bytes:
    """The file's bytes without reading them into memory; the file may be closed before they are."""
    file.flush()
    if file.seek(0, 2) == 0:
        return b""
    return mmap(file.fileno(), 0, access=ACCESS_READ)
