"""The stand-in Sentinel behaves as the real one does."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from adapters.mcp import McpClient
from adapters.sentinel_l7 import SentinelClient, SentinelSystem
from app.demo.sentinel import build_sentinel
from layers.model import EvalExample
from tests.adapters.peers import URL, json_client

pytestmark = pytest.mark.anyio

TRANSACTION = {"amount": 9500, "currency": "usd", "merchant": "Branch 14 Counter", "category": "cash_deposit"}


def http(app: Any, host: str = "10.0.0.1") -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, client=(host, 1)), base_url="http://peer.test")


def rpc(method: str = "tools/call", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def analyze(**changes: Any) -> dict[str, Any]:
    return rpc(name="analyze-transaction", arguments={**TRANSACTION, **changes})


async def verdict(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    result = (await client.post("/mcp", json=analyze(**changes))).json()["result"]
    assert result["isError"] is False
    return json.loads(result["content"][0]["text"])


async def test_get_and_delete_are_not_allowed():
    """The deployed server keeps no streams and no sessions."""
    async with http(build_sentinel()) as client:
        for method in ("GET", "DELETE"):
            assert (await client.request(method, "/mcp")).status_code == 405


async def test_a_verdict_has_every_promised_field():
    """The text inside the reply is JSON of its own."""
    async with http(build_sentinel()) as client:
        found = await verdict(client)
    assert set(found) == {
        *("source", "is_threat", "message", "elapsed_ms"),
        *("risk_level", "narrative", "confidence", "policy_refs"),
    }
    assert found["is_threat"] == (found["risk_level"] != "low")


async def test_the_same_transaction_is_answered_from_the_cache_unless_a_driver_is_forced():
    """A driver neither reads nor writes the cache."""
    async with http(build_sentinel()) as client:
        sources = [
            (await verdict(client, **more))["source"] for more in ({"driver": "gemini"}, {}, {}, {"driver": "gemini"})
        ]
    assert sources == ["driver_override", "cache_miss", "cache_hit", "driver_override"]


async def test_the_cache_can_be_switched_off():
    """Then every call is a miss."""
    async with http(build_sentinel(cache=False)) as client:
        assert [(await verdict(client))["source"] for _ in range(2)] == ["cache_miss"] * 2


async def test_without_a_model_the_rule_answers_and_has_no_confidence():
    """An amount over 400 is high; a forced driver never falls back."""
    async with http(build_sentinel(model_down=True)) as client:
        high, low = await verdict(client, amount=401), await verdict(client, amount=400)
        forced = await verdict(client, driver="gemini")
    assert (high["risk_level"], low["risk_level"], high["confidence"]) == ("high", "low", None)
    assert (high["source"], forced["source"]) == ("fallback", "driver_override")


async def test_providers_may_disagree():
    """`ollama` does not look at amounts, so a large invoice divides them."""
    async with http(build_sentinel()) as client:
        levels = {
            driver: (await verdict(client, driver=driver, amount=20_000, category="capital_goods"))["risk_level"]
            for driver in ("gemini", "ollama")
        }
    assert levels == {"gemini": "high", "ollama": "low"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"amount": None}, "amount field is required"),
        ({"amount": -1}, "at least 0"),
        ({"amount": "9"}, "must be a number"),
        ({"currency": "EURO"}, "3 letters"),
        ({"merchant": ""}, "merchant field is required"),
        ({"driver": "gpt"}, "driver is invalid"),
        ({"category": 3}, "category field must be a string"),
    ],
)
async def test_wrong_arguments_are_a_tool_failure_in_plain_text(changes: dict[str, Any], says: str):
    """HTTP 200, `isError`, and a text that is no JSON."""
    async with http(build_sentinel()) as client:
        reply = await client.post("/mcp", json=analyze(**changes))
    result = reply.json()["result"]
    assert (reply.status_code, result["isError"]) == (200, True)
    assert says in result["content"][0]["text"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, -32700),
        (b"[]", 400, -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', 400, -32600),
        (json.dumps(rpc("initialize")).encode(), 404, -32601),
        (json.dumps(rpc(name="analyze_transaction")).encode(), 400, -32602),
        (json.dumps(rpc(name="search-policies", arguments=[1])).encode(), 400, -32602),
    ],
)
async def test_json_rpc_failures_come_with_their_status(body: bytes, status: int, code: int):
    """400 for what can't be read or called, 404 for an unknown method."""
    async with http(build_sentinel()) as client:
        reply = await client.post("/mcp", content=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)


async def test_sixty_requests_a_minute_per_client():
    """The sixty-first is told how long to wait; another client and the next minute are free."""
    now = [0.0]
    app = build_sentinel(clock=lambda: now[0])
    async with http(app) as client, http(app, "10.0.0.2") as other:
        replies = [await client.post("/mcp", json=rpc("ping")) for _ in range(61)]
        assert [reply.status_code for reply in replies] == [200] * 60 + [429]
        assert replies[0].headers["x-ratelimit-limit"] == "60"
        assert [reply.headers["x-ratelimit-remaining"] for reply in replies[-3:]] == ["1", "0", "0"]
        assert replies[-1].headers["retry-after"] == "60"
        assert (await other.post("/mcp", json=rpc("ping"))).status_code == 200
        now[0] = 60.0
        assert (await client.post("/mcp", json=rpc("ping"))).status_code == 200


async def test_one_injected_throttle_is_waited_out_by_the_real_client():
    """A 429 with `Retry-After: 2` on the way costs two seconds and no example."""
    app = build_sentinel(throttle_call=2)
    now = [0.0]
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    async with http(app) as client:
        remote = json_client(client, attempts=3, clock=lambda: now[0], sleep=sleep)
        system = SentinelSystem(SentinelClient(McpClient(remote, URL), {}))
        for index in range(3):
            example = EvalExample(id=f"t{index}", input={**TRANSACTION, "amount": index}, expected_label="high")
            await system.predict(example)
    assert app.state.sentinel.throttled == 1
    assert len(app.state.sentinel.calls) == 3
    assert sum(waits) == pytest.approx(2, abs=1)


async def test_policy_search_keeps_its_threshold_and_its_limits():
    """Unrelated words find nothing; a query that is too short is a tool failure."""
    async with http(build_sentinel()) as client:

        async def search(**arguments: Any) -> dict[str, Any]:
            reply = await client.post("/mcp", json=rpc(name="search-policies", arguments=arguments))
            return reply.json()["result"]

        found = json.loads((await search(query="structuring amounts below 10,000 USD"))["content"][0]["text"])
        nothing = json.loads((await search(query="weather in spring"))["content"][0]["text"])
        refused = [await search(query="ab"), await search(query="abc", limit=11), await search()]
    assert found["count"] == 1
    assert found["policies"][0]["score"] >= 0.7
    assert set(found["policies"][0]["metadata"]) == {"text", "source", "chunk", "domain"}
    assert nothing == {"policies": [], "count": 0}
    assert all(result["isError"] for result in refused)
