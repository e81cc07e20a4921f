"""One HTTP client for the command line: a service elsewhere, or this process on the local store."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import httpx

if TYPE_CHECKING:
    from app.settings import ServerSettings, Settings


LONGEST_ID = 512

WRONGLY_ASKED = frozenset({400, 413, 415, 422})
"""Statuses that say that the question was wrong, rather than that it had no good answer."""


def no_answer(exc: httpx.HTTPError, server: str | None = None) -> str:
    """Why a service gave no answer, as a sentence for people."""
    who = server or "the service"
    if isinstance(exc, httpx.UnsupportedProtocol):
        return f"{who} is no address of a service: it begins with http:// or https://"
    if isinstance(exc, httpx.ConnectTimeout):
        return f"{who} cannot be reached: no connection in time"
    if isinstance(exc, httpx.TimeoutException):
        return f"{who} gave no answer in time"
    if isinstance(exc, httpx.ConnectError):
        text = str(exc).lower()
        refused = "refused" in text or "all connection attempts failed" in text
        return f"{who} cannot be reached: " + (
            "it refused the connection; is it running?" if refused else "no connection to this address"
        )
    if isinstance(exc, httpx.TransportError):
        return f"{who} broke off the connection before it had answered"
    return f"{who} gave no answer that can be read"


class RequestFailed(Exception):
    """The service refused; `problem` is its problem document, `status` the HTTP status."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status = status
        self.problem = problem
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        text = str(self.problem.get("detail") or self.problem.get("title") or f"HTTP {self.status}")
        # What the sentence says already is not said again.
        errors = [item for item in self.problem.get("errors") or [] if str(item.get("message")) not in text]
        listed = "; ".join(f"{item.get('pointer', '')}: {item.get('message', '')}" for item in errors[:5])
        return f"{text} ({listed})" if listed else text


@asynccontextmanager
async def service(
    settings: Settings, server: str | None, key: str | None, *, execute: bool
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service at `server`, or of one that lives in this process for as long as the block.

    `execute` False: the local service only reads, and starts no run.
    """
    if server is not None:
        async with httpx.AsyncClient(base_url=server, headers=_bearer(key), timeout=60) as client:
            yield client
        return
    async with _local(settings, execute=execute) as client:
        yield client


@asynccontextmanager
async def _local(settings: Settings, *, execute: bool) -> AsyncIterator[httpx.AsyncClient]:
    """The service in this process. What the block raises reaches the caller as it is, not as a group."""
    from app.telemetry.logs import configure_logging
    from app.wiring import service_app

    configure_logging("error", "pretty")
    telemetry = settings.telemetry.model_copy(update={"enabled": settings.telemetry.given("endpoint")})
    # Its systems may be elsewhere than those of the workers on the same store, so each leaves the other's runs alone.
    runs = settings.runs.model_copy(update={"shared": False, "work": True})
    server, key = with_own_key(settings.server)
    changed = {"telemetry": telemetry, "runs": runs, "server": server}
    app = service_app(settings.model_copy(update=changed), execute=execute)
    try:
        async with app.router.lifespan_context(app) as state:
            shared = dict(state or {})

            async def with_state(scope: Any, receive: Any, send: Any) -> None:
                await app({**scope, "state": dict(shared)}, receive, send)

            transport = httpx.ASGITransport(app=with_state)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost", headers=_bearer(key), timeout=3_600
            ) as client:
                yield client
    except BaseExceptionGroup as group:
        raise unwrapped(group) from None


def with_own_key(server: ServerSettings) -> tuple[ServerSettings, str | None]:
    """The settings of a service in this process, and the key that its caller, who has the store anyway, presents.

    Keys are for callers from outside, so that where there are some one more is made, for this once. The others stay:
    the service hides what it knows to be secret.
    """
    from pydantic import SecretStr

    if not server.api_keys:
        return server, None
    key = secrets.token_urlsafe(32)
    entry = SecretStr(f"local-{secrets.token_hex(8)}:submit+read+operate:{key}")
    return server.model_copy(update={"api_keys": (*server.api_keys, entry)}), key


def _bearer(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def unwrapped(error: BaseException) -> BaseException:
    """What the service's task group wrapped: the block's own exception where there was no other."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def segment(text: str) -> str:
    """`text` as one segment of a path, whatever stands in it."""
    return quote(text[:LONGEST_ID], safe="") or "-"


def named(server: str) -> str:
    """A server's address as it may be shown: without a user's name and password."""
    parts = urlsplit(server)
    return (
        server
        if parts.username is None
        else f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
    )


async def get(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    """GET as JSON. Raises `RequestFailed`."""
    given = {name: value for name, value in params.items() if value is not None}
    return _checked(await client.get(path, params=given))


async def post(client: httpx.AsyncClient, path: str, **kwargs: Any) -> Any:
    """POST, answer as JSON. Raises `RequestFailed`."""
    return _checked(await client.post(path, **kwargs))


async def put(client: httpx.AsyncClient, path: str, **kwargs: Any) -> Any:
    """PUT, answer as JSON. Raises `RequestFailed`."""
    return _checked(await client.put(path, **kwargs))


def _checked(response: httpx.Response) -> Any:
    try:
        body = response.json()
    except ValueError:
        body = {"detail": f"HTTP {response.status_code} without a JSON body from {response.url.host}"}
        if response.is_success:
            raise RequestFailed(502, body) from None
    if response.is_success:
        return body
    raise RequestFailed(response.status_code, body if isinstance(body, dict) else {})
