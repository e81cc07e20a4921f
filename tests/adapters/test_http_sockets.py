"""What real servers do wrong on real sockets: whatever happens, it ends as one of our errors, in time."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from adapters.breaker import CircuitBreaker
from adapters.http import JsonClient, new_http_client
from adapters.limits import LocalLimiter
from layers.errors import DependencyError, DependencyMalformed, DependencyRejected, DependencyUnavailable
from tests.adapters.support import Play, serve

pytestmark = pytest.mark.anyio

LIMIT = 100_000


def http(body: bytes, *headers: bytes, status: bytes = b"200 OK", length: int | None = None) -> bytes:
    size = b"Content-Length: %d" % (len(body) if length is None else length)
    return b"\r\n".join([b"HTTP/1.1 " + status, size, *headers, b"", body])


def says(data: bytes, then: str = "close") -> Play:
    """Write `data`, then close, hang, reset, or drip one byte after another."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if then == "hang":
            await reader.read()
        elif then == "reset":
            linger_zero = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_zero)
            writer.transport.abort()
        while then == "drip" and not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.005)

    return play


def chunked(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body


GZIP = b"Content-Encoding: gzip"
BOMB = gzip.compress(bytes(50_000_000))

PLAYS = [
    pytest.param(says(b"", "hang"), DependencyUnavailable, "timeout", id="hangs"),
    pytest.param(says(http(b"", length=9), "hang"), DependencyUnavailable, "timeout", id="hangs after its headers"),
    pytest.param(says(http(b"", length=9999), "drip"), DependencyUnavailable, "timeout", id="drips"),
    pytest.param(says(b""), DependencyUnavailable, "disconnected", id="hangs up"),
    pytest.param(says(b"", "reset"), DependencyUnavailable, "disconnected", id="resets"),
    pytest.param(says(b"HTTP/1.1 100 Continue\r\n\r\n"), DependencyUnavailable, "disconnected", id="100 and no more"),
    pytest.param(says(http(b'{"a"', length=9)), DependencyMalformed, "malformed", id="half a body"),
    pytest.param(says(http(b'{"a"', length=9), "reset"), DependencyMalformed, "malformed", id="reset in its body"),
    pytest.param(says(http(b"<html>")), DependencyMalformed, "malformed", id="html"),
    pytest.param(says(http(b"x" * 3 * LIMIT)), DependencyMalformed, "too_large", id="huge"),
    pytest.param(says(http(b"", length=10**15), "hang"), DependencyMalformed, "too_large", id="announces too much"),
    pytest.param(says(chunked(b"ZZ\r\nab")), DependencyMalformed, "malformed", id="bad chunk"),
    pytest.param(says(chunked(b"5\r\nab")), DependencyMalformed, "malformed", id="half a chunk"),
    pytest.param(says(chunked(b"fffff\r\n" + b"x" * 0xFFFFF)), DependencyMalformed, "too_large", id="huge chunk"),
    pytest.param(says(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), DependencyMalformed, "malformed", id="not HTTP"),
    pytest.param(says(b"HTTP/1.1 99 X\r\n\r\n"), DependencyMalformed, "malformed", id="status 99"),
    pytest.param(says(b"HTTP/1.1 200 OK\r\nA\x00: b\r\n\r\n"), DependencyMalformed, "malformed", id="bad header"),
    pytest.param(
        says(b"HTTP/1.1 200 OK\r\nA: " + b"b" * 99_999 + b"\r\n\r\n"),
        DependencyMalformed,
        "malformed",
        id="huge header",
    ),
    pytest.param(
        says(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), DependencyMalformed, "malformed", id="bad length"
    ),
    pytest.param(says(http(BOMB, GZIP)), DependencyMalformed, "too_large", id="gzip bomb"),
    pytest.param(says(http(gzip.compress(b"{}")[:-4], GZIP)), DependencyMalformed, "malformed", id="half gzip"),
    pytest.param(says(http(b"{}", GZIP)), DependencyMalformed, "malformed", id="not gzip"),
    pytest.param(
        says(http(b"{}", b"Content-Encoding: br")), DependencyMalformed, "malformed", id="encoding nobody asked for"
    ),
    pytest.param(says(http(b"", status=b"204 No")), DependencyMalformed, "malformed", id="204"),
    pytest.param(
        says(http(b"", b"Location: http://127.0.0.1:9/", status=b"302 X")), DependencyRejected, "rejected", id="302"
    ),
    pytest.param(
        says(http(b"bu", status=b"503 X", length=9)), DependencyUnavailable, "server_error", id="503 with half a body"
    ),
    pytest.param(says(http(BOMB, GZIP, status=b"400 X")), DependencyRejected, "rejected", id="400 with a gzip bomb"),
]


class Remote:
    """A client of its own for each test."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.limiter = LocalLimiter("remote", slots=4)
        self.breaker = CircuitBreaker("remote")
        self.client = JsonClient(
            "remote", http, self.breaker, limiter=self.limiter, timeout=0.25, max_response_bytes=LIMIT, attempts=1
        )

    async def post(self, url: str, **options: Any) -> Any:
        return await self.client.call("POST", url, read=lambda reply: reply.json(), json={"q": 1}, **options)


@pytest.fixture
async def remote() -> AsyncIterator[Remote]:
    async with new_http_client(connect_timeout=0.2) as http:
        yield Remote(http)


@pytest.mark.parametrize(("play", "error", "kind"), PLAYS)
async def test_whatever_a_server_does_ends_as_one_of_our_errors(
    remote: Remote, play: Play, error: type[DependencyError], kind: str
) -> None:
    async with serve(play) as port:
        with pytest.raises(error) as caught:
            await remote.post(f"http://127.0.0.1:{port}/")
    assert type(caught.value) is error
    assert caught.value.kind == kind
    assert remote.breaker.snapshot().failures == int(error.counts)
    assert remote.limiter.snapshot().in_use == 0


@pytest.mark.parametrize(
    ("url", "error", "kind"),
    [
        pytest.param("http://127.0.0.1:{closed}/", DependencyUnavailable, "refused", id="nobody listens"),
        pytest.param("http://name.invalid/", DependencyUnavailable, "dns", id="no such name"),
        pytest.param("ftp://127.0.0.1/", DependencyRejected, "rejected", id="scheme"),
        pytest.param("/relative", DependencyRejected, "rejected", id="no host"),
        pytest.param("http://a:99999/", DependencyRejected, "rejected", id="port"),
        pytest.param("http://a:b:c/", DependencyRejected, "rejected", id="not a URL"),
        pytest.param("http://me:hunter22@127.0.0.1:{closed}/", DependencyUnavailable, "refused", id="credentials"),
    ],
)
async def test_an_address_that_leads_nowhere_is_one_of_our_errors(
    remote: Remote, url: str, error: type[DependencyError], kind: str
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = unused.getsockname()[1]
    with pytest.raises(error) as caught:
        await remote.post(url.format(closed=closed), deadline=None)
    assert caught.value.kind == kind
    assert "hunter22" not in chain_of(caught.value)


def chain_of(exc: BaseException | None) -> str:
    """All that a traceback with its causes would show."""
    return "" if exc is None else f"{exc} {exc!r} {chain_of(exc.__cause__)}"


async def test_no_cause_of_an_error_shows_the_headers_that_were_sent(remote: Remote) -> None:
    async with serve(says(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")) as port:
        with pytest.raises(DependencyMalformed) as caught:
            await remote.post(f"http://127.0.0.1:{port}/?key=hunter22", headers={"authorization": "Bearer hunter22"})
    assert "hunter22" not in chain_of(caught.value)


async def test_a_connection_that_is_never_made_is_known_to_have_done_nothing(remote: Remote) -> None:
    """A full backlog answers nothing at all, as a firewall that drops packets."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        with pytest.raises(DependencyUnavailable) as caught:
            await remote.post(f"http://127.0.0.1:{full.getsockname()[1]}/")
    assert (caught.value.kind, caught.value.detail) == ("timeout", {"phase": "connect"})


async def test_a_server_without_tls_behind_an_https_address_is_a_tls_failure(remote: Remote) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with server:
        with pytest.raises(DependencyUnavailable) as caught:
            await remote.post(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert caught.value.kind == "tls"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(http(b'{"a": 1}'), id="plain"),
        pytest.param(chunked(b'4\r\n{"a"\r\n4\r\n: 1}\r\n0\r\n\r\n'), id="chunked"),
        pytest.param(http(gzip.compress(b'{"a": 1}'), GZIP), id="gzip"),
        pytest.param(http(gzip.compress(b'{"a"') + gzip.compress(b": 1}"), GZIP), id="gzip in two members"),
        pytest.param(b'HTTP/1.0 200 OK\r\n\r\n{"a": 1}', id="until it closes"),
    ],
)
async def test_every_honest_way_to_send_a_body_is_read(remote: Remote, answer: bytes) -> None:
    async with serve(says(answer)) as port:
        assert await remote.post(f"http://127.0.0.1:{port}/") == {"a": 1}


async def test_a_bomb_is_never_unpacked_in_memory(remote: Remote) -> None:
    async with serve(says(http(BOMB, GZIP))) as port:
        tracemalloc.start()
        try:
            with pytest.raises(DependencyMalformed):
                await remote.post(f"http://127.0.0.1:{port}/")
            assert tracemalloc.get_traced_memory()[1] < 20 * LIMIT
        finally:
            tracemalloc.stop()


async def test_a_reply_that_is_not_read_to_its_end_gives_its_connection_up(remote: Remote) -> None:
    closed = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(http(b"", length=10**9))
        await writer.drain()
        while await reader.read(1000):
            pass
        closed.set()

    async with serve(endless) as port:
        with pytest.raises(DependencyMalformed) as caught:
            await remote.post(f"http://127.0.0.1:{port}/")
        async with asyncio.timeout(5):
            await closed.wait()
    assert caught.value.kind == "too_large"  # and keeps its traceback, so that no collector closed it


async def test_a_header_with_a_line_break_never_leaves(remote: Remote) -> None:
    async with serve(says(http(b"{}"))) as port:
        with pytest.raises(DependencyRejected) as caught:
            await remote.post(f"http://127.0.0.1:{port}/", headers={"x-key": "hunter22\r\nx-evil: 1"})
    assert "hunter22" not in repr(caught.value.__cause__)


async def test_a_kept_connection_that_the_server_closed_is_replaced(remote: Remote) -> None:
    """The next call after a restart of the remote may meet a dead connection; a second attempt goes through."""
    remote.client._attempts = 2
    async with serve(says(http(b'{"a": 1}'))) as port:
        for _ in range(3):
            assert await remote.post(f"http://127.0.0.1:{port}/") == {"a": 1}
