"""Sentinel-L7: reading its verdicts, checking the input, and each way a call can fail."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.breaker import CircuitBreaker
from adapters.mcp import McpClient
from adapters.sentinel_l7 import SentinelClient, SentinelPolicies, SentinelSystem, arguments_from, read_payload
from app.demo.generate_fixtures import FIXTURES
from app.demo.sentinel import build_sentinel
from layers.errors import (
    CircuitOpen,
    DependencyError,
    DependencyMalformed,
    DependencyRejected,
    DependencyUnavailable,
    NotAVerdict,
    ToolFailed,
    VerdictNotOffered,
)
from layers.model import EvalDataset, EvalExample
from tests.adapters.peers import URL, over_asgi, over_handler

DRIVERS = ("gemini", "openrouter", "ollama", "vertexai")
PAYLOAD = {
    "source": "cache_miss",
    "is_threat": True,
    "message": "Threat detected",
    "elapsed_ms": 4210,
    "risk_level": "high",
    "narrative": "Just below the limit.",
    "confidence": 0.87,
    "policy_refs": ["AML-4.2"],
}
TRANSACTION = {"amount": 9500, "currency": "USD", "merchant": "Branch 14 Counter", "category": "cash_deposit"}
EXAMPLE = EvalExample(id="txn-1", input=TRANSACTION, expected_label="high")


def sentinel(client: Any, drivers: tuple[str, ...] = DRIVERS, **breaker: Any) -> SentinelClient:
    breakers = {driver: CircuitBreaker(f"sentinel.{driver}", **breaker) for driver in drivers}
    return SentinelClient(McpClient(client, URL), breakers)


def tool_text(text: str, *, failed: bool = False) -> Callable[[httpx.Request], httpx.Response]:
    def handler(request: httpx.Request) -> httpx.Response:
        content = {"content": [{"type": "text", "text": text}], "isError": failed}
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": json.loads(request.content)["id"], "result": content})

    return handler


def verdict(**changes: Any) -> Callable[[httpx.Request], httpx.Response]:
    return tool_text(json.dumps({**PAYLOAD, **changes}))


async def predict(handler: Callable[..., Any], driver: str | None = None) -> Any:
    async with over_handler(handler) as client:
        return await SentinelSystem(sentinel(client), driver).predict(EXAMPLE)


# --- reading ----------------------------------------------------------------------------------------------------------


def test_label_confidence_and_the_rest_are_read():
    """The risk level is the label; source, time, threat and references are kept."""
    reading = read_payload(PAYLOAD)
    assert (reading.label, reading.confidence) == ("high", 0.87)
    assert reading.metadata == {
        "source": "cache_miss",
        "elapsed_ms": 4210,
        "is_threat": True,
        "policy_refs": ["AML-4.2"],
    }


@pytest.mark.parametrize("payload", [{**PAYLOAD, "confidence": None}, {"risk_level": "low"}])
def test_a_missing_confidence_reads_as_none_at_all(payload: dict[str, Any]):
    """Null means that no model answered: 0.0, and the metadata say that it is no measurement."""
    reading = read_payload(payload)
    assert reading.confidence == 0.0
    assert reading.metadata["confidence_missing"] is True


def test_a_confidence_of_zero_is_not_missing():
    """Zero was said; it is not the same as nothing."""
    assert "confidence_missing" not in read_payload({**PAYLOAD, "confidence": 0}).metadata


def test_unknown_is_a_verdict():
    """Sentinel may say that it does not know, and that is a risk level of its own."""
    assert read_payload({**PAYLOAD, "risk_level": "unknown"}).label == "unknown"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"source": "duplicate", "risk_level": "skipped"}, "duplicate"),
        ({"source": "duplicate", "risk_level": "high"}, "duplicate"),
        ({"risk_level": "skipped"}, "skipped"),
    ],
)
def test_what_was_not_judged_is_no_verdict(changes: dict[str, Any], kind: str):
    """Nothing was analysed, so there is nothing to score, whatever else the payload says."""
    with pytest.raises(NotAVerdict) as caught:
        read_payload({**PAYLOAD, **changes})
    assert caught.value.kind == kind


@pytest.mark.parametrize("level", ["severe", "High", "high ", "HIGH", "ｈigh"])
def test_a_label_that_was_not_offered_is_the_models_doing(level: str):
    """Labels compare exactly; another word counts against nobody's health."""
    with pytest.raises(VerdictNotOffered) as caught:
        read_payload({**PAYLOAD, "risk_level": level})
    assert not caught.value.counts


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"risk_level": None}, "/risk_level"),
        ({"risk_level": 3}, "/risk_level"),
        ({"risk_level": ""}, "/risk_level"),
        ({"confidence": 1.01}, "/confidence"),
        ({"confidence": -0.1}, "/confidence"),
        ({"confidence": 87}, "/confidence"),
        ({"confidence": math.nan}, "/confidence"),
        ({"confidence": 10**400}, "/confidence"),
        ({"confidence": "0.9"}, "/confidence"),
        ({"confidence": True}, "/confidence"),
        ({"narrative": ["x"]}, "/narrative"),
        ({"is_threat": "yes"}, "/is_threat"),
        ({"source": 1}, "/source"),
        ({"elapsed_ms": "fast"}, "/elapsed_ms"),
        ({"elapsed_ms": math.inf}, "/elapsed_ms"),
        ({"policy_refs": "AML-4.2"}, "/policy_refs"),
        ({"policy_refs": [1]}, "/policy_refs"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], pointer: str):
    """A payload that breaks its promise is malformed, and the error says where."""
    with pytest.raises(DependencyMalformed) as caught:
        read_payload({**PAYLOAD, **changes})
    assert caught.value.detail["pointer"] == pointer
    assert pointer in caught.value.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*PAYLOAD, "extra"]), json_values))
def test_any_payload_is_read_or_refused(payload: dict[str, Any]):
    """A reading is always a known label and a confidence in 0..1."""
    try:
        reading = read_payload({**PAYLOAD, **payload})
    except DependencyError:
        return
    assert reading.label in {"low", "medium", "high", "critical", "unknown"}
    assert 0 <= reading.confidence <= 1


# --- input ------------------------------------------------------------------------------------------------------------


def test_arguments_are_the_fields_the_tool_knows():
    """Whatever else stands in the input stays here; a numeric id becomes text."""
    arguments = arguments_from({**TRANSACTION, "id": 17, "type": None, "note": "x", "driver": "gemini"})
    assert arguments == {**TRANSACTION, "id": "17"}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"amount": -1}, ["amount"]),
        ({"amount": "12"}, ["amount"]),
        ({"amount": True}, ["amount"]),
        ({"amount": 10**400}, ["amount"]),
        ({"amount": None, "currency": "EURO"}, ["amount", "currency"]),
        ({"currency": "E1R"}, ["currency"]),
        ({"currency": "ÄÖÜ"}, ["currency"]),
        ({"merchant": " "}, ["merchant"]),
        ({"merchant": {}}, ["merchant"]),
        ({"category": 3}, ["category"]),
    ],
)
def test_wrong_input_is_refused_before_the_call(changes: dict[str, Any], names: list[str]):
    """Every wrong field is named, so that one round is enough."""
    with pytest.raises(DependencyRejected) as caught:
        arguments_from({**TRANSACTION, **changes})
    assert caught.value.kind == "invalid_input"
    assert [problem.split("`")[1] for problem in caught.value.detail["problems"]] == names


@pytest.mark.anyio
async def test_a_foreign_dataset_is_refused_with_what_is_needed():
    """The compliance texts are not transactions; nothing is sent, and the message says what would be."""

    def never(request: httpx.Request) -> httpx.Response:
        raise AssertionError("sent")

    dataset = EvalDataset.model_validate_json((FIXTURES / "compliance_dataset.json").read_bytes())
    async with over_handler(never) as client:
        with pytest.raises(DependencyRejected, match=r"`amount` is missing.*needs `amount`.*`currency`.*`merchant`"):
            await SentinelSystem(sentinel(client)).predict(dataset.examples[0])


# --- calls ------------------------------------------------------------------------------------------------------------


def unplugged(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("no", request=request)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("handler", "error", "kind"),
    [
        pytest.param(unplugged, DependencyUnavailable, "refused", id="refused"),
        pytest.param(lambda r: httpx.Response(429), DependencyUnavailable, "rate_limited", id="429"),
        pytest.param(lambda r: httpx.Response(502), DependencyUnavailable, "server_error", id="502"),
        pytest.param(lambda r: httpx.Response(403), DependencyRejected, "rejected", id="403"),
        pytest.param(lambda r: httpx.Response(200, text="<html>"), DependencyMalformed, "malformed", id="html"),
        pytest.param(tool_text("No model answered.", failed=True), ToolFailed, "tool_failed", id="isError"),
        pytest.param(tool_text("No model answered."), DependencyMalformed, "malformed", id="plain text"),
        pytest.param(tool_text("[]"), DependencyMalformed, "malformed", id="inner list"),
        pytest.param(tool_text('{"risk_level": "low"'), DependencyMalformed, "malformed", id="inner half"),
        pytest.param(tool_text('{"a":' * 50_000), DependencyMalformed, "malformed", id="inner deep"),
        pytest.param(tool_text('{"confidence": NaN}'), DependencyMalformed, "malformed", id="inner nan"),
        pytest.param(
            tool_text('{"confidence": ' + "9" * 9000 + "}"), DependencyMalformed, "malformed", id="inner huge"
        ),
        pytest.param(tool_text('{"narrative": "\\ud800"}'), DependencyMalformed, "malformed", id="inner surrogate"),
        pytest.param(tool_text('{"narrative": "\\u0000"}'), DependencyMalformed, "malformed", id="inner nul"),
        pytest.param(verdict(confidence=2), DependencyMalformed, "malformed", id="confidence"),
        pytest.param(verdict(risk_level="dire"), VerdictNotOffered, "not_a_label", id="label"),
        pytest.param(verdict(risk_level="skipped"), NotAVerdict, "skipped", id="skipped"),
        pytest.param(verdict(source="duplicate"), NotAVerdict, "duplicate", id="duplicate"),
    ],
)
async def test_failures(handler: Callable[..., Any], error: type[DependencyError], kind: str):
    """Every way Sentinel can fail an example has one error."""
    with pytest.raises(DependencyError) as caught:
        await predict(handler)
    assert type(caught.value) is error
    assert caught.value.kind == kind


@pytest.mark.anyio
async def test_a_prediction_carries_the_payload_untouched():
    """The example's id, the decoded payload as it came, and the driver that was forced."""
    prediction = await predict(verdict(extra={"kept": [1, None]}), "gemini")
    assert prediction.id == "txn-1"
    assert prediction.raw_output == {**PAYLOAD, "extra": {"kept": [1, None]}}
    assert prediction.metadata["driver"] == "gemini"


@pytest.mark.anyio
async def test_each_driver_has_its_own_breaker():
    """One sick provider is not asked again; the others and the call without driver go on."""
    app = build_sentinel(failing=frozenset({"ollama"}))
    async with over_asgi(app) as http:
        client = sentinel(http, minimum_calls=2)
        for _ in range(2):
            with pytest.raises(ToolFailed, match=r"Driver \[ollama\]"):
                await SentinelSystem(client, "ollama").predict(EXAMPLE)
        with pytest.raises(CircuitOpen) as caught:
            await SentinelSystem(client, "ollama").predict(EXAMPLE)
        assert caught.value.dependency == "sentinel.ollama"
        for driver in ("gemini", None):
            assert (await SentinelSystem(client, driver).predict(EXAMPLE)).label == "high"


@pytest.mark.anyio
async def test_a_malformed_verdict_names_the_driver_that_gave_it():
    """Which provider is sick is what the person on call wants to know."""
    with pytest.raises(DependencyMalformed) as caught:
        await predict(verdict(confidence=7), "vertexai")
    assert caught.value.dependency == "sentinel.vertexai"


@pytest.mark.anyio
async def test_an_unknown_driver_is_refused_before_the_call():
    """The message lists those there are."""
    with pytest.raises(DependencyRejected, match="there are: gemini, ollama, openrouter, vertexai"):
        await predict(unplugged, "gpt")


# --- other tools ------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_policies_are_found_best_first():
    """Text, document and domain come along; what lies below the threshold asked for does not."""
    async with over_asgi(build_sentinel()) as http:
        source = SentinelPolicies(sentinel(http))
        found = await source.search("enhanced due diligence offshore nominee company", limit=50, threshold=0.7)
        assert [(chunk.id, chunk.source, chunk.domain) for chunk in found] == [
            ("aml-ownership-0", "aml_ownership.md", "aml")
        ]
        assert "beneficial owner" in found[0].text
        assert await source.search("enhanced due diligence offshore nominee firm", limit=5, threshold=0.99) == []
        assert await source.search("zz", limit=5, threshold=0.7) == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"policies": [], "count": 0, "error": "index down"}, DependencyUnavailable),
        ({"count": 0}, DependencyMalformed),
        ({"policies": [3]}, DependencyMalformed),
        ({"policies": [{"id": "a", "score": "x", "metadata": {"text": "t"}}]}, DependencyMalformed),
        ({"policies": [{"id": "a", "score": 0.9, "metadata": {}}]}, DependencyMalformed),
        ({"policies": [{"id": "a", "score": 0.9}]}, DependencyMalformed),
    ],
)
async def test_a_policy_search_that_failed_is_no_empty_result(payload: dict[str, Any], error: type[DependencyError]):
    """Nothing found and nothing searched are not the same."""
    async with over_handler(tool_text(json.dumps(payload))) as http:
        with pytest.raises(error):
            await sentinel(http).search_policies("structuring")


@pytest.mark.anyio
async def test_recent_transactions_are_listed_newest_first():
    """What was just analysed is at the top."""
    async with over_asgi(build_sentinel()) as http:
        client = sentinel(http)
        for amount in (1, 2, 3):
            await client.analyze({**TRANSACTION, "amount": amount})
        assert [item["amount"] for item in await client.recent_transactions(2)] == [3, 2]
