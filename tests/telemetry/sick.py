"""Collectors that are sick: they swallow, refuse, answer 503, or take their time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.bench.servers import free_port

_503 = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_200 = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
SLOW_S = 1.5

KINDS = ("black hole", "refusing", "503", "slow")


@contextmanager
def collector(kind: str) -> Iterator[str]:
    """The address of a collector that is sick in this way."""
    if kind == "refusing":
        yield f"http://127.0.0.1:{free_port()}"
        return
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    threading.Thread(target=_serve, args=(listener, _MANNERS[kind]), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def _serve(listener: socket.socket, manner: Callable[[socket.socket], None]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # the test is over
        threading.Thread(target=_handle, args=(connection, manner), daemon=True).start()


def _handle(connection: socket.socket, manner: Callable[[socket.socket], None]) -> None:
    with connection:
        try:
            manner(connection)
        except OSError:
            return


def _swallow(connection: socket.socket) -> None:
    while connection.recv(65_536):
        pass


def _refuse(connection: socket.socket) -> None:
    _read_request(connection)
    connection.sendall(_503)


def _dawdle(connection: socket.socket) -> None:
    _read_request(connection)
    time.sleep(SLOW_S)
    connection.sendall(_200)


def _read_request(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65_536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(line.partition(b":")[2]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0
    )
    while len(body) < length:
        body += connection.recv(65_536)


_MANNERS: dict[str, Callable[[socket.socket], None]] = {"black hole": _swallow, "503": _refuse, "slow": _dawdle}
