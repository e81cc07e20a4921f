"""JSON-RPC 2.0 over HTTP: which message answers a request, and what its failure means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from adapters.reply import Reply
from adapters.sse import parse_events
from layers.errors import DependencyMalformed, DependencyRejected, DependencyUnavailable
from layers.strict_json import StrictJsonError, loads

REFUSED = frozenset({400, 404, 500})
"""HTTP statuses under which JSON-RPC errors come: the body says more than the status."""

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
_SERVER_AT_FAULT = frozenset({INTERNAL_ERROR, -32001, -32800})
"""Internal error; and, of MCP's own, request timed out and request cancelled."""
_EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
_SHOWN = 500
"""How many characters of a remote's words are kept."""


@dataclass(frozen=True, slots=True)
class Result:
    """The request was answered. `session` is the `Mcp-Session-Id` that came along."""

    value: dict[str, Any]
    session: str | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The server would not take the request. `code` is None when the body was no JSON-RPC error."""

    status: int
    code: int | None
    message: str
    data: Any = None
    session: str | None = None

    def raise_for(self, dependency: str) -> NoReturn:
        """Raise `DependencyRejected`: the request was ours to get right."""
        detail = {"status": self.status, "code": self.code}
        what = f"HTTP {self.status}" if self.status >= 400 else f"JSON-RPC error {self.code}"
        raise DependencyRejected(dependency, "rejected", f"{what}: {self.message}", detail=detail)


def read_answer(reply: Reply, request_id: int, dependency: str) -> Result | Refusal:
    """What `reply` says to the request `request_id`, from a JSON body or from an event stream.

    Notifications, requests of the server's own and answers to other requests are passed over. Raises
    `DependencyUnavailable` when the server failed (500, internal error), `DependencyMalformed` when a 2xx holds no
    answer to this request.
    """
    session = reply.headers.get("mcp-session-id")
    if reply.status >= 400:
        return _read_refusal(reply, dependency, session)
    unmatched: dict[str, Any] | None = None
    for message in _messages(reply, dependency):
        if _answers(message, request_id):
            return _read_message(message, reply.status, dependency, session)
        if message.get("id") is None and isinstance(message.get("error"), dict):
            unmatched = message
    if unmatched is not None:
        return _read_message(unmatched, reply.status, dependency, session)
    raise DependencyMalformed(dependency, "malformed", "no answer to this request in the reply")


class AnswerWatch:
    """Says when the answer to a request has come, so that a stream which the server keeps open need not end."""

    def __init__(self, request_id: int) -> None:
        self._request_id = request_id
        self._held = bytearray()
        self._seen = 0

    def __call__(self, chunk: bytes) -> bool:
        """Take the next piece of the body. True = the answer stands in what has come so far."""
        self._held += chunk
        cut = max(self._held.rfind(end, self._seen) + len(end) for end in _EVENT_ENDS)
        self._seen = max(0, len(self._held) - len(_EVENT_ENDS[-1]))
        if cut <= len(_EVENT_ENDS[-1]):
            return False
        whole = bytes(self._held[:cut])
        del self._held[:cut]
        self._seen = 0
        return any(self._holds(event.data) for event in parse_events(whole) if event.name == "message")

    def _holds(self, data: str) -> bool:
        try:
            value = loads(data)
        except StrictJsonError:
            return False  # what is wrong with it is said when the whole reply is read
        messages = value if isinstance(value, list) else [value]
        return any(isinstance(message, dict) and _answers(message, self._request_id) for message in messages)


def shown(text: str) -> str:
    """A remote's words on one line, bounded, without control characters and lone surrogates."""
    plain = "".join(char if char.isprintable() else " " for char in text[: 2 * _SHOWN])
    return " ".join(plain.split())[:_SHOWN]


def _read_refusal(reply: Reply, dependency: str, session: str | None) -> Refusal:
    error: Any = None
    try:
        messages = list(_messages(reply, dependency))
        error = messages[0].get("error") if messages else None
    except DependencyMalformed:
        pass  # a refusal needs no JSON body; its status says enough
    if isinstance(error, dict):
        refusal = _refusal(error, reply.status, session)
    else:
        refusal = Refusal(reply.status, None, "refused, and its body is no JSON-RPC error", session=session)
    if reply.status >= 500:
        raise DependencyUnavailable(dependency, "server_error", f"HTTP {reply.status}: {refusal.message}")
    return refusal


def _messages(reply: Reply, dependency: str) -> Iterator[dict[str, Any]]:
    """The JSON-RPC messages of a body; a batch counts as its members."""
    if reply.media_type == "text/event-stream":
        bodies: Iterator[str | bytes] = (event.data for event in parse_events(reply.body) if event.name == "message")
    else:
        bodies = iter([reply.body])
    for body in bodies:
        try:
            value = loads(body)
        except StrictJsonError as exc:
            raise DependencyMalformed(dependency, "malformed", f"the reply is not acceptable JSON: {exc}") from exc
        for message in value if isinstance(value, list) else [value]:
            if not isinstance(message, dict):
                raise DependencyMalformed(dependency, "malformed", "the reply is not a JSON-RPC message")
            yield message


def _answers(message: dict[str, Any], request_id: int) -> bool:
    given = message.get("id")
    return type(given) is int and given == request_id and ("result" in message or "error" in message)


def _read_message(message: dict[str, Any], status: int, dependency: str, session: str | None) -> Result | Refusal:
    if (error := message.get("error")) is not None:
        if not isinstance(error, dict):
            raise DependencyMalformed(dependency, "malformed", "the JSON-RPC error is not an object")
        refusal = _refusal(error, status, session)
        if refusal.code in _SERVER_AT_FAULT:
            raise DependencyUnavailable(dependency, "server_error", f"JSON-RPC {refusal.code}: {refusal.message}")
        return refusal
    result = message.get("result")
    if not isinstance(result, dict):
        raise DependencyMalformed(dependency, "malformed", "the JSON-RPC result is not an object")
    return Result(result, session)


def _refusal(error: dict[str, Any], status: int, session: str | None) -> Refusal:
    code, message = error.get("code"), error.get("message")
    return Refusal(
        status,
        code if type(code) is int else None,
        shown(message) if isinstance(message, str) and message.strip() else "no reason given",
        error.get("data"),
        session,
    )
