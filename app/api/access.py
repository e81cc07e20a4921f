"""Who may do what: API keys with scopes, and what stands in for them when there are none."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from pydantic import SecretStr
from starlette.types import Scope

from app.errors import Forbidden, Unauthorized
from layers.errors import ConfigurationError

KeyScope: TypeAlias = Literal["submit", "read", "operate"]
Need: TypeAlias = Literal["open", "read", "submit", "operate"]
"""What an operation asks for. `read` is granted by every scope: what a key wrote it may read. `open` asks nothing."""

MIN_SECRET = 16
"""Characters of a plain secret."""
_SCOPES: frozenset[KeyScope] = frozenset(get_args(KeyScope))
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HASHED = re.compile(r"sha256:([0-9a-fA-F]{64})")
_GRANTS: dict[Need, frozenset[KeyScope]] = {
    "open": _SCOPES,
    "read": _SCOPES,
    "submit": frozenset({"submit"}),
    "operate": frozenset({"operate"}),
}


@dataclass(frozen=True)
class ApiKey:
    """One key: the SHA-256 of its secret, never the secret."""

    name: str
    scopes: frozenset[KeyScope]
    digest: bytes


def parse_key(entry: str, position: int) -> ApiKey:
    """Read `name:scope+scope:secret`; the secret is plain (at least 16 characters) or `sha256:` and its hex digest.

    Raises `ConfigurationError`, which names the position and never the entry.
    """
    where = f"ARBITER_API_KEYS: entry {position}"
    parts = entry.split(":", 2)
    if len(parts) != 3:
        raise ConfigurationError(f"{where} must read name:scope+scope:secret")
    name, scopes, secret = (part.strip() for part in parts)
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{where} needs a name of letters, digits, '.', '_' or '-'")
    given = scopes.split("+")
    granted = frozenset(known for known in get_args(KeyScope) if known in given)
    if not set(given) <= granted:
        raise ConfigurationError(f"{where} ({name}) has an unknown scope; known are {', '.join(sorted(_SCOPES))}")
    return ApiKey(name, granted, _digest_of(secret, f"{where} ({name})"))


def _digest_of(secret: str, where: str) -> bytes:
    if secret.startswith("sha256:"):
        match = _HASHED.fullmatch(secret)
        if match is None:
            raise ConfigurationError(f"{where} must have 64 hex digits after sha256:")
        return bytes.fromhex(match.group(1))
    if len(secret) < MIN_SECRET:
        raise ConfigurationError(f"{where} has a secret of fewer than {MIN_SECRET} characters")
    return hashlib.sha256(secret.encode()).digest()


def parse_keys(entries: Iterable[SecretStr]) -> tuple[ApiKey, ...]:
    """All keys of the settings. Raises `ConfigurationError` for a bad entry or a name that repeats."""
    keys = tuple(parse_key(entry.get_secret_value(), place) for place, entry in enumerate(entries, 1))
    names = [key.name for key in keys]
    if len(set(names)) != len(names):
        raise ConfigurationError("ARBITER_API_KEYS: two keys have the same name")
    return keys


def check_bind(host: str, keys: Sequence[object]) -> None:
    """Refuse to listen beyond this machine without a key, in a container too. Raises `ConfigurationError`."""
    if not keys and not is_loopback(host):
        raise ConfigurationError(
            f"refusing to listen on {host!r} without an API key: anybody who reaches it could submit and read; "
            "set ARBITER_API_KEYS (name:scope+scope:secret), or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether a host name or address, without its port, can only mean this machine."""
    host = host.strip("[]").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Access:
    """Decides on a request from its headers alone, before any of its body is read.

    Without keys the service listens on loopback only, where the one stranger is a web page in the user's browser. So
    the `Host` must name this machine (a rebound DNS name doesn't) and an `Origin`, when there is one, too.
    """

    keys: tuple[ApiKey, ...]

    def check(self, scope: Scope, need: Need) -> None:
        """Raises `Unauthorized` without a known key, `Forbidden` when the key's scopes don't reach."""
        if need == "open":
            return
        if not self.keys:
            _check_local(scope)
            return
        key = self._find(_presented(scope))
        if not key.scopes & _GRANTS[need]:
            raise Forbidden(f"the key {key.name} has no scope {need}")

    def _find(self, secret: bytes | None) -> ApiKey:
        if secret is None:
            raise Unauthorized("send an API key as Authorization: Bearer or X-API-Key")
        digest = hashlib.sha256(secret).digest()
        found: ApiKey | None = None
        for key in self.keys:  # all of them, so that the time says nothing about which one matched
            if hmac.compare_digest(key.digest, digest):
                found = key
        if found is None:
            raise Unauthorized("the API key is not known")
        return found


def _presented(scope: Scope) -> bytes | None:
    fallback: bytes | None = None
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return bytes(value[7:].strip())
        if name == b"x-api-key":
            fallback = bytes(value.strip())
    return fallback


def _check_local(scope: Scope) -> None:
    for name, value in scope["headers"]:
        if name == b"host" and not _names_us(value):
            raise Forbidden("without an API key only requests addressed to this machine (localhost) are answered")
        if name == b"origin" and not is_loopback(_host_of(value)):
            raise Forbidden("without an API key no requests from other web sites are answered")


@lru_cache(maxsize=64)  # callers repeat themselves
def _names_us(host: bytes) -> bool:
    return is_loopback(_host_of(b"//" + host))


def _host_of(url: bytes) -> str:
    try:
        return urlsplit(url.decode("latin-1")).hostname or ""
    except ValueError:
        return ""
