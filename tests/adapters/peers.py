"""Clients for adapter tests, and ways to reach a peer: in this process, or over a real loopback port."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic
from typing import Any

import anyio
import httpx
import uvicorn

from adapters.breaker import CircuitBreaker
from adapters.http import JsonClient, new_http_client
from adapters.limits import LocalLimiter

URL = "http://peer.test/mcp"


async def no_wait(_seconds: float) -> None:
    """Back-off without waiting."""
    await anyio.lowlevel.checkpoint()


def json_client(http: httpx.AsyncClient, name: str = "sentinel", *, attempts: int = 1, **more: Any) -> JsonClient:
    """The real client over `http`, without retries unless asked for."""
    breaker = more.pop("breaker", None) or CircuitBreaker(name)
    time = {"clock": more.pop("clock", monotonic), "sleep": more.pop("sleep", no_wait)}
    return JsonClient(
        name,
        http,
        breaker,
        limiter=LocalLimiter(name, slots=64, **time),
        timeout=more.pop("timeout", 10.0),
        max_response_bytes=more.pop("max_response_bytes", 1_000_000),
        attempts=attempts,
        **time,
        **more,
    )


@asynccontextmanager
async def over_asgi(app: Any, name: str = "sentinel", **more: Any) -> AsyncIterator[JsonClient]:
    """A client of an ASGI app in this process."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app, raise_app_exceptions=False)) as http:
        yield json_client(http, name, **more)


@asynccontextmanager
async def over_handler(handler: Callable[..., Any], name: str = "sentinel", **more: Any) -> AsyncIterator[JsonClient]:
    """A client whose every request is answered by `handler`."""
    async with httpx.AsyncClient(transport=httpx.MockTransport(handler)) as http:
        yield json_client(http, name, **more)


@asynccontextmanager
async def over_network(name: str = "sentinel", **more: Any) -> AsyncIterator[JsonClient]:
    """A client over the transport that the service really uses."""
    http = new_http_client(connect_timeout=2)
    try:
        yield json_client(http, name, **more)
    finally:
        await http.aclose()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an ASGI app on a free loopback port from a thread; gives its base address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=1)
    server = _Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        assert server.ready.wait(20), "the peer did not start"
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


class Watched:
    """An ASGI app that passes everything on and keeps each POST's method, headers and status."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.seen: list[tuple[str, dict[str, str]]] = []

    def methods(self) -> list[str]:
        return [method for method, _ in self.seen]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        self.seen.append((json.loads(body).get("method", ""), headers))
        given = False

        async def replay() -> Any:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, replay, send)
