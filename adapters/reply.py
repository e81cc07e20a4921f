"""What a remote answered: status, headers and a bounded body, read as strict JSON."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from layers import strict_json
from layers.errors import DependencyMalformed

_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_SECRET_HEADERS = re.compile(r"auth|key|token|secret|cookie|session|signature", re.IGNORECASE)
_SECRETS = re.compile(
    r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"
    r"|\b(api[-_]?key|access[-_]?token|token|secret|password|key)(\W{1,4})[\w.~+/=-]{6,}"
    r"|(?<=://)[^/\s@]+@"
)


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole reply. Header names are looked up in lower case; `body` is decoded from any `Content-Encoding`."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    dependency: str = "remote"

    @property
    def media_type(self) -> str:
        """`Content-Type` in lower case, without parameters; empty when there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def json(self) -> Any:
        """The body as JSON. Raises `DependencyMalformed` for anything that strict JSON refuses."""
        try:
            return strict_json.loads(self.body)
        except strict_json.StrictJsonError as exc:
            message = f"HTTP {self.status} with a body that is not acceptable JSON: {exc}"
            raise DependencyMalformed(self.dependency, "malformed", message, detail={"status": self.status}) from exc


async def read_body(
    response: httpx.Response, limit: int, dependency: str, done: Callable[[bytes], bool] | None = None
) -> bytes:
    """The decoded body, at most `limit` bytes of it held at any time; of a stream, what came until `done` of a chunk.

    Raises `DependencyMalformed` (`too_large`, or `malformed` for a broken or unknown encoding) and httpx's errors.
    """
    announced = response.headers.get("content-length", "")
    if announced.isdigit() and len(announced) < 20 and int(announced) > limit:
        raise _too_large(dependency, limit)
    if response.is_stream_consumed:  # a transport may have read it already
        body = response.content
        if len(body) > limit:
            raise _too_large(dependency, limit)
        return body
    decoder = _decoder(response.headers.get("content-encoding", ""), limit, dependency)
    chunks: list[bytes] = []
    size = 0
    async for raw in response.aiter_raw():
        chunk = decoder.feed(raw, limit - size) if decoder else raw
        size += len(chunk)
        if size > limit:
            raise _too_large(dependency, limit)
        chunks.append(chunk)
        if done is not None and done(chunk):
            return b"".join(chunks)
    if decoder:
        decoder.finish()
    return b"".join(chunks)


def _too_large(dependency: str, limit: int) -> DependencyMalformed:
    return DependencyMalformed(dependency, "too_large", f"its answer is larger than {limit} bytes")


def _decoder(encoding: str, limit: int, dependency: str) -> _Inflater | None:
    encoding = encoding.strip().lower()
    if encoding in {"", "identity"}:
        return None
    if encoding in {"gzip", "x-gzip", "deflate"}:
        return _Inflater(limit, dependency)
    raise DependencyMalformed(dependency, "malformed", "its answer has a content encoding nobody asked for")


class _Inflater:
    """gzip and zlib, never producing much more than there is room for: a few kilobytes can hold gigabytes."""

    def __init__(self, limit: int, dependency: str) -> None:
        self._limit = limit
        self._dependency = dependency
        self._inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
        self._started = False

    def feed(self, data: bytes, room: int) -> bytes:
        out = b""
        try:
            while data:
                if self._inflate.eof:  # a gzip file may have several members
                    self._inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
                self._started = True
                out += self._inflate.decompress(data, room - len(out) + 1)
                if len(out) > room:
                    raise _too_large(self._dependency, self._limit)
                data = self._inflate.unused_data
        except zlib.error as exc:
            raise DependencyMalformed(self._dependency, "malformed", "its answer is not valid gzip") from exc
        return out

    def finish(self) -> None:
        if self._started and not self._inflate.eof:
            raise DependencyMalformed(self._dependency, "malformed", "its compressed answer ends too early")


def excerpt(body: bytes, sent: Mapping[str, str], *, length: int = 300) -> str:
    """The start of a body, safe to show: one line, without the secrets that were sent and what looks like others."""
    text = _UNPRINTABLE.sub(" ", body[: 8 * length].decode("utf-8", "replace")).strip()
    for name, value in sent.items():
        if _SECRET_HEADERS.search(name):
            for secret in (value, value.rpartition(" ")[2]):  # with its scheme, and alone
                if len(secret) >= 4:
                    text = text.replace(secret, "***")
    return _SECRETS.sub(_hide, text)[:length]


def _hide(match: re.Match[str]) -> str:
    scheme, name, gap = match.group(1), match.group(2), match.group(3)
    if scheme:
        return f"{scheme} ***"
    return f"{name}{gap}***" if name else "***@"
