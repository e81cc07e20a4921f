"""Remote embedders: which text is sent, which endpoint, and every reply that is no vector."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import ollama as official
import pytest
from pydantic import SecretStr

from adapters.embedders import OllamaEmbedder, OpenAIEmbedder
from layers.errors import (
    ConfigurationError,
    DependencyError,
    DependencyMalformed,
    DependencyRejected,
    DependencyUnavailable,
)
from layers.ports import Embedder
from tests.adapters.judging import SECRET
from tests.adapters.support import Rig, replies

pytestmark = pytest.mark.anyio


def ollama(rig: Rig) -> OllamaEmbedder:
    return OllamaEmbedder(rig.client, "http://ollama:11434/", "nomic-embed-text:v1.5")


def openai(rig: Rig) -> OpenAIEmbedder:
    return OpenAIEmbedder(rig.client, "http://llm/v1", "embed-small", api_key=SecretStr(SECRET))


def openai_reply(vector: Any) -> httpx.Response:
    return httpx.Response(200, json={"object": "list", "data": [{"index": 0, "embedding": vector}]})


@pytest.mark.parametrize(("task", "prefix"), [("document", "search_document: "), ("query", "search_query: ")])
async def test_ollama_embeds_with_the_tasks_prefix(task: Any, prefix: str) -> None:
    rig = Rig(replies(httpx.Response(200, json={"embedding": [0.5, 1, -2]})))
    embedder: Embedder = ollama(rig)
    assert embedder.dimension is None
    assert await embedder.embed("Amount: small", task) == [0.5, 1.0, -2.0]
    assert str(rig.requests[0].url) == "http://ollama:11434/api/embeddings"
    assert json.loads(rig.requests[0].content) == {"model": "nomic-embed-text:v1.5", "prompt": prefix + "Amount: small"}
    assert (embedder.name, embedder.dimension) == ("ollama:nomic-embed-text:v1.5", 3)


async def test_where_the_old_endpoint_is_gone_the_new_one_is_used_from_then_on() -> None:
    def newer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/embed":
            assert json.loads(request.content)["input"] == "search_document: x"
            return httpx.Response(200, json={"embeddings": [[1.0, 2.0]]})
        return httpx.Response(404, text="404 page not found")

    rig = Rig(newer)
    embedder = ollama(rig)
    assert await embedder.embed("x", "document") == [1.0, 2.0]
    assert await embedder.embed("x", "document") == [1.0, 2.0]
    assert [r.url.path for r in rig.requests] == ["/api/embeddings", "/api/embed", "/api/embed"]


async def test_the_official_client_sends_the_same_requests() -> None:
    sent: list[tuple[str, dict[str, Any]]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append((request.url.path, json.loads(request.content)))
        return httpx.Response(200, json={"embedding": [1.0], "embeddings": [[1.0]], "model": "m"})

    client = official.AsyncClient("http://ollama:11434", transport=httpx.MockTransport(answer))
    assert (await client.embeddings("nomic-embed-text:v1.5", "search_query: x")).embedding == [1.0]
    assert (await client.embed("nomic-embed-text:v1.5", "search_query: x")).embeddings == [[1.0]]
    old, new = Rig(answer), Rig(lambda r: httpx.Response(404) if r.url.path == "/api/embeddings" else answer(r))
    for rig in (old, new):
        assert await ollama(rig).embed("x", "query") == [1.0]
    assert sent[:2] == sent[2:]


async def test_a_missing_model_is_told_as_a_rejection() -> None:
    with pytest.raises(DependencyRejected):
        await ollama(Rig(replies(httpx.Response(404, json={"error": "model not found"})))).embed("x", "document")


async def test_openai_embeds_with_the_key_in_a_header() -> None:
    rig = Rig(replies(openai_reply([3, 4])))
    embedder: Embedder = openai(rig)
    assert await embedder.embed("x", "query") == [3.0, 4.0]
    request = rig.requests[0]
    assert str(request.url) == "http://llm/v1/embeddings"
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert json.loads(request.content)["input"] == "search_query: x"
    assert embedder.name == "openai:embed-small"


@pytest.mark.parametrize("build", [ollama, openai])
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(httpx.ConnectError("no"), DependencyUnavailable, id="refused"),
        pytest.param(httpx.ReadTimeout("slow"), DependencyUnavailable, id="slow"),
        pytest.param(httpx.Response(500), DependencyUnavailable, id="500"),
        pytest.param(httpx.Response(401), DependencyRejected, id="401"),
        pytest.param(httpx.Response(200, html="<html>"), DependencyMalformed, id="html"),
        pytest.param(httpx.Response(200, json=[]), DependencyMalformed, id="array"),
        pytest.param(httpx.Response(200, json={}), DependencyMalformed, id="empty-object"),
    ],
)
async def test_each_failure_has_its_class(
    build: Callable[[Rig], Embedder], answer: httpx.Response | Exception, error: type[DependencyError]
) -> None:
    with pytest.raises(error) as failure:
        await build(Rig(replies(answer), options={"attempts": 1})).embed("x", "document")
    assert SECRET not in f"{failure.value} {failure.value.detail}"


@pytest.mark.parametrize("vector", [[], None, "1,2", [1, None], [True, 1], ["1"], [0, 0], [1e200, 1.0]])
async def test_what_is_no_vector_is_malformed(vector: Any) -> None:
    reply = httpx.Response(200, json={"embedding": vector})
    with pytest.raises(DependencyMalformed):
        await ollama(Rig(replies(reply))).embed("x", "document")
    with pytest.raises(DependencyMalformed):
        await openai(Rig(replies(openai_reply(vector)))).embed("x", "document")


async def test_a_dimension_that_changes_is_a_configuration_error_with_name_and_numbers() -> None:
    rig = Rig(replies(httpx.Response(200, json={"embedding": [1, 2, 3]}), httpx.Response(200, json={"embedding": [1]})))
    embedder = ollama(rig)
    await embedder.embed("x", "document")
    with pytest.raises(ConfigurationError, match=r"nomic-embed-text:v1\.5 answered with 1 dimensions after 3"):
        await embedder.embed("x", "document")
