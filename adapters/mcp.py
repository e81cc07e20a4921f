"""An MCP client over streamable HTTP for one-shot tool calls: it does the handshake only where a server demands one."""

from __future__ import annotations

import copy
import itertools
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

import anyio

from adapters.breaker import CircuitBreaker
from adapters.http import JsonClient
from adapters.jsonrpc import METHOD_NOT_FOUND, REFUSED, AnswerWatch, Refusal, Result, read_answer, shown
from adapters.limits import Lane
from adapters.mcp_terms import (
    CLIENT_INFO,
    ENVELOPE_VERSIONS,
    HANDSHAKE_VERSIONS,
    PLAIN,
    Terms,
    agreed,
    in_envelope,
    mutual,
    wants_envelope,
)
from adapters.reply import Reply
from layers.errors import DependencyMalformed, DependencyRejected, ToolFailed
from layers.ports import Clock

T = TypeVar("T")

_SESSION_ID = re.compile(r"[\x21-\x7e]{1,4096}")
_NOT_THERE = frozenset({400, 404, 405, 406, 501})
"""How servers that know no handshake refuse one, beside `Method not found`."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered: the texts of its content in order, and its structured content where it gave one."""

    texts: tuple[str, ...]
    structured: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The first text; empty when there is none."""
        return self.texts[0] if self.texts else ""


@dataclass
class _Link:
    """What is known of one server, shared by all lanes and breakers that lead to it."""

    terms: Terms = field(default_factory=Terms)
    asking: anyio.Lock = field(default_factory=anyio.Lock)
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))


class McpClient:
    """Calls tools of the MCP server at `url`.

    The first call goes out without handshake. When the server refuses it, one caller finds out what it wants
    (`initialize`, a session, the envelope of the newest revision) while the others wait, and what it wants is
    remembered. An expired session is replaced once per call. Nothing is retried here beyond that. `timeout` (seconds)
    bounds a whole call with its handshake; None leaves it to the client's time-out for each request.
    """

    def __init__(
        self, client: JsonClient, url: str, *, timeout: float | None = None, clock: Clock = time.monotonic
    ) -> None:
        self._client = client
        self._url = url
        self._timeout = timeout
        self._clock = clock
        self._link = _Link()

    def on(self, lane: Lane) -> McpClient:
        """The same server and session, on another lane of its budget."""
        other = copy.copy(self)
        other._client = self._client.on(lane)
        return other

    def outlook(self, n: int) -> float:
        """Seconds until the server's rate limit may have let `n` more calls of this lane through."""
        return self._client.outlook(n)

    @overload
    async def call_tool(
        self, name: str, arguments: dict[str, Any], *, breaker: CircuitBreaker | None = None
    ) -> ToolResult: ...
    @overload
    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        breaker: CircuitBreaker | None = None,
        read: Callable[[ToolResult], T],
    ) -> T: ...
    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        breaker: CircuitBreaker | None = None,
        read: Callable[[ToolResult], Any] = lambda result: result,
    ) -> Any:
        """Call the tool `name`; what `read` makes of its result is returned. `read` runs inside the breaker.

        Raises `ToolFailed` when the tool says so, `DependencyRejected` when the server refuses the request, and the
        other `DependencyError`s as the HTTP client does.
        """
        client = self._client if breaker is None else self._client.guarded_by(breaker)
        dependency = self._client.name if breaker is None else breaker.name
        deadline = None if self._timeout is None else self._clock() + self._timeout
        return await _Conversation(client, self._url, self._link, dependency, deadline).call_tool(name, arguments, read)


@dataclass(frozen=True)
class _Conversation:
    """One call with all it takes, on one breaker, by one deadline."""

    client: JsonClient
    url: str
    link: _Link
    dependency: str
    deadline: float | None

    async def call_tool(self, name: str, arguments: dict[str, Any], read: Callable[[ToolResult], Any]) -> Any:
        params = {"name": name, "arguments": arguments}

        def read_result(result: Result) -> _Read:
            return _Read(read(read_tool_result(result.value, self.dependency)))

        terms = self.link.terms
        answer = await self._ask(terms, "tools/call", params, read_result, name=name)
        if isinstance(answer, Refusal) and terms.refused_by(answer):
            better = await self._better_terms(terms, answer)
            if better is not None:
                answer = await self._ask(better, "tools/call", params, read_result, name=name)
        if isinstance(answer, Refusal):
            answer.raise_for(self.dependency)
        return answer.value

    async def _ask(
        self,
        terms: Terms,
        method: str,
        params: dict[str, Any],
        read: Callable[[Result], T],
        *,
        name: str | None = None,
    ) -> T | Refusal:
        request_id = next(self.link.ids)

        def read_reply(reply: Reply) -> T | Refusal:
            answer = read_answer(reply, request_id, self.dependency)
            return answer if isinstance(answer, Refusal) else read(answer)

        return await self.client.call(
            "POST",
            self.url,
            json={"jsonrpc": "2.0", "id": request_id, "method": method, "params": terms.params(params)},
            headers=terms.headers(method, name),
            expect=REFUSED,
            deadline=self.deadline,
            read=read_reply,
            watch=lambda: AnswerWatch(request_id),
        )

    async def _better_terms(self, refused: Terms, refusal: Refusal) -> Terms | None:
        """Find out what the server wants, unless another caller just did. None = nothing that we did not give it."""
        async with self.link.asking:
            if self.link.terms is not refused:
                return self.link.terms
            found = await self._find_terms(refused, refusal)
            self.link.terms = found
            # A plain server was not given less than it wants, unless it has just lost a session.
            return None if found == PLAIN and not refused.greeted else found

    async def _find_terms(self, refused: Terms, refusal: Refusal) -> Terms:
        if wants_envelope(refusal) and not refused.envelope:
            return in_envelope(mutual(refusal, ENVELOPE_VERSIONS) or ENVELOPE_VERSIONS[-1])
        answer = await self._initialize(HANDSHAKE_VERSIONS[-1])
        if isinstance(answer, Refusal) and (version := mutual(answer, HANDSHAKE_VERSIONS[:-1])) is not None:
            answer = await self._initialize(version)
        if isinstance(answer, Terms):
            await self._initialized(answer)
            return answer
        if wants_envelope(answer):
            return in_envelope(mutual(answer, ENVELOPE_VERSIONS) or ENVELOPE_VERSIONS[-1])
        if answer.code == METHOD_NOT_FOUND or (answer.code is None and answer.status in _NOT_THERE):
            return await self._without_handshake()
        return answer.raise_for(self.dependency)

    async def _initialize(self, version: str) -> Terms | Refusal:
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT_INFO}
        return await self._ask(Terms(), "initialize", params, self._read_handshake)

    def _read_handshake(self, result: Result) -> Terms:
        version = result.value.get("protocolVersion")
        if not isinstance(version, str):
            raise DependencyMalformed(self.dependency, "malformed", "the handshake names no protocol version")
        if version not in HANDSHAKE_VERSIONS:
            raise DependencyRejected(
                self.dependency, "protocol_version", f"the server speaks MCP {shown(version)}, which is not known here"
            )
        if result.session is not None and not _SESSION_ID.fullmatch(result.session):
            raise DependencyMalformed(self.dependency, "malformed", "the session id is not visible ASCII")
        return agreed(version, result.session)

    async def _initialized(self, terms: Terms) -> None:
        method = "notifications/initialized"
        await self.client.call(
            "POST",
            self.url,
            json={"jsonrpc": "2.0", "method": method},
            headers=terms.headers(method),
            deadline=self.deadline,
            read=lambda _reply: None,
        )

    async def _without_handshake(self) -> Terms:
        """A server without `initialize` is of an envelope revision, or it is plain JSON-RPC."""
        envelope = in_envelope()
        answer = await self._ask(envelope, "server/discover", {}, lambda result: result)
        if isinstance(answer, Refusal):
            version = mutual(answer, ENVELOPE_VERSIONS)
            return PLAIN if version is None else in_envelope(version)
        return envelope


@dataclass(frozen=True, slots=True)
class _Read:
    """Whatever the caller's `read` returned, set apart from a refusal."""

    value: Any


def read_tool_result(result: dict[str, Any], dependency: str) -> ToolResult:
    """Read the result of `tools/call`. Raises `ToolFailed` (its `isError`) and `DependencyMalformed`."""
    content = result.get("content", [])
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise DependencyMalformed(dependency, "malformed", "the tool's content is not a list of objects")
    failed = result.get("isError")
    if failed is not None and not isinstance(failed, bool):
        raise DependencyMalformed(dependency, "malformed", "isError is neither true nor false")
    texts = tuple(
        block["text"] for block in content if block.get("type") == "text" and isinstance(block.get("text"), str)
    )
    if failed:
        raise ToolFailed(dependency, "tool_failed", shown(" ".join(texts)) or "the tool failed and gave no reason")
    if result.get("resultType", "complete") != "complete":
        raise DependencyRejected(dependency, "input_required", "the tool asks for more input, which nobody can give")
    structured = result.get("structuredContent")
    return ToolResult(texts, structured if isinstance(structured, dict) else None)
