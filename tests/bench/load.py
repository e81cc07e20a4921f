"""A small HTTP/1.1 load generator on bare asyncio sockets, cheap enough not to be what is measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass
class Load:
    """What a load saw: `latencies` in seconds, one per answer; `statuses` counts by HTTP status."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.latencies) / self.seconds

    def quantile(self, q: float) -> float:
        """The q-quantile of the latencies, in seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def post(host: str, path: str, body: bytes) -> bytes:
    """A complete keep-alive POST of a JSON body."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Connection:
    """One keep-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to `request`."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        status, body = int(head[9:12]), b""
        lowered = head.lower()
        at = lowered.find(b"content-length:")
        if at >= 0:
            length = int(lowered[at + 15 : lowered.index(b"\r\n", at)])
            body = await self.reader.readexactly(length)
        return status, body

    async def ask(self, request: bytes) -> int:
        """Status of the answer to `request`."""
        return (await self.exchange(request))[0]

    def close(self) -> None:
        """Hang up."""
        self.writer.close()


async def open_connection(host: str, port: int) -> Connection:
    """Connect."""
    return Connection(*await asyncio.open_connection(host, port, limit=2**20))


async def closed_loop(
    host: str, port: int, requests: Callable[[], bytes], *, connections: int, seconds: float, warmup: float = 0.5
) -> Load:
    """As many requests as the server takes over `connections` connections, after `warmup` seconds that do not count."""
    load = Load()
    start = time.perf_counter() + warmup
    end = start + seconds

    async def worker() -> None:
        connection = await open_connection(host, port)
        while (sent := time.perf_counter()) < end:
            status = await connection.ask(requests())
            done = time.perf_counter()
            if sent >= start:
                load.latencies.append(done - sent)
                load.statuses[status] = load.statuses.get(status, 0) + 1
        connection.close()

    await asyncio.gather(*(worker() for _ in range(connections)))
    load.seconds = seconds
    return load


async def open_loop(
    host: str, port: int, requests: Callable[[], bytes], *, rate: float, connections: int, seconds: float
) -> Load:
    """Requests at a fixed `rate` per second, whatever the server does; latency counts from when each was due."""
    load = Load(seconds=seconds)
    idle: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(connections):
        idle.put_nowait(await open_connection(host, port))
    begin = time.perf_counter()

    async def one(due: float) -> None:
        connection = await idle.get()
        status = await connection.ask(requests())
        load.latencies.append(time.perf_counter() - due)
        load.statuses[status] = load.statuses.get(status, 0) + 1
        idle.put_nowait(connection)

    async with asyncio.TaskGroup() as group:
        for due in _schedule(begin, rate, seconds):
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            group.create_task(one(due))
    while not idle.empty():
        idle.get_nowait().close()
    return load


def _schedule(begin: float, rate: float, seconds: float) -> Iterator[float]:
    return (begin + index / rate for index in range(int(rate * seconds)))
