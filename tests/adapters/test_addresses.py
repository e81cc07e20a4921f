"""Where each remote is called, with which credentials and which body: the whole wire, behind the real client."""

import json

import httpx
import pytest
import respx
from pydantic import SecretStr

from adapters.embedders import OllamaEmbedder
from adapters.gemini import GeminiJudge
from adapters.ollama import OllamaJudge
from adapters.openai_compatible import OpenAICompatibleJudge
from adapters.synapse_l4 import SynapseSystem
from adapters.upstash import UpstashIndex
from app.settings import NetworkSettings
from app.wiring.remotes import Remotes
from layers.model import EvalExample
from layers.prompting import Prompt, render

pytestmark = pytest.mark.anyio
SCHEMA = {"type": "object", "properties": {"verdict": {"type": "string"}}, "required": ["verdict"]}
PROMPT = render(Prompt("p", "1", "Judge this.", "sha256:0"), {})


@pytest.fixture
def wire() -> respx.MockRouter:
    return respx.MockRouter(assert_all_called=True)


@pytest.fixture
def remotes(wire: respx.MockRouter) -> Remotes:
    http = httpx.AsyncClient(transport=httpx.MockTransport(wire.async_handler))
    return Remotes(NetworkSettings(), http)


def sent(wire: respx.MockRouter, index: int = -1) -> tuple[httpx.Request, dict]:
    request = wire.calls[index].request
    return request, json.loads(request.content) if request.content else {}


async def test_ollama_is_asked_for_one_whole_json_reply_without_thinking_aloud(wire, remotes) -> None:
    wire.post("http://ollama:11434/api/chat").respond(
        json={
            "message": {"content": '{"verdict": "low"}'},
            "done_reason": "stop",
            "prompt_eval_count": 9,
            "eval_count": 3,
        }
    )
    judge = OllamaJudge(remotes.client("ollama.judge", timeout=5, slots=4), "http://ollama:11434/", "m", num_ctx=4096)
    reply = await judge.ask(PROMPT, SCHEMA, temperature=0.0, seed=7)
    _, body = sent(wire)
    assert reply.text == '{"verdict": "low"}'
    assert (body["model"], body["stream"], body["think"], body["format"]) == ("m", False, False, SCHEMA)
    assert body["options"] == {"num_ctx": 4096, "temperature": 0.0, "seed": 7}


async def test_geminis_key_travels_in_a_header_and_never_in_the_address(wire, remotes) -> None:
    url = "https://gemini.example/v1beta/models/gemini-2.0-flash:generateContent"
    wire.post(url).respond(
        json={"candidates": [{"content": {"parts": [{"text": "{}"}]}, "finishReason": "STOP"}], "usageMetadata": {}}
    )
    judge = GeminiJudge(remotes.client("gemini", timeout=5, slots=4), url, SecretStr("the-key"))
    await judge.ask(PROMPT, SCHEMA, temperature=0.0, seed=7)
    request, body = sent(wire)
    assert request.headers["x-goog-api-key"] == "the-key"
    assert "the-key" not in str(request.url)
    assert body["generationConfig"]["responseMimeType"] == "application/json"


async def test_an_openai_compatible_endpoint_gets_the_schema_and_a_bearer_key(wire, remotes) -> None:
    wire.post("http://llm:8000/v1/chat/completions").respond(
        json={"choices": [{"message": {"content": "{}"}, "finish_reason": "stop"}], "usage": {}}
    )
    client = remotes.client("openai", timeout=5, slots=4)
    judge = OpenAICompatibleJudge(client, "http://llm:8000/v1", "m", api_key=SecretStr("k" * 20))
    await judge.ask(PROMPT, SCHEMA, temperature=0.0, seed=7)
    request, body = sent(wire)
    assert request.headers["authorization"] == f"Bearer {'k' * 20}"
    assert body["response_format"]["type"] == "json_schema"


async def test_upstash_is_asked_about_its_dimension_once_and_then_queried_by_namespace(wire, remotes) -> None:
    wire.get("https://vectors.example/info").respond(json={"result": {"dimension": 2}})
    wire.post("https://vectors.example/query/transactions").respond(json={"result": None})
    client = remotes.client("upstash", timeout=5, slots=4)
    index = UpstashIndex(client, "https://vectors.example", SecretStr("token"), embedder="e")
    for _ in range(2):
        assert await index.query("transactions", [0.0, 1.0], top_k=3) == []
    request, body = sent(wire)
    assert request.headers["authorization"] == "Bearer token"
    assert body == {"vector": [0.0, 1.0], "topK": 3, "includeMetadata": True}
    assert [call.request.method for call in wire.calls] == ["GET", "POST", "POST"]


@pytest.mark.parametrize(("task", "prefix"), [("document", "search_document: "), ("query", "search_query: ")])
async def test_the_embedder_says_what_a_text_is_embedded_for(wire, remotes, task: str, prefix: str) -> None:
    wire.post("http://ollama:11434/api/embeddings").respond(json={"embedding": [0.5, 0.5]})
    embedder = OllamaEmbedder(remotes.client("embedder", timeout=5, slots=4), "http://ollama:11434", "nomic")
    assert await embedder.embed("text", task) == [0.5, 0.5]
    assert sent(wire)[1] == {"model": "nomic", "prompt": f"{prefix}text"}


async def test_synapse_gets_the_payload_under_the_examples_id(wire, remotes) -> None:
    axiom = {"status": "nominal", "metric_value": 1.0, "anomaly_score": 0.1, "source_id": "e1", "domain": None}
    wire.post("http://synapse:8000/ingest").respond(json={"axiom": {**axiom, "emitted_at": "x"}, "pipeline_ms": 3})
    system = SynapseSystem(remotes.client("synapse", timeout=5, slots=4), "http://synapse:8000/")
    prediction = await system.predict(EvalExample(id="e1", input={"payload": {"n": 1}}, expected_label="nominal"))
    assert (prediction.label, prediction.confidence) == ("nominal", 0.1)
    assert sent(wire)[1] == {"source_id": "e1", "payload": {"n": 1}}
