"""Ollama as a judge: what is sent, and every reply that is no verdict."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import ollama
import pytest

from adapters.http import new_http_client
from adapters.ollama import OllamaJudge
from layers.errors import DependencyError, DependencyMalformed, DependencyRejected, DependencyUnavailable, NotAVerdict
from layers.ports import Answerer
from tests.adapters.judging import SCHEMA, VERDICT, ask, judge_prompt
from tests.adapters.support import Rig, replies, serve

pytestmark = pytest.mark.anyio

CHAT = {
    "model": "qwen",
    "created_at": "2026-01-01T00:00:00Z",
    "message": {"role": "assistant", "content": VERDICT},
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 900,
    "eval_count": 42,
}


def chat(**changes: Any) -> httpx.Response:
    return httpx.Response(200, json={**CHAT, **changes})


def says(content: Any, **changes: Any) -> httpx.Response:
    return chat(message={"role": "assistant", "content": content}, **changes)


def judge(rig: Rig, model: str = "qwen") -> OllamaJudge:
    return OllamaJudge(rig.client, "http://ollama:11434/", model, num_ctx=4096)


async def test_it_asks_for_the_schema_without_streaming_or_thinking() -> None:
    rig = Rig(replies(chat()))
    answerer: Answerer = judge(rig)
    prompt = judge_prompt()
    reply = await answerer.ask(prompt, SCHEMA, temperature=0.25, seed=11)
    request = rig.requests[0]
    assert str(request.url) == "http://ollama:11434/api/chat"
    assert json.loads(request.content) == {
        "model": "qwen",
        "messages": [{"role": "user", "content": prompt.text}],
        "format": SCHEMA,
        "stream": False,
        "think": False,
        "options": {"num_ctx": 4096, "temperature": 0.25, "seed": 11},
    }
    assert (reply.text, reply.model, reply.input_tokens, reply.output_tokens) == (VERDICT, "qwen", 900, 42)
    assert reply.finish_reason == "stop"


async def test_the_official_client_sends_the_same_request_and_reads_the_same_reply() -> None:
    """The stand-in of these tests has the shape that the official client knows, in both directions."""
    official_requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        official_requests.append(request)
        return chat()

    prompt, rig = judge_prompt(), Rig(replies(chat()))
    ours = await judge(rig).ask(prompt, SCHEMA, temperature=0.0, seed=7)
    official = ollama.AsyncClient("http://ollama:11434", transport=httpx.MockTransport(answer))
    theirs = await official.chat(
        "qwen",
        [{"role": "user", "content": prompt.text}],
        format=SCHEMA,
        stream=False,
        think=False,
        options={"num_ctx": 4096, "temperature": 0.0, "seed": 7},
    )
    assert official_requests[0].url == rig.requests[0].url
    sent = json.loads(official_requests[0].content)
    assert {key: value for key, value in sent.items() if value != []} == json.loads(rig.requests[0].content)
    assert theirs.message.content == ours.text
    assert (theirs.prompt_eval_count, theirs.eval_count) == (ours.input_tokens, ours.output_tokens)
    assert theirs.done_reason == ours.finish_reason


@pytest.mark.parametrize(
    ("answer", "error", "kind"),
    [
        pytest.param(httpx.ConnectError("no"), DependencyUnavailable, "refused", id="refused"),
        pytest.param(httpx.ReadTimeout("slow"), DependencyUnavailable, "timeout", id="slow"),
        pytest.param(httpx.Response(500, text="boom"), DependencyUnavailable, "server_error", id="500"),
        pytest.param(httpx.Response(503, json={"error": "busy"}), DependencyUnavailable, "server_error", id="503"),
        pytest.param(httpx.Response(404, json={"error": "model not found"}), DependencyRejected, "rejected", id="404"),
        pytest.param(httpx.Response(200, html="<html>"), DependencyMalformed, "malformed", id="html"),
        pytest.param(httpx.Response(200, text=json.dumps(CHAT)[:60]), DependencyMalformed, "malformed", id="half-json"),
        pytest.param(httpx.Response(200, json=[CHAT]), DependencyMalformed, "malformed", id="array"),
        pytest.param(httpx.Response(200, json={"error": "x"}), DependencyMalformed, "malformed", id="error-in-200"),
        pytest.param(chat(message=None), DependencyMalformed, "malformed", id="no-message"),
        pytest.param(says(None), DependencyMalformed, "malformed", id="content-null"),
        pytest.param(says({"verdict": "high"}), DependencyMalformed, "malformed", id="content-object"),
        pytest.param(says(""), NotAVerdict, "empty_output", id="empty"),
        pytest.param(says(" \n"), NotAVerdict, "empty_output", id="blank"),
        pytest.param(chat(done_reason="length"), NotAVerdict, "truncated", id="cut"),
        pytest.param(chat(done=False), NotAVerdict, "truncated", id="not-done"),
        pytest.param(chat(prompt_eval_count=4096), NotAVerdict, "prompt_truncated", id="prompt-fills-context"),
        pytest.param(
            chat(prompt_eval_count=5000, done_reason="length"),
            NotAVerdict,
            "prompt_truncated",
            id="prompt-and-reply-cut",
        ),
        pytest.param(
            httpx.Response(200, text='{"message": {"content": "\\u0000"}, "done": true}'),
            NotAVerdict,
            "malformed",
            id="nul-written-by-the-model",
        ),
    ],
)
async def test_each_failure_has_its_class_and_cause(
    answer: httpx.Response | Exception, error: type[DependencyError], kind: str
) -> None:
    with pytest.raises(error) as failure:
        await ask(judge(Rig(replies(answer), options={"attempts": 1})))
    assert failure.value.kind == kind
    assert failure.value.dependency == "remote"


async def test_a_cut_reply_still_tells_its_tokens() -> None:
    with pytest.raises(NotAVerdict) as failure:
        await ask(judge(Rig(replies(chat(done_reason="length")))))
    assert failure.value.detail == {"input_tokens": 900, "output_tokens": 42}


async def test_what_a_model_writes_never_opens_the_circuit() -> None:
    rig = Rig(replies(says("")))
    for _ in range(5):
        with pytest.raises(NotAVerdict):
            await ask(judge(rig))
    assert rig.breaker.state() == "closed"


@pytest.mark.parametrize(
    ("model", "external"), [("qwen3.5:9b", False), ("gpt-oss:120b-cloud", True), ("glm-5:cloud", True)]
)
def test_a_model_that_runs_elsewhere_is_external(model: str, external: bool) -> None:
    assert judge(Rig(replies(chat())), model).external is external


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n", "timeout", id="hangs-after-headers"),
        pytest.param(
            b'HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{"message": {"con', "timeout", id="hangs-half-way"
        ),
    ],
)
async def test_a_server_that_hangs_costs_its_time_out_and_no_more(sent: bytes, kind: str) -> None:
    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()
        await asyncio.Event().wait()

    rig = Rig(replies(chat()), options={"timeout": 0.1, "attempts": 1})
    async with serve(play) as port, new_http_client(connect_timeout=1) as http:
        rig.client._http = http
        hanging = OllamaJudge(rig.client, f"http://127.0.0.1:{port}", "qwen", num_ctx=4096)
        with pytest.raises(DependencyUnavailable) as failure:
            await ask(hanging)
    assert failure.value.kind == kind
