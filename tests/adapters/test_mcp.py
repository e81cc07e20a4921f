"""The MCP client against servers that demand this or that, refuse, expire, and answer in every legal shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
import pytest

from adapters.breaker import CircuitBreaker
from adapters.mcp import McpClient, ToolResult
from app.demo.sentinel import build_sentinel
from layers.errors import DependencyError, DependencyMalformed, DependencyRejected, DependencyUnavailable, ToolFailed
from tests.adapters.peers import URL, Watched, over_asgi, over_handler

pytestmark = pytest.mark.anyio

RESULT = {"content": [{"type": "text", "text": "fine"}]}


def reply(request_id: Any, status: int = 200, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    return httpx.Response(status, json={"jsonrpc": "2.0", "id": request_id, **body}, headers=headers)


def refusal(status: int, code: int, message: str, data: Any = None, **headers: str) -> httpx.Response:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return reply(None, status, headers={key.replace("_", "-"): value for key, value in headers.items()}, error=error)


@dataclass
class Peer:
    """A server of the handshake era, with a session; what it refuses is set per test."""

    version: str = "2025-11-25"
    supported: tuple[str, ...] = ()
    session: str | None = "s"
    live: set[str] = field(default_factory=set)
    seen: list[tuple[str, httpx.Headers, dict[str, Any]]] = field(default_factory=list)
    sessions_given: int = 0

    def methods(self) -> list[str]:
        return [method for method, _, _ in self.seen]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        message = json.loads(request.content)
        method = message["method"]
        self.seen.append((method, request.headers, message))
        if method == "initialize":
            return self.initialize(message)
        given = request.headers.get("mcp-session-id")
        if self.session and given is None:
            return refusal(400, -32600, "Bad Request: Missing session ID", mcp_session_id="not-yours")
        if self.session and given not in self.live:
            return refusal(404, -32600, "Session not found")
        if "id" not in message:
            return httpx.Response(202)
        return reply(message["id"], result=RESULT)

    def initialize(self, message: dict[str, Any]) -> httpx.Response:
        wanted = message["params"]["protocolVersion"]
        if self.supported and wanted not in self.supported:
            data = {"supported": list(self.supported), "requested": wanted}
            return reply(message["id"], 400, error={"code": -32602, "message": "Unsupported version", "data": data})
        headers = {}
        if self.session:
            self.sessions_given += 1
            headers["Mcp-Session-Id"] = f"{self.session}{self.sessions_given}"
            self.live.add(headers["Mcp-Session-Id"])
        version = wanted if self.supported else self.version
        return reply(message["id"], headers=headers, result={"protocolVersion": version, "capabilities": {}})


async def call(handler: Callable[..., Any], times: int = 1, **more: Any) -> ToolResult:
    async with over_handler(handler, **more) as client:
        mcp = McpClient(client, URL)
        for _ in range(times):
            result = await mcp.call_tool("t", {})
        return result


# --- terms ------------------------------------------------------------------------------------------------------------


async def test_every_request_says_what_it_accepts_and_what_it_is():
    """Accept, method, tool name and version stand in the headers of a call, from the first one on."""
    peer = Peer(session=None)
    await call(peer)
    _, headers, message = peer.seen[0]
    assert headers["accept"] == "application/json, text/event-stream"
    assert (headers["mcp-method"], headers["mcp-name"]) == ("tools/call", "t")
    assert headers["mcp-protocol-version"] == "2025-11-25"
    assert message["params"] == {"name": "t", "arguments": {}}
    assert "mcp-session-id" not in headers


@pytest.mark.parametrize("name", ["Prüfung", " x", "x\n", "=?base64?eA==?=", ""])
async def test_a_tool_name_that_no_header_can_hold_is_encoded(name: str):
    """Other characters travel as base64 between markers; the body has the name itself."""
    peer = Peer(session=None)
    async with over_handler(peer) as client:
        await McpClient(client, URL).call_tool(name, {})
    _, headers, message = peer.seen[0]
    assert headers["mcp-name"].startswith("=?base64?")
    assert message["params"]["name"] == name


async def test_the_session_id_of_a_refusal_is_ignored():
    """A 400 for a missing session carries an id; the one to use comes from `initialize`."""
    peer = Peer()
    await call(peer)
    assert peer.methods() == ["tools/call", "initialize", "notifications/initialized", "tools/call"]
    assert [headers.get("mcp-session-id") for _, headers, _ in peer.seen] == [None, None, "s1", "s1"]


async def test_initialize_itself_names_no_version_in_its_header():
    """The version header is for what was agreed."""
    peer = Peer()
    await call(peer)
    assert "mcp-protocol-version" not in peer.seen[1][1]


async def test_the_version_the_server_answers_is_used_from_then_on():
    """A server may answer `initialize` with an older revision that we know."""
    peer = Peer(version="2025-03-26")
    await call(peer)
    assert [headers.get("mcp-protocol-version") for _, headers, _ in peer.seen[2:]] == ["2025-03-26"] * 2


async def test_a_refused_version_is_offered_again_from_the_servers_list():
    """The newest revision that both know is taken."""
    peer = Peer(supported=("2024-11-05", "2025-06-18", "1999-01-01"))
    await call(peer)
    offered = [message["params"]["protocolVersion"] for method, _, message in peer.seen if method == "initialize"]
    assert offered == ["2025-11-25", "2025-06-18"]
    assert peer.seen[-1][1]["mcp-protocol-version"] == "2025-06-18"


@pytest.mark.parametrize("peer", [Peer(version="2031-01-01"), Peer(supported=("1999-01-01",))], ids=["answer", "list"])
async def test_no_common_version_is_a_refusal(peer: Peer):
    """Nothing is sent to a server whose revision is not known here."""
    with pytest.raises(DependencyRejected):
        await call(peer)
    assert peer.methods()[-1] == "initialize"


@pytest.mark.parametrize("version", [None, 20251125, ["2025-11-25"]])
async def test_a_handshake_without_a_version_is_malformed(version: Any):
    """The one thing a handshake must say."""
    with pytest.raises(DependencyMalformed):
        await call(Peer(version=version))


async def test_an_expired_session_is_replaced_once_per_call():
    """One new `initialize`, one retry; the caller sees nothing of it."""
    peer = Peer()
    async with over_handler(peer) as client:
        mcp = McpClient(client, URL)
        await mcp.call_tool("t", {})
        peer.live.clear()
        peer.seen.clear()
        assert (await mcp.call_tool("t", {})).text == "fine"
    assert peer.methods() == ["tools/call", "initialize", "notifications/initialized", "tools/call"]


async def test_a_session_that_expires_again_is_the_error():
    """After one new handshake and one retry the 404 is what the caller gets."""
    peer = Peer()
    async with over_handler(peer) as client:
        mcp = McpClient(client, URL)
        await mcp.call_tool("t", {})
        peer.live = Forgets()
        peer.seen.clear()
        with pytest.raises(DependencyRejected, match="Session not found"):
            await mcp.call_tool("t", {})
    assert peer.methods() == ["tools/call", "initialize", "notifications/initialized", "tools/call"]


class Forgets(set[str]):
    """Sessions that live for one notification only."""

    def __contains__(self, session: object) -> bool:
        found = set.__contains__(self, session)
        set.clear(self)
        return found


async def test_a_hundred_callers_share_one_new_handshake():
    """When a session dies under many callers, the first one replaces it for all."""
    peer = Peer()
    async with over_handler(peer) as client:
        mcp = McpClient(client, URL)
        await mcp.call_tool("t", {})
        peer.live.clear()
        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(mcp.call_tool, "t", {})
    assert peer.methods().count("initialize") == 2


async def test_a_cancelled_handshake_leaves_the_next_caller_free():
    """Whoever holds the handshake may be cancelled; nobody waits for it afterwards."""
    peer = Peer()
    started, stuck = anyio.Event(), anyio.Event()

    async def slow_first(request: httpx.Request) -> httpx.Response:
        if b'"initialize"' in request.content and not started.is_set():
            started.set()
            await stuck.wait()
        return peer(request)

    async with over_handler(slow_first) as client:
        mcp = McpClient(client, URL)
        async with anyio.create_task_group() as group:
            group.start_soon(mcp.call_tool, "t", {})
            await started.wait()
            group.cancel_scope.cancel()
        assert (await mcp.call_tool("t", {})).text == "fine"


async def test_lanes_and_breakers_share_the_session():
    """Another lane and another driver's breaker lead to the same server: one handshake for all."""
    peer = Peer()
    async with over_handler(peer) as client:
        mcp = McpClient(client, URL)
        await mcp.call_tool("t", {})
        await mcp.on("run").call_tool("t", {})
        await mcp.call_tool("t", {}, breaker=CircuitBreaker("sentinel.gemini"))
    assert peer.methods().count("initialize") == 1


async def test_request_ids_are_never_used_twice():
    """A session must not see the same id again."""
    peer = Peer()
    await call(peer, times=5)
    ids = [message["id"] for _, _, message in peer.seen if "id" in message]
    assert len(ids) == len(set(ids)) == 7


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((400, -32000, "Bad Request: Server not initialized"), id="400"),
        pytest.param((200, -32002, "Server not initialized"), id="200"),
        pytest.param((200, -32602, "Invalid request parameters"), id="sdk before initialize"),
        pytest.param((404, -32600, "who are you"), id="404"),
    ],
)
async def test_a_handshake_is_done_for_whatever_way_it_is_demanded(words: tuple[int, int, str]):
    """Servers differ in how they say that they want to be initialised first."""
    peer = Peer(session=None)
    ready: list[str] = []

    def demanding(request: httpx.Request) -> httpx.Response:
        message = json.loads(request.content)
        if message["method"] == "tools/call" and not ready:
            peer.seen.append(("refused", request.headers, message))
            status, code, text = words
            return reply(message["id"], status, error={"code": code, "message": text})
        if message["method"] == "notifications/initialized":
            ready.append("yes")
        return peer(request)

    assert (await call(demanding, times=2)).text == "fine"
    assert peer.methods() == ["refused", "initialize", "notifications/initialized", "tools/call", "tools/call"]


async def test_a_plain_json_rpc_server_needs_no_handshake():
    """The deployed Sentinel answers at once, so nothing but calls is sent."""
    watched = Watched(build_sentinel())
    async with over_asgi(watched) as client:
        mcp = McpClient(client, URL)
        for _ in range(3):
            await mcp.call_tool("get-recent-transactions", {})
    assert watched.methods() == ["tools/call"] * 3


async def test_a_plain_server_is_asked_for_a_handshake_once_at_most():
    """A refusal of the first call might be a demand; once the server has said that it knows no handshake, it is not."""
    watched = Watched(build_sentinel())
    async with over_asgi(watched) as client:
        mcp = McpClient(client, URL)
        for _ in range(3):
            with pytest.raises(DependencyRejected, match="Tool not found"):
                await mcp.call_tool("analyze_transaction", {})
        assert (await mcp.call_tool("get-recent-transactions", {})).text
    assert watched.methods() == ["tools/call", "initialize", "server/discover", *["tools/call"] * 3]


async def test_a_plain_server_that_starts_to_demand_a_session_gets_one():
    """Plain words about a session are heard at any time: the server's next version may come while we run."""
    peer = Peer()
    servers: list[Callable[[httpx.Request], httpx.Response]] = [rpc_error(400, -32602, "Tool not found")]

    def newest(request: httpx.Request) -> httpx.Response:
        return servers[-1](request)

    async with over_handler(newest) as client:
        mcp = McpClient(client, URL)
        for _ in range(2):
            with pytest.raises(DependencyRejected):
                await mcp.call_tool("nothing", {})
        servers.append(peer)
        assert (await mcp.call_tool("t", {})).text == "fine"
    assert peer.methods() == ["tools/call", "initialize", "notifications/initialized", "tools/call"]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((400, -32022, "Unsupported protocol version", {"supported": ["2026-07-28"]}), id="version"),
        pytest.param((400, -32020, "mcp-method header does not match", None), id="header"),
        pytest.param((400, -32602, "params._meta must be an object", None), id="meta"),
    ],
)
async def test_a_server_of_the_envelope_revision_is_recognised(words: tuple[int, int, str, Any]):
    """Its refusal says so; the same call then goes out in the envelope, without a handshake."""
    seen: list[httpx.Request] = []

    def modern(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        message = json.loads(request.content)
        if message["params"].get("_meta", {}).get("io.modelcontextprotocol/protocolVersion") != "2026-07-28":
            return refusal(*words)
        return reply(message["id"], result={**RESULT, "resultType": "complete"})

    assert (await call(modern, times=2)).text == "fine"
    assert len(seen) == 3
    assert seen[-1].headers["mcp-protocol-version"] == "2026-07-28"


async def test_a_tool_that_asks_for_more_input_is_refused():
    """One-shot calls have nobody to ask."""
    with pytest.raises(DependencyRejected) as caught:
        await call(lambda request: reply(1, result={"resultType": "input_required", "inputRequests": {}}))
    assert caught.value.kind == "input_required"


# --- failures ---------------------------------------------------------------------------------------------------------


def unplugged(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


def rpc_error(status: int, code: Any, message: Any = "no") -> Callable[[httpx.Request], httpx.Response]:
    def handler(request: httpx.Request) -> httpx.Response:
        return reply(json.loads(request.content).get("id"), status, error={"code": code, "message": message})

    return handler


def result(**value: Any) -> Callable[[httpx.Request], httpx.Response]:
    return lambda request: reply(json.loads(request.content).get("id"), result=value)


def text(body: str, status: int = 200) -> Callable[[httpx.Request], httpx.Response]:
    return lambda request: httpx.Response(status, text=body)


@pytest.mark.parametrize(
    ("handler", "error", "kind"),
    [
        pytest.param(unplugged, DependencyUnavailable, "refused", id="refused"),
        pytest.param(lambda r: httpx.Response(401), DependencyRejected, "rejected", id="401"),
        pytest.param(lambda r: httpx.Response(405), DependencyRejected, "rejected", id="405"),
        pytest.param(lambda r: httpx.Response(429), DependencyUnavailable, "rate_limited", id="429"),
        pytest.param(lambda r: httpx.Response(503), DependencyUnavailable, "server_error", id="503"),
        pytest.param(rpc_error(400, -32602), DependencyRejected, "rejected", id="rpc 400"),
        pytest.param(rpc_error(404, -32601), DependencyRejected, "rejected", id="rpc 404"),
        pytest.param(rpc_error(500, -32603), DependencyUnavailable, "server_error", id="rpc 500"),
        pytest.param(rpc_error(200, -32601), DependencyRejected, "rejected", id="rpc 200 refused"),
        pytest.param(rpc_error(200, -32603), DependencyUnavailable, "server_error", id="rpc 200 failed"),
        pytest.param(rpc_error(200, "x", 3), DependencyRejected, "rejected", id="rpc odd error"),
        pytest.param(text("no such page", 404), DependencyRejected, "rejected", id="404 html"),
        pytest.param(text("Internal Server Error", 500), DependencyUnavailable, "server_error", id="500 text"),
        pytest.param(text("<html>"), DependencyMalformed, "malformed", id="html"),
        pytest.param(text(""), DependencyMalformed, "malformed", id="empty"),
        pytest.param(text("3"), DependencyMalformed, "malformed", id="number"),
        pytest.param(text('{"jsonrpc": "2.0"'), DependencyMalformed, "malformed", id="half"),
        pytest.param(text("[" * 100_000), DependencyMalformed, "malformed", id="deep"),
        pytest.param(text('{"id": NaN}'), DependencyMalformed, "malformed", id="nan"),
        pytest.param(lambda r: reply(999, result=RESULT), DependencyMalformed, "malformed", id="another id"),
        pytest.param(lambda r: reply("1", result=RESULT), DependencyMalformed, "malformed", id="id as text"),
        pytest.param(lambda r: reply(True, result=RESULT), DependencyMalformed, "malformed", id="id true"),
        pytest.param(lambda r: reply(1, result=[]), DependencyMalformed, "malformed", id="result list"),
        pytest.param(lambda r: reply(1, error="no"), DependencyMalformed, "malformed", id="error text"),
        pytest.param(result(content="x"), DependencyMalformed, "malformed", id="content text"),
        pytest.param(result(content=["x"]), DependencyMalformed, "malformed", id="content list of text"),
        pytest.param(result(content=[], isError="yes"), DependencyMalformed, "malformed", id="isError text"),
        pytest.param(result(content=[], isError=True), ToolFailed, "tool_failed", id="isError"),
        pytest.param(lambda r: httpx.Response(202), DependencyMalformed, "malformed", id="202"),
    ],
)
async def test_failures(handler: Callable[..., Any], error: type[DependencyError], kind: str):
    """Every way a server can fail a call has one error."""
    with pytest.raises(DependencyError) as caught:
        await call(handler)
    assert type(caught.value) is error
    assert caught.value.kind == kind


async def test_a_tools_words_are_bounded_and_on_one_line():
    """What a tool says goes into records and logs; it must not forge lines or fill them."""
    words = "first\r\nsecond\x1b[31m \u2028" + "x" * 10_000
    with pytest.raises(ToolFailed) as caught:
        await call(result(content=[{"type": "text", "text": words}], isError=True))
    assert caught.value.message.startswith("first second")
    assert caught.value.message.isprintable()
    assert len(caught.value.message) <= 500


async def test_a_failing_tool_is_not_called_again_and_counts_against_its_breaker():
    """`ToolFailed` is evidence against the driver that ran the tool, and repeating it is the caller's decision."""
    seen: list[httpx.Request] = []

    def failing(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return result(content=[{"type": "text", "text": "no"}], isError=True)(request)

    driver = CircuitBreaker("sentinel.ollama", minimum_calls=2)
    server = CircuitBreaker("sentinel", minimum_calls=2)
    async with over_handler(failing, attempts=3, breaker=server) as client:
        mcp = McpClient(client, URL)
        for _ in range(2):
            with pytest.raises(ToolFailed, match=r"^sentinel\.ollama: no$"):
                await mcp.call_tool("t", {}, breaker=driver)
    assert len(seen) == 2
    assert (driver.state(), server.state()) == ("open", "closed")


async def test_a_refused_request_says_nothing_about_the_servers_health():
    """JSON-RPC refusals are ours to get right; the breaker stays closed."""
    breaker = CircuitBreaker("sentinel", minimum_calls=1)
    async with over_handler(rpc_error(404, -32601), breaker=breaker) as client:
        with pytest.raises(DependencyRejected):
            await McpClient(client, URL).call_tool("t", {})
    assert breaker.state() == "closed"


async def test_what_the_reader_makes_of_a_result_runs_inside_the_breaker():
    """A server that keeps its protocol and sends garbage within it is as sick as one that does not."""
    breaker = CircuitBreaker("sentinel", minimum_calls=1)

    def read(result: ToolResult) -> str:
        raise DependencyMalformed("sentinel", "malformed", "garbage")

    async with over_handler(result(content=[]), breaker=breaker) as client:
        with pytest.raises(DependencyMalformed):
            await McpClient(client, URL).call_tool("t", {}, read=read)
    assert breaker.state() == "open"


async def test_a_stream_that_stays_open_does_not_hold_the_caller():
    """The answer ends the call, whatever pings the server means to send for ever after."""

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self):
            yield b": ping\n\n"
            yield b'event: message\ndata: {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}\n\n'
            raise AssertionError("read on")

    def open_stream(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Endless())

    assert (await call(open_stream)).texts == ()


async def test_the_whole_conversation_has_one_deadline():
    """A handshake does not start the clock anew: what the first call used up is gone."""
    now = [0.0]
    peer = Peer()

    async def slow(request: httpx.Request) -> httpx.Response:
        now[0] += 6
        await anyio.lowlevel.checkpoint()
        return peer(request)

    async with over_handler(slow, timeout=100.0, clock=lambda: now[0]) as client:
        with pytest.raises(DependencyUnavailable) as caught:
            await McpClient(client, URL, timeout=15.0, clock=lambda: now[0]).call_tool("t", {})
    assert caught.value.kind == "timeout"
    assert len(peer.seen) <= 3
