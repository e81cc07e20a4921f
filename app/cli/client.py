"""One HTTP client for the command line: a service elsewhere, or this process on the local store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from app.settings import Settings


class RequestFailed(Exception):
    """The service refused; `problem` is its problem document, `status` the HTTP status."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status = status
        self.problem = problem
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        text = str(self.problem.get("detail") or self.problem.get("title") or f"HTTP {self.status}")
        errors = [item for item in self.problem.get("errors") or [] if item.get("message") != text]
        listed = "; ".join(f"{item.get('pointer', '')}: {item.get('message', '')}" for item in errors[:5])
        return f"{text} ({listed})" if listed else text


@asynccontextmanager
async def service(
    settings: Settings, server: str | None, key: str | None, *, execute: bool
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service at `server`, or of one that lives in this process for as long as the block.

    `execute` False: the local service only reads, and starts no run.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if server is not None:
        async with httpx.AsyncClient(base_url=server, headers=headers, timeout=60) as client:
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
    app = service_app(settings.model_copy(update={"telemetry": telemetry, "runs": runs}), execute=execute)
    try:
        async with app.router.lifespan_context(app) as state:
            shared = dict(state or {})

            async def with_state(scope: Any, receive: Any, send: Any) -> None:
                await app({**scope, "state": dict(shared)}, receive, send)

            transport = httpx.ASGITransport(app=with_state)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=3_600) as client:
                yield client
    except BaseExceptionGroup as group:
        raise _single(group) from None


def _single(error: BaseException) -> BaseException:
    """What the service's task group wrapped: the block's own exception where there was no other."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def get(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    """GET as JSON. Raises `RequestFailed`."""
    given = {name: value for name, value in params.items() if value is not None}
    return _checked(await client.get(path, params=given))


async def post(client: httpx.AsyncClient, path: str, **kwargs: Any) -> Any:
    """POST, answer as JSON. Raises `RequestFailed`."""
    return _checked(await client.post(path, **kwargs))


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
