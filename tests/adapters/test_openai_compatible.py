"""Any OpenAI-compatible endpoint as a judge: what is sent, and every reply that is no verdict."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from adapters.openai_compatible import OpenAICompatibleJudge
from layers.errors import DependencyError, DependencyMalformed, DependencyRejected, DependencyUnavailable, NotAVerdict
from layers.ports import Answerer
from tests.adapters.judging import SCHEMA, SECRET, VERDICT, ask
from tests.adapters.support import Rig, replies

pytestmark = pytest.mark.anyio


def choice(content: Any = VERDICT, reason: str | None = "stop", **message: Any) -> httpx.Response:
    answer = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": reason}
    return completion(choices=[answer])


def completion(**fields: Any) -> httpx.Response:
    usage = {"prompt_tokens": 700, "completion_tokens": 30, "total_tokens": 730}
    return httpx.Response(200, json={"id": "c-1", "object": "chat.completion", "usage": usage, **fields})


def judge(rig: Rig, key: str | None = SECRET) -> OpenAICompatibleJudge:
    return OpenAICompatibleJudge(rig.client, "http://llm/v1/", "small", api_key=SecretStr(key) if key else None)


async def test_it_asks_for_the_schema_with_the_key_in_a_header() -> None:
    rig = Rig(replies(choice()))
    answerer: Answerer = judge(rig)
    reply = await ask(answerer)
    request = rig.requests[0]
    assert str(request.url) == "http://llm/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    sent = json.loads(request.content)
    assert (sent["model"], sent["temperature"], sent["seed"], sent["stream"]) == ("small", 0.0, 7, False)
    assert sent["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "judge", "strict": True, "schema": SCHEMA},
    }
    assert (reply.text, reply.input_tokens, reply.output_tokens, reply.finish_reason) == (VERDICT, 700, 30, "stop")
    assert answerer.external


async def test_without_a_key_no_key_is_sent() -> None:
    rig = Rig(replies(choice()))
    await ask(judge(rig, None))
    assert "authorization" not in rig.requests[0].headers


@pytest.mark.parametrize(
    ("answer", "error", "kind"),
    [
        pytest.param(httpx.ConnectError("no"), DependencyUnavailable, "refused", id="refused"),
        pytest.param(httpx.Response(502), DependencyUnavailable, "server_error", id="502"),
        pytest.param(
            httpx.Response(429, headers={"retry-after": "9"}), DependencyUnavailable, "rate_limited", id="429"
        ),
        pytest.param(httpx.Response(401, json={"error": {}}), DependencyRejected, "rejected", id="401"),
        pytest.param(httpx.Response(200, html="<html>"), DependencyMalformed, "malformed", id="html"),
        pytest.param(completion(), DependencyMalformed, "malformed", id="no-choices-field"),
        pytest.param(completion(choices=[{}]), DependencyMalformed, "malformed", id="no-message"),
        pytest.param(completion(choices=["x"]), DependencyMalformed, "malformed", id="choice-no-object"),
        pytest.param(choice([{"text": "x"}]), DependencyMalformed, "malformed", id="content-list"),
        pytest.param(completion(choices=[]), NotAVerdict, "empty_output", id="no-choice"),
        pytest.param(choice(None), NotAVerdict, "empty_output", id="null"),
        pytest.param(choice(""), NotAVerdict, "empty_output", id="empty"),
        pytest.param(choice(VERDICT[:9], "length"), NotAVerdict, "truncated", id="length"),
        pytest.param(choice(VERDICT, "content_filter"), NotAVerdict, "blocked", id="filtered"),
        pytest.param(choice(None, refusal="I can't."), NotAVerdict, "blocked", id="refusal"),
    ],
)
async def test_each_failure_has_its_class_and_cause(
    answer: httpx.Response | Exception, error: type[DependencyError], kind: str
) -> None:
    with pytest.raises(error) as failure:
        await ask(judge(Rig(replies(answer), options={"attempts": 1})))
    assert failure.value.kind == kind
    assert SECRET not in f"{failure.value} {failure.value.detail}"
