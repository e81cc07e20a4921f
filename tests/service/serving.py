"""The API over chosen parts on a real loopback port, in the test's own loop: what streams can be read as it comes."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx
import uvicorn

from app.main import create_app
from tests.fakes import connect_to, fake_services


@asynccontextmanager
async def served(settings, **parts: object) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service with these parts."""
    app = create_app(settings, connect_to(fake_services(settings, **parts)))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning", timeout_graceful_shutdown=1))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with anyio.create_task_group() as group, httpx.AsyncClient(base_url=url, timeout=10) as client:
            group.start_soon(server.serve, [listener])
            yield client
            server.should_exit = True
