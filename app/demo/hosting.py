"""Serve an ASGI application on a loopback port for as long as a block lasts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from app.cli.serve import bind, uvicorn_config

START_S = 20


@contextmanager
def hosted(app: Any, port: int = 0, *, otherwise: str = "") -> Iterator[str]:
    """The base URL under which `app` answers. It runs on a loop of its own, in a thread, until the block ends.

    `port` 0 = any that is free. Raises `ConfigurationError`, which ends in `otherwise`, where it is taken.
    """
    listener = bind("127.0.0.1", port, otherwise=otherwise)
    server = uvicorn.Server(uvicorn_config(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        _wait_until_started(server, thread)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    deadline = time.monotonic() + START_S
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("the server stopped before it was ready; the log says why")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the server was not ready after {START_S} s")
        time.sleep(0.02)
