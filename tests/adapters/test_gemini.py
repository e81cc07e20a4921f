"""Gemini as a judge: what is sent, every reply that is no verdict, and how long a throttled one asks to wait."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from adapters.gemini import GeminiJudge, retry_after
from layers.errors import (
    CircuitOpen,
    DependencyError,
    DependencyMalformed,
    DependencyRejected,
    DependencyUnavailable,
    NotAVerdict,
)
from layers.ports import Answerer
from tests.adapters.judging import SECRET, VERDICT, ask, judge_prompt
from tests.adapters.support import Rig, replies

pytestmark = pytest.mark.anyio

URL = "https://generativelanguage.test/v1beta/models/gemini-2.0-flash:generateContent"
USAGE = {"promptTokenCount": 800, "candidatesTokenCount": 40, "totalTokenCount": 840}


def parts(*texts: str, reason: str | None = "STOP") -> httpx.Response:
    candidate = {"content": {"role": "model", "parts": [{"text": text} for text in texts]}, "finishReason": reason}
    return body(candidates=[candidate])


def body(**fields: Any) -> httpx.Response:
    return httpx.Response(200, json={"usageMetadata": USAGE, **fields})


def throttled(
    delay: str | None = "45.837906927s", quota: str = "GenerateRequestsPerMinutePerProject"
) -> httpx.Response:
    details: list[Any] = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]},
        {"@type": "type.googleapis.com/google.rpc.Help"},
    ]
    if delay is not None:
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
    return httpx.Response(429, json={"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}})


def rig_for(*answers: httpx.Response | Exception, **options: Any) -> Rig:
    return Rig(replies(*answers), options={"retry_after_from": retry_after, "attempts": 1, **options})


def judge(rig: Rig) -> GeminiJudge:
    return GeminiJudge(rig.client, URL, SecretStr(SECRET))


async def test_it_asks_for_json_of_the_schema_with_the_key_in_a_header() -> None:
    rig = rig_for(parts(VERDICT[:10], VERDICT[10:]))
    answerer: Answerer = judge(rig)
    reply = await ask(answerer)
    request = rig.requests[0]
    assert str(request.url) == URL
    assert request.headers["x-goog-api-key"] == SECRET
    sent = json.loads(request.content)
    assert sent["contents"][0]["parts"][0]["text"].startswith(judge_prompt().text[:100])
    config = sent["generationConfig"]
    assert (config["responseMimeType"], config["temperature"], config["seed"]) == ("application/json", 0.0, 7)
    assert config["responseSchema"]["properties"]["verdict"] == {"type": "string", "enum": ["low", "high"]}
    assert config["responseSchema"]["propertyOrdering"] == ["reasoning", "claims", "verdict", "confidence"]
    assert "additionalProperties" not in json.dumps(config)
    assert (reply.text, reply.model) == (VERDICT, "gemini-2.0-flash")
    assert (reply.input_tokens, reply.output_tokens, reply.finish_reason) == (800, 40, "STOP")
    assert answerer.external


async def test_a_models_thoughts_are_not_its_answer() -> None:
    content = {"parts": [{"text": "hm", "thought": True}, {"text": VERDICT}]}
    reply = await ask(judge(rig_for(body(candidates=[{"content": content, "finishReason": "STOP"}]))))
    assert reply.text == VERDICT


@pytest.mark.parametrize(
    ("answer", "error", "kind"),
    [
        pytest.param(httpx.ConnectError("no"), DependencyUnavailable, "refused", id="refused"),
        pytest.param(httpx.Response(500, json={"error": {}}), DependencyUnavailable, "server_error", id="500"),
        pytest.param(throttled(), DependencyUnavailable, "rate_limited", id="429"),
        pytest.param(httpx.Response(429, text="slow down"), DependencyUnavailable, "rate_limited", id="429-no-json"),
        pytest.param(
            httpx.Response(400, json={"error": {"message": "bad key"}}), DependencyRejected, "rejected", id="400"
        ),
        pytest.param(httpx.Response(200, html="<html>"), DependencyMalformed, "malformed", id="html"),
        pytest.param(body(candidates={}), DependencyMalformed, "malformed", id="candidates-no-list"),
        pytest.param(body(candidates=["x"]), DependencyMalformed, "malformed", id="candidate-no-object"),
        pytest.param(body(candidates=[{"content": []}]), DependencyMalformed, "malformed", id="content-no-object"),
        pytest.param(
            body(candidates=[{"content": {"parts": [{"inlineData": {}}]}}]),
            DependencyMalformed,
            "malformed",
            id="no-text",
        ),
        pytest.param(body(), NotAVerdict, "empty_output", id="no-candidates-field"),
        pytest.param(body(candidates=[]), NotAVerdict, "empty_output", id="no-candidate"),
        pytest.param(body(candidates=[{"finishReason": "STOP"}]), NotAVerdict, "empty_output", id="no-content"),
        pytest.param(
            body(candidates=[{"content": {"role": "model"}, "finishReason": "STOP"}]),
            NotAVerdict,
            "empty_output",
            id="no-parts",
        ),
        pytest.param(parts(" "), NotAVerdict, "empty_output", id="blank"),
        pytest.param(parts(VERDICT[:20], reason="MAX_TOKENS"), NotAVerdict, "truncated", id="max-tokens"),
        pytest.param(
            body(candidates=[{"finishReason": "MAX_TOKENS"}]), NotAVerdict, "truncated", id="max-tokens-without-content"
        ),
        pytest.param(body(candidates=[{"finishReason": "SAFETY"}]), NotAVerdict, "blocked", id="safety"),
        pytest.param(parts(VERDICT, reason="RECITATION"), NotAVerdict, "blocked", id="recitation"),
        pytest.param(body(promptFeedback={"blockReason": "OTHER"}), NotAVerdict, "blocked", id="prompt-blocked"),
        pytest.param(parts(VERDICT, reason="OTHER"), NotAVerdict, "unfinished", id="other-reason"),
    ],
)
async def test_each_failure_has_its_class_and_cause(
    answer: httpx.Response | Exception, error: type[DependencyError], kind: str
) -> None:
    with pytest.raises(error) as failure:
        await ask(judge(rig_for(answer)))
    assert failure.value.kind == kind
    assert SECRET not in f"{failure.value} {failure.value.detail} {failure.value.__cause__}"


async def test_the_delay_in_a_429s_body_is_obeyed() -> None:
    rig = rig_for(throttled("3.5s"), parts(VERDICT), attempts=2)
    assert (await ask(judge(rig))).text == VERDICT
    assert rig.clock.now >= 3.5


async def test_a_delay_beyond_the_deadline_fails_at_once() -> None:
    rig = rig_for(throttled("45.837906927s"), parts(VERDICT), attempts=3)
    with pytest.raises(DependencyUnavailable) as failure:
        await ask(judge(rig))
    assert failure.value.retry_after == pytest.approx(45.837906927)
    assert rig.clock.now == 0
    assert len(rig.requests) == 1


async def test_a_used_up_daily_quota_opens_the_circuit_at_the_first_reply() -> None:
    rig = rig_for(throttled("30s", quota="GenerateRequestsPerDayPerProjectPerModel-FreeTier"), attempts=3)
    with pytest.raises(DependencyUnavailable):
        await ask(judge(rig))
    with pytest.raises(CircuitOpen):
        await ask(judge(rig))
    assert len(rig.requests) == 1


@pytest.mark.parametrize(
    "delay", [None, "soon", "-3s", "3", "1e3s", 5], ids=["none", "words", "negative", "no-unit", "exponent", "number"]
)
async def test_a_delay_that_can_not_be_read_is_none(delay: Any) -> None:
    with pytest.raises(DependencyUnavailable) as failure:
        await ask(judge(rig_for(throttled(delay))))
    assert failure.value.retry_after is None
