"""Sentinel-L7: verdicts on transactions and its policy search, over MCP."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adapters.breaker import CircuitBreaker
from adapters.limits import Lane
from adapters.mcp import McpClient, ToolResult
from adapters.payload import example_id, finite, invalid_input, is_finite, kept, malformed, share, text
from layers.errors import (
    DependencyMalformed,
    DependencyRejected,
    DependencyUnavailable,
    NotAVerdict,
    VerdictNotOffered,
)
from layers.model import EvalExample, EvalPrediction, JsonObject
from layers.ports import PolicyChunk, Reading
from layers.strict_json import StrictJsonError, loads

NAME = "sentinel"
RISK_LEVELS = ("low", "unknown", "medium", "high", "critical")
MIN_QUERY = 3
MAX_POLICIES = 10

_OPTIONAL = ("type", "category", "id")
_NEEDS = "it needs `amount`, a number of 0 or more; `currency`, three letters; and `merchant`, a string"
_CURRENCY = re.compile(r"[A-Za-z]{3}")


def read_payload(raw_output: JsonObject, dependency: str = NAME) -> Reading:
    """Read a Sentinel verdict: `risk_level` is the label, `confidence` the certainty in it.

    A null confidence (no model answered) reads as 0.0 with `confidence_missing` in the metadata, which also keeps
    `source`, `elapsed_ms`, `is_threat` and `policy_refs`. Raises `NotAVerdict` (kind `duplicate` or `skipped`),
    `VerdictNotOffered` for a risk level Sentinel does not have, and `DependencyMalformed` naming a wrong field.
    """
    _refuse_not_judged(raw_output, dependency)
    label = text(raw_output, "risk_level", dependency)
    if label not in RISK_LEVELS:
        message = f"/risk_level is none of {', '.join(RISK_LEVELS)}"
        raise VerdictNotOffered(dependency, "not_a_label", message, detail={"pointer": "/risk_level"})
    _check_rest(raw_output, dependency)
    metadata = kept(raw_output, "source", "elapsed_ms", "is_threat", "policy_refs")
    if raw_output.get("confidence") is None:
        return Reading(label, 0.0, {**metadata, "confidence_missing": True})
    return Reading(label, share(raw_output, "confidence", dependency), metadata)


def _refuse_not_judged(raw_output: JsonObject, dependency: str) -> None:
    if raw_output.get("source") == "duplicate":
        raise NotAVerdict(dependency, "duplicate", "Sentinel had seen this transaction already and judged nothing")
    if raw_output.get("risk_level") == "skipped":
        raise NotAVerdict(dependency, "skipped", "Sentinel skipped this transaction and judged nothing")


def _check_rest(raw_output: JsonObject, dependency: str) -> None:
    """Fields that are there must be what they are promised to be; those that are missing are left to the profile."""
    for key, kind, name in (("source", str, "a string"), ("narrative", str, "a string or null")):
        if not isinstance(raw_output.get(key, None), kind | None):
            raise malformed(dependency, f"/{key}", f"must be {name}")
    if not isinstance(raw_output.get("is_threat"), bool | None):
        raise malformed(dependency, "/is_threat", "must be true or false")
    elapsed = raw_output.get("elapsed_ms")
    if elapsed is not None and not is_finite(elapsed):
        raise malformed(dependency, "/elapsed_ms", "must be a finite number")
    references = raw_output.get("policy_refs")
    if references is not None and not (isinstance(references, list) and all(isinstance(r, str) for r in references)):
        raise malformed(dependency, "/policy_refs", "must be a list of strings")


def arguments_from(input: JsonObject, dependency: str = NAME) -> JsonObject:
    """The tool's arguments in an example's input; fields the tool does not know are left out.

    Raises `DependencyRejected` (kind `invalid_input`) naming every field that is missing or wrong.
    """
    amount, currency, merchant = (input.get(key) for key in ("amount", "currency", "merchant"))
    optional = kept(input, *_OPTIONAL)
    if type(optional.get("id")) is int:
        optional["id"] = str(optional["id"])
    checks = {
        "amount": is_finite(amount) and amount >= 0,  # type: ignore[operator]
        "currency": isinstance(currency, str) and _CURRENCY.fullmatch(currency) is not None,
        "merchant": isinstance(merchant, str) and bool(merchant.strip()),
        **{key: isinstance(value, str) for key, value in optional.items()},
    }
    problems = [f"`{key}` is {'wrong' if key in input else 'missing'}" for key, good in checks.items() if not good]
    if problems:
        raise invalid_input(dependency, _NEEDS, problems)
    return {"amount": amount, "currency": currency, "merchant": merchant, **optional}


@dataclass(frozen=True)
class SentinelClient:
    """Sentinel's tools. `breakers` maps a driver to the breaker of the provider behind it."""

    mcp: McpClient
    breakers: Mapping[str, CircuitBreaker]

    def on(self, lane: Lane) -> SentinelClient:
        """The same Sentinel, on another lane of its budget."""
        return SentinelClient(self.mcp.on(lane), self.breakers)

    async def analyze(self, arguments: JsonObject, driver: str | None = None) -> tuple[JsonObject, Reading]:
        """Ask for a verdict; returns the decoded payload and what it says. A driver forces one provider, uncached.

        Raises `DependencyError`; `DependencyRejected` (kind `unknown_driver`) for a driver without a breaker.
        """
        if driver is not None and driver not in self.breakers:
            known = ", ".join(sorted(self.breakers))
            raise DependencyRejected(NAME, "unknown_driver", f"no driver {driver!r}; there are: {known}")
        breaker = None if driver is None else self.breakers[driver]
        dependency = NAME if breaker is None else breaker.name

        def read(result: ToolResult) -> tuple[JsonObject, Reading]:
            payload = decode(result, dependency)
            return payload, read_payload(payload, dependency)

        sent = arguments if driver is None else {**arguments, "driver": driver}
        return await self.mcp.call_tool("analyze-transaction", sent, breaker=breaker, read=read)

    async def search_policies(self, query: str, limit: int = 3) -> list[PolicyChunk]:
        """Sentinel's own policy search, best first, at its own similarity threshold of 0.70.

        `limit` is in 1..10. A query of fewer than 3 characters finds nothing and is not sent. Raises `DependencyError`.
        """
        if len(query) < MIN_QUERY:
            return []
        return await self.mcp.call_tool("search-policies", {"query": query, "limit": limit}, read=_read_policies)

    async def recent_transactions(self, limit: int = 20) -> list[JsonObject]:
        """The latest transactions Sentinel has seen, newest first as it gives them; `limit` is in 1..50."""
        return await self.mcp.call_tool(
            "get-recent-transactions",
            {"limit": limit},
            read=lambda result: _objects(decode(result, NAME), "transactions"),
        )


@dataclass(frozen=True)
class SentinelSystem:
    """Sentinel as a system under test, with one driver or with none (cache and rule included)."""

    client: SentinelClient
    driver: str | None = None

    async def predict(self, example: EvalExample) -> EvalPrediction:
        """Ask about the transaction in the example's input. Raises `DependencyError`."""
        raw_output, reading = await self.client.analyze(arguments_from(example.input), self.driver)
        return EvalPrediction(
            id=example_id(example),
            raw_output=raw_output,
            label=reading.label,
            confidence=reading.confidence,
            metadata=reading.metadata if self.driver is None else {**reading.metadata, "driver": self.driver},
        )


@dataclass(frozen=True)
class SentinelPolicies:
    """Sentinel's policy corpus as a source of policy text. The search behind it never goes below 0.70."""

    client: SentinelClient
    name: str = NAME
    namespace: str = "policies"

    async def search(self, query: str, *, limit: int, threshold: float) -> list[PolicyChunk]:
        """At most `limit` (10 at most) chunks at or above `threshold`, best first. Raises `DependencyError`."""
        found = await self.client.search_policies(query, max(1, min(limit, MAX_POLICIES)))
        return [chunk for chunk in found if chunk.score >= threshold][:limit]


def decode(result: ToolResult, dependency: str = NAME) -> JsonObject:
    """The JSON object inside a tool's first text. Raises `DependencyMalformed`."""
    try:
        payload: Any = loads(result.text)
    except StrictJsonError as exc:
        raise DependencyMalformed(dependency, "malformed", f"the tool's text is not acceptable JSON: {exc}") from exc
    if not isinstance(payload, dict):
        raise DependencyMalformed(dependency, "malformed", "the tool's text is JSON, but not an object")
    return payload


def _read_policies(result: ToolResult) -> list[PolicyChunk]:
    payload = decode(result)
    if payload.get("error"):
        raise DependencyUnavailable(NAME, "search_failed", "Sentinel's policy search failed")
    chunks = []
    for index, item in enumerate(_objects(payload, "policies")):
        above = f"/policies/{index}"
        metadata = item.get("metadata")
        if not isinstance(metadata, dict):
            raise malformed(NAME, f"{above}/metadata", "must be an object")
        score = finite(item, "score", NAME, above=above)
        content = text(metadata, "text", NAME, above=f"{above}/metadata")
        source, domain = metadata.get("source"), metadata.get("domain")
        chunks.append(PolicyChunk(str(item.get("id", index)), score, content, _word(source), _word(domain) or None))
    return sorted(chunks, key=lambda chunk: -chunk.score)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _objects(payload: JsonObject, key: str) -> list[JsonObject]:
    found = payload.get(key)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise malformed(NAME, f"/{key}", "must be a list of objects")
    return found
