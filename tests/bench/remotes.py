"""Every remote of a flagged evaluation, each answering after its time: `python -m tests.bench.remotes PORT`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import uvloop

from tests.standins import CONFIRMED, neighbour, ollama

PROVIDER, VECTORS, JUDGE = 0.3, 0.03, 0.5
"""Seconds that a provider, the embedder and the index each, and the judge take."""

_VERDICT = {
    "source": "driver_override", "is_threat": True, "message": "m", "elapsed_ms": 300, "risk_level": "high",
    "narrative": "Above the usual range.", "confidence": 0.8, "policy_refs": [],
}  # fmt: skip
_CONTENT = {"content": [{"type": "text", "text": json.dumps(_VERDICT)}], "isError": False}
_FIXED: dict[str, tuple[float, Any]] = {
    "/api/embeddings": (VECTORS, {"embedding": [1.0, *[0.0] * 767]}),
    "/info": (VECTORS, {"result": {"dimension": 768}}),
    "/query/transactions": (VECTORS, {"result": [neighbour("txn_0", "high")]}),
    "/api/chat": (JUDGE, ollama(CONFIRMED)),
}


class _Server(asyncio.Protocol):
    def __init__(self) -> None:
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            at = head.lower().find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            self._take(head.split(b" ", 2)[1].decode(), body)

    def _take(self, path: str, body: bytes) -> None:
        if path == "/mcp":
            seconds, value = PROVIDER, {"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": _CONTENT}
        else:
            seconds, value = _FIXED.get(path, (0.0, {}))
        asyncio.get_running_loop().call_later(seconds, self._answer, json.dumps(value).encode())

    def _answer(self, body: bytes) -> None:
        if not self._transport.is_closing():
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            self._transport.write(head + body)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Server, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
