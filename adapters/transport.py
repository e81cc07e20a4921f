"""The httpx client factory, and the one table that says what a failed exchange means."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from layers.errors import DependencyError, DependencyMalformed, DependencyRejected, DependencyUnavailable

USER_AGENT = "arbiter-l8"
LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")


def new_http_client(
    *, connect_timeout: float, read_timeout: float | None = None, proxy: str | None = None
) -> httpx.AsyncClient:
    """The only place where an HTTP client is made: the httpx API over aiohttp's transport. Close it with `aclose`.

    `connect_timeout` covers name resolution, TCP and TLS; `read_timeout` the silence between two reads (None: only a
    call's total time-out counts, as a model may think for long). Both are in seconds.

    The pool has no cap of its own: a remote's slots are the cap. Redirects are not followed, cookies not kept.
    The environment's proxies and `.netrc` are ignored, so that nothing on loopback is rerouted behind the operator's
    back; `proxy` names one on purpose, for all but loopback. `SSL_CERT_FILE` is honoured.
    """
    direct = _Transport()
    return _Client(
        direct if proxy is None else None,
        transport=direct if proxy is None else _Transport(proxy=httpx.Proxy(proxy)),
        mounts=dict.fromkeys(LOOPBACK, direct),
        timeout=httpx.Timeout(connect=connect_timeout, read=read_timeout, write=read_timeout, pool=connect_timeout),
        headers={"accept": "application/json", "accept-encoding": "gzip", "user-agent": USER_AGENT},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        follow_redirects=False,
        trust_env=False,
    )


class _Client(httpx.AsyncClient):
    """Takes the straight way to `straight` where httpx's own way could do nothing more for us.

    Between a request and its transport httpx looks for credentials, hooks, redirects and cookies; this client has none
    of them to find, and the search takes a tenth of a whole call.
    """

    def __init__(self, straight: httpx.AsyncBaseTransport | None, **options: Any) -> None:
        super().__init__(**options)
        self._straight = straight
        self._extensions = {"timeout": self.timeout.as_dict()}

    def build_request(self, method: str, url: httpx.URL | str, **options: Any) -> httpx.Request:
        """httpx's own, without looking for cookies and query parameters that are not there."""
        if not options.keys() <= {"content", "headers"}:
            return super().build_request(method, url, **options)
        headers = self.headers.copy()
        headers.update(options.get("headers"))
        extensions = dict(self._extensions)
        return httpx.Request(method, url, headers=headers, content=options.get("content"), extensions=extensions)

    async def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        """httpx's own, unless nothing but the transport is needed."""
        if self._straight is None or not stream or options or request.url.userinfo or self.is_closed:
            return await super().send(request, stream=stream, **options)
        return await self._straight.handle_async_request(request)


class _Transport(AiohttpTransport):
    """httpx-aiohttp's transport, raising httpx's exceptions only, and each for what really happened."""

    def __init__(self, proxy: httpx.Proxy | None = None) -> None:
        super().__init__(client=self._new_session, proxy=proxy)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.userinfo:  # httpx has made an Authorization header of it; aiohttp refuses to see both
            request.url = request.url.copy_with(username=None, password=None)
        try:
            response = await super().handle_async_request(request)
        except Exception as exc:
            raise _as_httpx(exc) from _printable(exc)
        if isinstance(response.stream, httpx.AsyncByteStream):
            response.stream = _Stream(response.stream)
        return response

    def _new_session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=0, ssl=self.ssl_context, keepalive_timeout=15.0)
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)


class _Stream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                yield chunk
        except Exception as exc:
            raise _as_httpx(exc) from _printable(exc)

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        except Exception as exc:
            raise _as_httpx(exc) from _printable(exc)


_HTTPX_FOR: tuple[tuple[type[Exception], type[httpx.TransportError]], ...] = (
    # The first match counts; a class stands before its bases.
    (aiohttp.ConnectionTimeoutError, httpx.ConnectTimeout),
    (asyncio.TimeoutError, httpx.ReadTimeout),
    (aiohttp.ClientProxyConnectionError, httpx.ProxyError),
    (aiohttp.ClientHttpProxyError, httpx.ProxyError),
    (aiohttp.ClientConnectorError, httpx.ConnectError),
    (aiohttp.ServerFingerprintMismatch, httpx.ConnectError),
    (aiohttp.InvalidURL, httpx.UnsupportedProtocol),
    (aiohttp.NonHttpUrlClientError, httpx.UnsupportedProtocol),
    (aiohttp.ClientPayloadError, httpx.RemoteProtocolError),
    (aiohttp.ClientResponseError, httpx.RemoteProtocolError),
    (aiohttp.http_exceptions.HttpProcessingError, httpx.RemoteProtocolError),
    (aiohttp.ClientError, httpx.ReadError),
    (OSError, httpx.ReadError),
    (ValueError, httpx.LocalProtocolError),
)


def _as_httpx(exc: Exception) -> Exception:
    root = _root(exc)
    for cause, mapped in _HTTPX_FOR:
        if isinstance(root, cause):
            return mapped(type(root).__name__)
    return exc  # our own bug


def _printable(exc: Exception) -> BaseException | None:
    """The cause to chain, unless its text or fields may hold the address or the request's headers."""
    root = _root(exc)
    return None if isinstance(root, aiohttp.ClientResponseError | ValueError) else root


def _root(exc: Exception) -> BaseException:
    """What the transport below raised, before it was translated for the first time."""
    return exc.__cause__ if isinstance(exc, httpx.HTTPError) and exc.__cause__ is not None else exc


# --- what it means to us --------------------------------------------------------------------------------------------

Meaning = tuple[type[DependencyError], str, str]

MEANING: dict[type[Exception], Meaning] = {
    httpx.ConnectTimeout: (DependencyUnavailable, "timeout", "no connection within the connect time-out"),
    httpx.PoolTimeout: (DependencyUnavailable, "timeout", "no connection within the connect time-out"),
    httpx.TimeoutException: (DependencyUnavailable, "timeout", "no answer within the read time-out"),
    httpx.ConnectError: (DependencyUnavailable, "refused", "it can't be connected to"),
    httpx.ProxyError: (DependencyUnavailable, "refused", "the proxy can't be used"),
    httpx.RemoteProtocolError: (DependencyMalformed, "malformed", "its answer breaks HTTP, or ends too early"),
    httpx.DecodingError: (DependencyMalformed, "malformed", "its answer can't be decoded"),
    httpx.LocalProtocolError: (DependencyRejected, "rejected", "the request can't be sent as HTTP"),
    httpx.UnsupportedProtocol: (DependencyRejected, "rejected", "its address is no http or https URL"),
    httpx.InvalidURL: (DependencyRejected, "rejected", "its address is not a valid URL"),
    httpx.TooManyRedirects: (DependencyRejected, "rejected", "it redirects without end"),
    httpx.TransportError: (DependencyUnavailable, "disconnected", "the connection broke"),
    httpx.HTTPError: (DependencyUnavailable, "disconnected", "the exchange failed"),
}
"""Looked up along the class's bases, so that whatever httpx adds below `HTTPError` has a meaning too."""

_CLOSER: tuple[tuple[type[BaseException], str, str], ...] = (
    (socket.gaierror, "dns", "its name can't be resolved"),
    (aiohttp.ClientConnectorDNSError, "dns", "its name can't be resolved"),
    (ssl.SSLError, "tls", "no TLS connection can be made"),
    (ssl.CertificateError, "tls", "its certificate is not trusted"),
    (ConnectionRefusedError, "refused", "it refused the connection"),
)


def translate(dependency: str, exc: Exception) -> DependencyError:
    """The `DependencyError` for an httpx exception. Its message holds no URL, header or body."""
    error, kind, message = next(MEANING[base] for base in type(exc).__mro__ if base in MEANING)
    if isinstance(exc, httpx.ConnectError):
        for cause in _causes(exc):
            for closer, closer_kind, closer_message in _CLOSER:
                if isinstance(cause, closer):
                    return error(dependency, closer_kind, closer_message)
    phase = {"phase": "connect"} if isinstance(exc, httpx.ConnectTimeout | httpx.PoolTimeout) else None
    return error(dependency, kind, message, detail=phase)


def _causes(exc: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = exc
    while seen is not None:
        yield seen
        inner = getattr(seen, "os_error", None)  # aiohttp keeps what the socket said beside its own error
        if isinstance(inner, BaseException):
            yield inner
        seen = seen.__cause__
