"""How an MCP server wants to be spoken to: with or without handshake, session, version and envelope."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Any, Final

from adapters.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, Refusal

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Protocol revisions agreed by `initialize`, oldest first."""
ENVELOPE_VERSIONS: Final = ("2026-07-28",)
"""Revisions without handshake: each request says its version in a header and in `_meta`."""

CLIENT_INFO: Final = {"name": "arbiter-l8", "version": "1"}
_META = "io.modelcontextprotocol/"
_ENVELOPE_CODES = frozenset({-32020, -32021, -32022})
"""Header mismatch, missing capability, unsupported version: only servers of the envelope revisions know these."""
_UNDECIDED_CODES = frozenset({-32000, -32002, -32600, INVALID_PARAMS})
"""What servers answer to a call before `initialize`; the same codes also mean an ordinary bad request."""
_HEADER_SAFE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_SESSION_WORDS = re.compile(r"session|initiali[sz]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Terms:
    """What every request to one server carries.

    `settled` = the server was asked what it wants; before that the first call goes out bare. `greeted` = there was a
    handshake, with or without a session.
    """

    version: str = HANDSHAKE_VERSIONS[-1]
    session: str | None = None
    envelope: bool = False
    settled: bool = False
    greeted: bool = False

    def headers(self, method: str, name: str | None = None) -> dict[str, str]:
        """The HTTP headers of a request; `initialize` names no version and no session, it asks for them."""
        headers = {"Accept": "application/json, text/event-stream", "Mcp-Method": method}
        if name is not None:
            headers["Mcp-Name"] = header_value(name)
        if method != "initialize":
            headers["MCP-Protocol-Version"] = self.version
            if self.session is not None:
                headers["Mcp-Session-Id"] = self.session
        return headers

    def params(self, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a request, in the envelope where the server wants one."""
        if not self.envelope:
            return params
        meta = {"protocolVersion": self.version, "clientInfo": CLIENT_INFO, "clientCapabilities": {}}
        return {**params, "_meta": {_META + key: value for key, value in meta.items()}}

    def refused_by(self, refusal: Refusal) -> bool:
        """Whether `refusal` may be about the terms rather than about the request itself.

        A server that was never asked is given the benefit of the doubt; afterwards only plain words count.
        """
        if refusal.code == METHOD_NOT_FOUND:
            return False
        if self.session is not None:
            return refusal.status == 404 or bool(refusal.status == 400 and _SESSION_WORDS.search(refusal.message))
        if refusal.session is not None or _SESSION_WORDS.search(refusal.message) or wants_envelope(refusal):
            return not (self.envelope and wants_envelope(refusal))
        return not self.settled and (refusal.status >= 400 or refusal.code in _UNDECIDED_CODES)


PLAIN: Final = Terms(settled=True)
"""A server that was asked and knows no handshake."""


def agreed(version: str, session: str | None) -> Terms:
    """The terms after a handshake."""
    return Terms(version, session, settled=True, greeted=True)


def in_envelope(version: str = ENVELOPE_VERSIONS[-1]) -> Terms:
    """The terms of a server of the envelope revisions."""
    return Terms(version, envelope=True, settled=True)


def wants_envelope(refusal: Refusal) -> bool:
    """Whether a refusal shows that the server speaks an envelope revision."""
    if refusal.code in _ENVELOPE_CODES or mutual(refusal, ENVELOPE_VERSIONS) is not None:
        return True
    return refusal.code == INVALID_PARAMS and "_meta" in refusal.message


def mutual(refusal: Refusal, ours: tuple[str, ...]) -> str | None:
    """The newest of our versions among those that a refusal lists as supported."""
    supported = refusal.data.get("supported") if isinstance(refusal.data, dict) else None
    if not isinstance(supported, list):
        return None
    return next((version for version in reversed(ours) if version in supported), None)


def header_value(text: str) -> str:
    """`text` as MCP writes it into a header: as it is where that survives, else base64 between markers."""
    if _HEADER_SAFE.fullmatch(text) and not text.startswith("=?base64?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode('ascii')}?="
