"""Sentinel played by the official MCP SDK's own servers: drivers of different speed and opinion behind `/evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from tests.adapters.peers import Watched, serving
from tests.adapters.test_mcp_sdk import MODES, sdk_1x
from tests.standins import FLAGGED, sentinel_at, service, settings_for

pytestmark = pytest.mark.anyio

DRIVERS = ("quick", "slow", "odd")


class Rendezvous:
    """Drivers answer in order, and only once all of them were asked: asked one by one, none would ever answer."""

    def __init__(self) -> None:
        self._asked = {driver: anyio.Event() for driver in DRIVERS}
        self._answered = {driver: anyio.Event() for driver in DRIVERS}

    async def of(self, driver: str) -> None:
        self._asked[driver].set()
        before = DRIVERS[: DRIVERS.index(driver)]
        with anyio.fail_after(10):
            for event in (*self._asked.values(), *(self._answered[name] for name in before)):
                await event.wait()
        self._answered[driver].set()


def build_server(opinions: dict[str, str | None], rendezvous: Rendezvous | None = None) -> MCPServer:
    """A Sentinel whose drivers say what `opinions` holds; None = it fails, `never` = it does not answer."""
    server = MCPServer("sentinel")

    @server.tool(name="analyze-transaction", structured_output=False)
    async def analyze(amount: float, currency: str, merchant: str, driver: str, id: str | None = None) -> str:
        if rendezvous is not None:
            await rendezvous.of(driver)
        label = opinions[driver]
        if label is None:
            raise ToolError(f"Driver [{driver}] could not complete the analysis.")
        if label == "never":
            await anyio.sleep_forever()
        return json.dumps(
            {"source": "driver_override", "is_threat": label != "low", "risk_level": label, "confidence": 0.8,
             "message": f"{amount} {currency} at {merchant}", "narrative": None, "policy_refs": []}
        )  # fmt: skip

    return server


@pytest.fixture(params=sorted(MODES))
def mode(request: pytest.FixtureRequest) -> dict[str, bool]:
    """Sessions or none, SSE or plain JSON."""
    return MODES[request.param]


async def ask(http: httpx.AsyncClient, number: int = 1) -> dict[str, Any]:
    response = await http.post("/evaluate", json={**FLAGGED, "id": f"txn-{number}"})
    assert response.status_code == 200
    return response.json()


def settings(folder: Path, url: str) -> Any:
    return settings_for(folder, short=True, sentinel=sentinel_at(url, drivers=DRIVERS))


async def test_drivers_that_differ_are_asked_at_once_and_disagree(tmp_path: Path, mode: dict[str, bool]) -> None:
    """Three opinions of three speeds: the panel is split, and that goes to a person."""
    app = build_server({"quick": "high", "slow": "medium", "odd": "low"}, Rendezvous())
    with serving(app.streamable_http_app(**mode)) as url:
        async with service(settings(tmp_path, url)) as http:
            said = await ask(http)
    found = said["disagreement_result"]
    assert found["labels_by_provider"] == {"quick": "high", "slow": "medium", "odd": "low"}
    assert found["confidence_by_provider"] == dict.fromkeys(DRIVERS, 0.8)
    assert (found["agreed"], found["errors_by_provider"], found["confidence_spread"]) == (False, {}, 0)
    assert (said["disposition"], said["decision"]) == ("review", "panel_split")


async def test_a_driver_that_never_answers_and_one_that_fails_cost_their_own_answers(
    tmp_path: Path, mode: dict[str, bool]
) -> None:
    """The third is heard; with two missing nobody knows whether they would agree."""
    app = build_server({"quick": "high", "slow": "never", "odd": None})
    with serving(app.streamable_http_app(**mode)) as url:
        async with service(settings(tmp_path, url)) as http:
            found = (await ask(http))["disagreement_result"]
    assert found["labels_by_provider"] == {"quick": "high"}
    assert {name: each["kind"] for name, each in found["errors_by_provider"].items()} == {
        "slow": "timeout",
        "odd": "tool_failed",
    }
    assert (found["agreed"], found["confidence_spread"]) == (None, None)


@pytest.mark.parametrize("name", ["stateful-sse", "stateful-json"])
async def test_a_session_that_was_lost_costs_a_handshake_and_no_answer(tmp_path: Path, name: str) -> None:
    """The server ends the session between two evaluations; the second has every driver's answer all the same."""
    app = build_server(dict.fromkeys(DRIVERS, "high"))
    watched = Watched(app.streamable_http_app(**MODES[name]))
    with serving(watched) as url:
        async with service(settings(tmp_path, url)) as http:
            await ask(http)
            session = watched.seen[-1][1]["mcp-session-id"]
            async with httpx.AsyncClient() as other:
                await other.delete(f"{url}/mcp", headers={"mcp-session-id": session})
            watched.seen.clear()
            said = await ask(http, 2)
    assert said["disagreement_result"]["agreed"] is True
    assert watched.methods().count("initialize") == 1
    assert watched.seen[-1][1]["mcp-session-id"] != session


@pytest.mark.slow
@pytest.mark.parametrize(("replies", "sessions"), [("sse", "stateful"), ("json", "stateless")])
async def test_the_older_line_of_the_sdk_is_asked_through_the_service_too(
    tmp_path: Path, replies: str, sessions: str
) -> None:
    """`FastMCP` of mcp 1.30, in an environment of its own."""
    with sdk_1x(tmp_path, replies, sessions) as url:
        base = url.removesuffix("/mcp")
        async with service(settings(tmp_path, base)) as http:
            found = (await ask(http))["disagreement_result"]
    assert found["labels_by_provider"] == dict.fromkeys(DRIVERS, "high")
    assert found["agreed"] is True
