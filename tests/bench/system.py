"""A system that answers every POST as Synapse would, after a fixed time; bare asyncio, so that it is never the limit.

`python -m tests.bench.system PORT MILLISECONDS`
"""

from __future__ import annotations

import asyncio
import json
import sys

import uvloop

_AXIOM = {
    "status": "nominal",
    "metric_value": 1.0,
    "anomaly_score": 0.1,
    "source_id": "bench",
    "emitted_at": "2026-11-30T00:00:00Z",
    "domain": None,
}
_BODY = json.dumps({"axiom": _AXIOM, "pipeline_ms": 1}).encode()
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)


class _Server(asyncio.Protocol):
    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            self._buffer = self._buffer[end + 4 + length :]
            if self._delay:
                asyncio.get_running_loop().call_later(self._delay, self._answer)
            else:
                self._answer()

    def _answer(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(_ANSWER)


async def _serve(port: int, delay: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Server(delay), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), float(sys.argv[2]) / 1000))
