"""One request and its reply: written, sent, bounded, and every failure put in our words."""

from __future__ import annotations

import json as jsonlib
import math
from collections.abc import Callable, Container, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import httpx

from adapters.reply import Reply, excerpt, read_body
from adapters.retry import retry_after
from adapters.transport import translate
from layers.errors import DependencyError, DependencyMalformed, DependencyRejected, DependencyUnavailable

DAILY_QUOTA = math.inf
"""What a `retry_after_from` hook returns when a quota is used up that does not come back today."""
ERROR_BODY_BYTES = 65_536
"""As much of an error's body is read."""


def write_request(
    http: httpx.AsyncClient, dependency: str, method: str, url: str, json: Any, headers: dict[str, str]
) -> httpx.Request:
    """The request with `json` (None: no body) as UTF-8, NaN refused. Raises `DependencyRejected` when it can't be."""
    content: bytes | None = None
    try:
        if json is not None:
            content = jsonlib.dumps(json, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
            headers.setdefault("content-type", "application/json")
        return http.build_request(method, _parsed(url), content=content, headers=headers)
    except (ValueError, RecursionError, httpx.InvalidURL) as exc:
        # The cause may hold an address or a header's value, so it is named and not chained.
        message = f"the request can't be written ({type(exc).__name__})"
        raise DependencyRejected(dependency, "rejected", message) from None


@lru_cache(maxsize=256)
def _parsed(url: str) -> httpx.URL:
    """A remote is asked at the same few addresses, and reading one anew takes a fifteenth of a whole call."""
    return httpx.URL(url)


def is_good(status: int, expect: Container[int]) -> bool:
    """Whether the reply is handed to the caller's `read`."""
    return status // 100 == 2 or status in expect


async def send(
    http: httpx.AsyncClient,
    request: httpx.Request,
    dependency: str,
    *,
    expect: Container[int],
    limit: int,
    done: Callable[[bytes], bool] | None = None,
) -> Reply:
    """Send once and read the whole reply, at most `limit` bytes of it. Raises the `DependencyError` family only.

    `done` is told of each piece of a good reply's body and ends the reading when it says so.
    """
    try:
        response = await http.send(request, stream=True)
        try:
            body = await _body(response, dependency, limit, done, good=is_good(response.status_code, expect))
        finally:
            await response.aclose()
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise translate(dependency, exc) from exc
    return Reply(response.status_code, response.headers, body, dependency)


async def _body(
    response: httpx.Response, dependency: str, limit: int, done: Callable[[bytes], bool] | None, *, good: bool
) -> bytes:
    if good:
        return await read_body(response, limit, dependency, done)
    try:
        return await read_body(response, min(ERROR_BODY_BYTES, limit), dependency)
    except (httpx.HTTPError, DependencyMalformed):
        return b""  # the status alone decides


def delay_named(reply: Reply, hook: Callable[[Reply], float | None] | None, now: datetime) -> float | None:
    """Seconds the remote asks us to wait: what `hook` finds in the body, else `Retry-After`."""
    if hook:
        try:
            found = hook(reply)
        except DependencyError:  # the body is not what the hook expected
            found = None
        if found is not None and not math.isnan(found):
            return max(0.0, found)
    return retry_after(reply.headers, now)


def error_for(reply: Reply, delay: float | None, sent: Mapping[str, str]) -> DependencyError:
    """The error that a status which nobody expected means. `sent`: the request's headers, whose secrets are hidden."""
    status = reply.status
    detail: dict[str, Any] = {"status": status, "body": excerpt(reply.body, sent)}
    message = f"answered HTTP {status}"
    if status == 429 or status >= 500:
        if delay == DAILY_QUOTA:
            delay, detail["quota"] = None, "daily"
        kind = "rate_limited" if status == 429 else "server_error"
        return DependencyUnavailable(reply.dependency, kind, message, retry_after=delay, detail=detail)
    if 300 <= status < 400:
        message += ", a redirect, which is not followed"
    return DependencyRejected(reply.dependency, "rejected", message, detail=detail)
