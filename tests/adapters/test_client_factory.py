"""The one client factory: what it sends, what it ignores, how many connections it opens, and its error table."""

from __future__ import annotations

import asyncio
import base64
import inspect

import httpx
import pytest

from adapters.http import new_http_client
from adapters.transport import MEANING, translate
from layers.errors import DependencyError
from tests.adapters.support import Play, serve

pytestmark = pytest.mark.anyio

OURS = {httpx.HTTPStatusError, httpx.StreamError, httpx.CookieConflict}
"""Raised by using the API wrongly, or by `raise_for_status`, which nobody calls: bugs, not failures of a remote."""


def httpx_exceptions() -> list[type[Exception]]:
    found = [value for _, value in inspect.getmembers(httpx, inspect.isclass) if issubclass(value, Exception)]
    return [error for error in found if not issubclass(error, tuple(OURS))]


@pytest.mark.parametrize("error", httpx_exceptions(), ids=lambda error: error.__name__)
def test_every_exception_of_httpx_has_a_meaning(error: type[Exception]) -> None:
    translated = translate("remote", error("http://me:secret@remote/"))
    assert isinstance(translated, DependencyError)
    assert "secret" not in str(translated)


def test_the_table_names_every_family_of_transport_errors_itself() -> None:
    """A new family in a later httpx must be looked at, not fall through to `HTTPError`."""
    families = {error for error in httpx_exceptions() if error.__base__ in {httpx.TransportError, httpx.RequestError}}
    by_base = {httpx.NetworkError, httpx.ProtocolError}  # their members are named one by one, or are just broken
    assert families - by_base <= set(MEANING)


class Echo:
    """Answers with a cookie and keeps the requests' heads; up to `together` connections wait for one another."""

    def __init__(self, together: int = 1) -> None:
        self.heads: list[bytes] = []
        self.barrier = asyncio.Barrier(together)

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                await self.barrier.wait()
                writer.write(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\n{}")
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    async def __aenter__(self) -> str:
        self.server = await asyncio.start_server(self.converse, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/"

    async def __aexit__(self, *_: object) -> None:
        self.server.close()


async def test_the_pool_opens_as_many_connections_as_there_are_calls() -> None:
    """A cap below a remote's slots would throttle it: 150 calls are on the wire at once, or this never ends."""
    async with Echo(together=150) as url, new_http_client(connect_timeout=5) as http:
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*(http.post(url) for _ in range(150)))
    assert {answer.status_code for answer in answers} == {200}


async def test_cookies_are_not_kept() -> None:
    echo = Echo()
    async with echo as url, new_http_client(connect_timeout=5) as http:
        named = url.replace("127.0.0.1", "localhost")  # some jars keep nothing for bare addresses
        await http.get(named)
        await http.get(named)
        assert len(http.cookies) == 0
    assert all(b"cookie" not in head.lower() for head in echo.heads)


async def test_credentials_in_an_address_become_a_header_and_nothing_else() -> None:
    echo = Echo()
    async with echo as url, new_http_client(connect_timeout=5) as http:
        await http.get(url.replace("//", "//me:hunter22@"))
    assert b"authorization: Basic " + base64.b64encode(b"me:hunter22") in echo.heads[0].replace(b"Auth", b"auth")
    assert b"hunter22" not in echo.heads[0]


async def test_only_what_we_can_read_is_asked_for() -> None:
    echo = Echo()
    async with echo as url, new_http_client(connect_timeout=5) as http:
        await http.get(url)
    head = echo.heads[0].lower()
    assert b"accept-encoding: gzip\r\n" in head
    assert b"accept: application/json\r\n" in head
    assert b"user-agent: arbiter-l8\r\n" in head


def proxy_that(notes: list[bytes]) -> Play:
    async def play(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        notes.append(b"asked")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nproxied")
        await writer.drain()

    return play


async def test_the_environments_proxies_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[bytes] = []
    async with serve(proxy_that(notes)) as port, Echo() as url:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        async with new_http_client(connect_timeout=5) as http:
            assert (await http.get(url)).text == "{}"
    assert notes == []


async def test_a_proxy_named_on_purpose_is_used_for_all_but_loopback() -> None:
    notes: list[bytes] = []
    async with (
        serve(proxy_that(notes)) as port,
        Echo() as url,
        new_http_client(connect_timeout=5, proxy=f"http://127.0.0.1:{port}") as http,
    ):
        assert (await http.get(url)).text == "{}"
        assert notes == []
        assert (await http.get("http://name.invalid/")).text == "proxied"


async def test_a_client_that_was_never_used_closes_cleanly() -> None:
    await new_http_client(connect_timeout=5).aclose()


async def test_the_read_time_out_counts_silence() -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serve(silent) as port, new_http_client(connect_timeout=5, read_timeout=0.02) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.get(f"http://127.0.0.1:{port}/")
