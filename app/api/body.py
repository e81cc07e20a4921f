"""Reading bodies: the content type first, then no more bytes than allowed, then strict JSON, then the model."""

from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import AsyncGenerator, Container
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.types import Scope

from app.api.problems import from_validation
from app.errors import BadRequest, FieldError, TooLarge, TooSlow, Unprocessable, UnsupportedMedia
from app.settings import ServerSettings
from layers.ports import Clock
from layers.strict_json import StrictJsonError, loads

T = TypeVar("T")

JSON = "application/json"
NDJSON = "application/x-ndjson"
NDJSON_TYPES = frozenset({NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines"})
_IN_THREAD = 262_144
"""Bytes from which decoding moves to a thread, so that one large body doesn't hold up everybody else."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of that lower-case name."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def media_type(scope: Scope, accepted: Container[str]) -> str:
    """The body's media type, lower case, without parameters; any `+json` counts as JSON.

    Raises `UnsupportedMedia` for others, for a charset that is not UTF-8, and for compressed bodies. A missing one is
    refused too: it is what a web page can send without asking anybody.
    """
    raw = header(scope, b"content-type") or b""
    if raw == b"application/json" and JSON in accepted and header(scope, b"content-encoding") is None:
        return JSON
    name, _, parameters = raw.decode("latin-1").lower().partition(";")
    name = name.strip()
    if name.endswith("+json"):
        name = JSON
    if name not in accepted:
        shown = f"the content type {name[:100]!r} is not" if name else "a content type is needed; this one is not"
        raise UnsupportedMedia(f"{shown} read here")
    charset = parameters.partition("charset=")[2].partition(";")[0].strip(' "')
    if charset not in {"", "utf-8", "utf8", "us-ascii"}:
        raise UnsupportedMedia("only the charset UTF-8 is read")
    if (header(scope, b"content-encoding") or b"identity").lower() != b"identity":
        raise UnsupportedMedia("compressed bodies are not read")
    return name


def check_length(scope: Scope, limit: int) -> None:
    """Raises `TooLarge` when the body's announced length is over the limit, before a byte of it is read."""
    declared = header(scope, b"content-length")
    if declared is not None and declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large(limit)


class Pace:
    """How long may be waited for a body: for each piece so long, and for all of it no longer than a slow line takes.

    `patience` is in seconds, and is also what the whole body has beyond its bytes over `rate`, in bytes per second.
    Only waiting counts, not what is done with a piece meanwhile.
    """

    def __init__(self, patience: float, rate: float, clock: Clock = time.monotonic) -> None:
        self._patience = patience
        self._rate = rate
        self._clock = clock
        self._size = 0
        self._waited = 0.0

    async def receive(self, request: Request) -> tuple[bytes, bool]:
        """The next piece, and whether more will come. Raises `TooSlow`."""
        left = self._patience + self._size / self._rate - self._waited
        if left <= 0:
            raise TooSlow(f"the body came slower than {self._rate:,g} bytes a second")
        began = self._clock()
        try:
            async with asyncio.timeout(min(left, self._patience)):
                message = await request.receive()
        except TimeoutError:
            if left < self._patience:
                raise TooSlow(f"the body came slower than {self._rate:,g} bytes a second") from None
            raise TooSlow(f"nothing more of the body came for {self._patience:g} s") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        self._waited += self._clock() - began
        self._size += len(part)
        return part, message.get("more_body", False)


def _pace(request: Request) -> Pace:
    server: ServerSettings = request.scope["state"]["services"].settings.server
    return Pace(server.body_timeout, server.body_min_rate)


async def chunks(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    """The body piece by piece. Raises `TooLarge` beyond `limit` bytes, whatever length was announced, and `TooSlow`.

    The rest of a refused body is left to the server, which reads and drops it, so that the client gets its answer.
    """
    check_length(request.scope, limit)
    pace = _pace(request)
    size = 0
    more = True
    while more:
        part, more = await pace.receive(request)
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        yield part


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body, at most `limit` bytes. Raises `TooLarge`, `TooSlow`."""
    check_length(request.scope, limit)
    pace = _pace(request)
    body, more = await pace.receive(request)  # small bodies arrive whole
    parts, size = [body], len(body)
    while more and size <= limit:
        part, more = await pace.receive(request)
        parts.append(part)
        size += len(part)
    if size > limit:
        raise _too_large(limit)
    return body if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is over the limit of {limit:,} bytes")


def decode(data: bytes) -> Any:
    """Strict JSON. Raises `BadRequest` for what is no JSON, `Unprocessable` naming the field for a value refused."""
    try:
        return loads(data)
    except StrictJsonError as exc:
        if exc.pointer is None:
            raise BadRequest(_located(exc)) from None
        where = exc.pointer[:512]
        detail = f"the body is not valid at {where or 'its top'}: {exc.message}"
        raise Unprocessable(detail, [FieldError(where, exc.message)]) from None


def _located(exc: StrictJsonError) -> str:
    if exc.line is not None or exc.position is None or str(exc.position) in exc.message:
        return f"the body is {exc.message}"
    return f"the body is {exc.message} (at character {exc.position})"


def parse(adapter: TypeAdapter[T], data: bytes) -> T:
    """The model of a JSON text; types are taken as they are: `"0.5"` is no number, `true` neither.

    Raises `BadRequest` and `Unprocessable`, naming each field.
    """
    decode(data)
    try:
        # A second, much faster decoder: only in JSON mode does pydantic take types strictly and arrays as tuples.
        return adapter.validate_json(data.removeprefix(codecs.BOM_UTF8), strict=True)
    except ValidationError as exc:
        raise from_validation(exc) from None


async def parse_body(request: Request, adapter: TypeAdapter[T], limit: int) -> T:
    """Content type, size, strict JSON and model in one go."""
    media_type(request.scope, (JSON,))
    return await parse_apart(adapter, await read_body(request, limit))


async def parse_apart(adapter: TypeAdapter[T], data: bytes) -> T:
    """`parse`, in a thread when there is much of it."""
    if len(data) < _IN_THREAD:
        return parse(adapter, data)
    return await asyncio.to_thread(parse, adapter, data)
