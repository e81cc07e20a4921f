"""A stand-in Sentinel-L7 that speaks its protocol: JSON-RPC tool calls without handshake, plain JSON, a throttle."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.demo import sentinel_rule as rule
from app.demo.sentinel_rule import OPINIONS, Opinion, Transaction
from layers.strict_json import StrictJsonError, loads

_WINDOW = 60.0


@dataclass(frozen=True)
class SentinelKnobs:
    """How the stand-in behaves.

    `throttle_call` (counted from 1) is answered 429 with `Retry-After: 2`, once. `latency` is in seconds per tool call.
    `opinions` are the providers; those in `failing` answer `isError`. `model_down` = calls without driver get the rule.
    """

    per_minute: int | None = 60
    throttle_call: int | None = None
    latency: float = 0.0
    opinions: Mapping[str, Opinion] = field(default_factory=lambda: OPINIONS)
    failing: frozenset[str] = frozenset()
    cache: bool = True
    model_down: bool = False
    clock: Callable[[], float] = time.monotonic


class ToolError(Exception):
    """A tool's own failure: HTTP 200 with `isError` and a plain text."""


class RpcError(Exception):
    """A JSON-RPC failure with the HTTP status it travels under."""

    def __init__(self, status: int, code: int, message: str) -> None:
        self.status, self.code, self.message = status, code, message
        super().__init__(message)


class StandInSentinel:
    """The stand-in's state: who called how often, what was analysed, what is cached."""

    def __init__(self, knobs: SentinelKnobs) -> None:
        self.knobs = knobs
        self.requests = 0
        self.throttled = 0
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._windows: dict[str, tuple[float, int]] = {}
        self._cache: dict[str, dict[str, Any]] = {}
        self._recent: deque[dict[str, Any]] = deque(maxlen=50)

    async def post(self, request: Request) -> Response:
        """One HTTP request to the endpoint."""
        self.requests += 1
        client = request.client.host if request.client else "unknown"
        refused, headers = self._throttle(client)
        if refused is not None:
            self.throttled += 1
            return JSONResponse({"message": "Too Many Attempts."}, 429, {**headers, "Retry-After": str(refused)})
        request_id: Any = None
        try:
            message = _parse(await request.body())
            request_id = message.get("id")
            if "id" not in message:
                return Response(status_code=202, headers=headers)
            result = await self._dispatch(message)
        except RpcError as exc:
            error = {"code": exc.code, "message": exc.message}
            return JSONResponse({"jsonrpc": "2.0", "id": request_id, "error": error}, exc.status, headers)
        return JSONResponse({"jsonrpc": "2.0", "id": request_id, "result": result}, headers=headers)

    def _throttle(self, client: str) -> tuple[int | None, dict[str, str]]:
        """Seconds to wait when this request is one too many, and the headers that every answer carries."""
        limit = self.knobs.per_minute
        if self.knobs.throttle_call == self.requests:
            return 2, {"X-RateLimit-Limit": str(limit or self.requests), "X-RateLimit-Remaining": "0"}
        if limit is None:
            return None, {}
        now = self.knobs.clock()
        since, used = self._windows.get(client, (now, 0))
        if now - since >= _WINDOW:
            since, used = now, 0
        over = used >= limit
        self._windows[client] = (since, used if over else used + 1)
        headers = {"X-RateLimit-Limit": str(limit), "X-RateLimit-Remaining": str(0 if over else limit - used - 1)}
        return (max(1, int(since + _WINDOW - now + 0.999)) if over else None), headers

    async def _dispatch(self, message: dict[str, Any]) -> dict[str, Any]:
        method, params = message.get("method"), message.get("params") or {}
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in self._tools]}
        if method != "tools/call":
            raise RpcError(404, -32601, "Method not found")
        name = params.get("name") if isinstance(params, dict) else None
        tool = self._tools.get(name) if isinstance(name, str) else None
        if not isinstance(name, str) or tool is None:
            raise RpcError(400, -32602, "Tool not found")
        arguments = params.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise RpcError(400, -32602, "Invalid params")
        self.calls.append((name, arguments))
        await anyio.sleep(self.knobs.latency)
        try:
            content, failed = json.dumps(tool(arguments)), False
        except ToolError as exc:
            content, failed = str(exc), True
        return {"content": [{"type": "text", "text": content}], "isError": failed}

    @property
    def _tools(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        return {
            "analyze-transaction": self.analyze,
            "search-policies": _search_policies,
            "get-recent-transactions": self.recent,
        }

    def analyze(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The tool `analyze-transaction`."""
        _check_transaction(arguments)
        transaction = {key: value for key, value in arguments.items() if key != "driver"}
        self._recent.appendleft(transaction)
        driver = arguments.get("driver")
        if driver is not None:
            return self._ask(transaction, driver)
        if self.knobs.model_down:
            return self._answer("fallback", rule.fallback(transaction))
        key = json.dumps([transaction.get(name) for name in ("amount", "currency", "merchant", "category", "type")])
        if self.knobs.cache and key in self._cache:
            return self._answer("cache_hit", self._cache[key])
        self._cache[key] = rule.verdict(transaction, rule.points)
        return self._answer("cache_miss", self._cache[key])

    def _ask(self, transaction: Transaction, driver: str) -> dict[str, Any]:
        if driver not in self.knobs.opinions:
            raise ToolError("The selected driver is invalid.")
        if driver in self.knobs.failing:
            raise ToolError(f"Driver [{driver}] could not complete the analysis.")
        return self._answer("driver_override", rule.verdict(transaction, self.knobs.opinions[driver]))

    def _answer(self, source: str, verdict: dict[str, Any]) -> dict[str, Any]:
        return {"source": source, "elapsed_ms": round(self.knobs.latency * 1000, 1), **verdict}

    def recent(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The tool `get-recent-transactions`, newest first."""
        found = list(self._recent)[: _limit(arguments, 20, 50)]
        return {"transactions": found, "count": len(found)}


def build_sentinel(**knobs: Any) -> Starlette:
    """The stand-in as an ASGI app with its endpoint at `/mcp`; its `StandInSentinel` is `app.state.sentinel`.

    `knobs` are the fields of `SentinelKnobs`.
    """
    sentinel = StandInSentinel(SentinelKnobs(**knobs))
    app = Starlette(routes=[Route("/mcp", sentinel.post, methods=["POST"])])
    app.state.sentinel = sentinel
    return app


def _parse(body: bytes) -> dict[str, Any]:
    try:
        message = loads(body)
    except StrictJsonError:
        raise RpcError(400, -32700, "Parse error") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        raise RpcError(400, -32600, "Invalid Request")
    return message


def _check_transaction(arguments: dict[str, Any]) -> None:
    problems = []
    amount = arguments.get("amount")
    if amount is None:
        problems.append("The amount field is required.")
    elif isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
        problems.append("The amount field must be a number of at least 0.")
    if not re.fullmatch(r"[A-Za-z]{3}", str(arguments.get("currency") or "")):
        problems.append("The currency field must be 3 letters.")
    if not isinstance(arguments.get("merchant"), str) or not arguments["merchant"]:
        problems.append("The merchant field is required.")
    problems += [
        f"The {key} field must be a string."
        for key in ("type", "category", "id", "driver")
        if not isinstance(arguments.get(key), str | None)
    ]
    if problems:
        raise ToolError(" ".join(problems))


def _search_policies(arguments: dict[str, Any]) -> dict[str, Any]:
    query = arguments.get("query")
    if not isinstance(query, str) or len(query) < 3:
        raise ToolError("The query field must be at least 3 characters.")
    found = rule.search(query, _limit(arguments, 3, 10))
    return {"policies": found, "count": len(found)}


def _limit(arguments: dict[str, Any], default: int, most: int) -> int:
    limit = arguments.get("limit", default)
    if type(limit) is not int or not 1 <= limit <= most:
        raise ToolError(f"The limit field must be between 1 and {most}.")
    return limit
