"""The MCP client against the official SDK's own servers, over a real port."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from adapters.mcp import McpClient
from layers.errors import DependencyRejected, ToolFailed
from tests.adapters.peers import Watched, over_network, serving

pytestmark = pytest.mark.anyio

VERDICT = {"risk_level": "high", "narrative": "naïve — 10 000 €"}
MODES = {
    "stateful-sse": {"json_response": False, "stateless_http": False},
    "stateful-json": {"json_response": True, "stateless_http": False},
    "stateless": {"json_response": False, "stateless_http": True},
    "stateless-json": {"json_response": True, "stateless_http": True},
}
mode = pytest.mark.parametrize("mode", MODES)


def build_server() -> MCPServer:
    server = MCPServer("sentinel")

    @server.tool(name="analyze-transaction", structured_output=False)
    async def analyze(amount: float, merchant: str, ctx: Context) -> str:
        await ctx.report_progress(1, 2, "looking")
        if merchant == "broken":
            raise ToolError("no model answered")
        return json.dumps({**VERDICT, "amount": amount})

    return server


@contextmanager
def sdk_server(mode: str) -> Iterator[tuple[str, Watched]]:
    watched = Watched(build_server().streamable_http_app(**MODES[mode]))
    with serving(watched) as base:
        yield f"{base}/mcp", watched


@mode
async def test_a_tool_is_called(mode: str):
    """Whatever the server demands is found out, and the text comes back as it was written."""
    with sdk_server(mode) as (url, _):
        async with over_network() as client:
            result = await McpClient(client, url).call_tool("analyze-transaction", {"amount": 12.5, "merchant": "m"})
    assert json.loads(result.text) == {**VERDICT, "amount": 12.5}


@mode
async def test_the_handshake_is_done_once_and_only_where_demanded(mode: str):
    """A stateful server is asked once, then remembered; a stateless one is never asked."""
    with sdk_server(mode) as (url, watched):
        async with over_network() as client:
            mcp = McpClient(client, url)
            for _ in range(3):
                await mcp.call_tool("analyze-transaction", {"amount": 1, "merchant": "m"})
    handshake = ["tools/call", "initialize", "notifications/initialized"] if mode.startswith("stateful") else []
    assert watched.methods() == [*handshake, "tools/call", "tools/call", "tools/call"]


@mode
async def test_concurrent_callers_share_one_handshake(mode: str):
    """Twenty callers at once cause one `initialize`, and all are answered."""
    amounts: list[float] = []
    with sdk_server(mode) as (url, watched):
        async with over_network() as client:
            mcp = McpClient(client, url)

            async def call(amount: int) -> None:
                result = await mcp.call_tool("analyze-transaction", {"amount": amount, "merchant": "m"})
                amounts.append(json.loads(result.text)["amount"])

            async with anyio.create_task_group() as group:
                for amount in range(20):
                    group.start_soon(call, amount)
    assert sorted(amounts) == list(range(20))
    assert watched.methods().count("initialize") == (1 if mode.startswith("stateful") else 0)


@mode
async def test_a_failing_tool_is_tool_failed_with_its_words(mode: str):
    """`isError` is the tool's own failure, not the server's."""
    with sdk_server(mode) as (url, _):
        async with over_network() as client:
            with pytest.raises(ToolFailed, match="no model answered"):
                await McpClient(client, url).call_tool("analyze-transaction", {"amount": 1, "merchant": "broken"})


@mode
async def test_an_unknown_tool_is_our_fault(mode: str):
    """The server is well: it either refuses the request, or says that the tool failed."""
    with sdk_server(mode) as (url, _):
        async with over_network() as client:
            with pytest.raises((DependencyRejected, ToolFailed), match="analyze_transaction"):
                await McpClient(client, url).call_tool("analyze_transaction", {})


@pytest.mark.parametrize("mode", ["stateful-sse", "stateful-json"])
async def test_an_expired_session_costs_one_new_handshake(mode: str):
    """A session that the server has ended is a 404: one new `initialize`, one retry, and the answer."""
    with sdk_server(mode) as (url, watched):
        async with over_network() as client:
            mcp = McpClient(client, url)
            await mcp.call_tool("analyze-transaction", {"amount": 1, "merchant": "m"})
            session = watched.seen[-1][1]["mcp-session-id"]
            await client.call("DELETE", url, headers={"Mcp-Session-Id": session}, read=lambda reply: None)
            watched.seen.clear()
            await mcp.call_tool("analyze-transaction", {"amount": 2, "merchant": "m"})
    assert watched.methods() == ["tools/call", "initialize", "notifications/initialized", "tools/call"]
    assert watched.seen[-1][1]["mcp-session-id"] != session


async def test_a_server_of_the_newest_revision_gets_its_envelope():
    """Where `initialize` is unknown, the version goes into the header and into `_meta`, and so does the method."""
    app = build_server().streamable_http_app(json_response=True)

    async def modern_only(scope, receive, send):
        """Sends every bare request to the part of the SDK that knows no handshake."""
        if scope["type"] == "http":
            headers = [(k, v) for k, v in scope["headers"] if k != b"mcp-protocol-version" or v > b"2026"]
            names = [key for key, _ in headers]
            extra = [] if b"mcp-protocol-version" in names else [(b"mcp-protocol-version", b"2026-07-28")]
            scope = {**scope, "headers": headers + extra}
        await app(scope, receive, send)

    watched = Watched(modern_only)
    with serving(watched) as base:
        async with over_network() as client:
            mcp = McpClient(client, f"{base}/mcp")
            for _ in range(2):
                result = await mcp.call_tool("analyze-transaction", {"amount": 3, "merchant": "m"})
    assert json.loads(result.text)["amount"] == 3
    assert watched.seen[-1][1]["mcp-protocol-version"] == "2026-07-28"
    assert watched.seen[-1][1]["mcp-name"] == "analyze-transaction"
    assert watched.methods() == ["tools/call"] * 3


# --- the 1.x line, in an environment of its own -----------------------------------------------------------------------

_SERVER_1X = """
import json, sys
from mcp.server.fastmcp import FastMCP
server = FastMCP("sentinel", json_response=sys.argv[1] == "json", stateless_http=sys.argv[2] == "stateless")

@server.tool(name="analyze-transaction", structured_output=False)
def analyze(amount: float, merchant: str) -> str:
    if merchant == "broken":
        raise ValueError("no model answered")
    return json.dumps({"risk_level": "high", "amount": amount})

import socket, uvicorn
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run([listener])
"""

_UV = [
    "uv",
    "run",
    "--isolated",
    "--no-project",
    "--python",
    sys.executable,
    "--with",
    "mcp==1.30.*",
    "--with",
    "uvicorn",
]


@contextmanager
def sdk_1x(tmp_path: Path, replies: str, sessions: str) -> Iterator[str]:
    script = tmp_path / "server.py"
    script.write_text(_SERVER_1X)
    try:
        probe = subprocess.run(
            [*_UV, "python", "-c", "import mcp, uvicorn"], capture_output=True, timeout=300, check=False
        )
    except FileNotFoundError:
        pytest.skip("uv is not installed, so mcp 1.30 can't get an environment of its own")
    if probe.returncode:
        pytest.skip(f"mcp 1.30 can't be installed here: {probe.stderr.decode(errors='replace')[-300:]}")
    process = subprocess.Popen([*_UV, "python", str(script), replies, sessions], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize(("replies", "sessions"), [("sse", "stateful"), ("json", "stateful"), ("sse", "stateless")])
async def test_the_sdk_1x_server_is_understood(tmp_path: Path, replies: str, sessions: str):
    """`FastMCP` of mcp 1.30 in its three modes: a verdict, a failing tool, and twenty callers at once."""
    with sdk_1x(tmp_path, replies, sessions) as url:
        async with over_network() as client:
            mcp = McpClient(client, url)
            result = await mcp.call_tool("analyze-transaction", {"amount": 2.5, "merchant": "m"})
            assert json.loads(result.text) == {"risk_level": "high", "amount": 2.5}
            with pytest.raises(ToolFailed, match="no model answered"):
                await mcp.call_tool("analyze-transaction", {"amount": 1, "merchant": "broken"})
            async with anyio.create_task_group() as group:
                for amount in range(20):
                    group.start_soon(mcp.call_tool, "analyze-transaction", {"amount": amount, "merchant": "m"})
