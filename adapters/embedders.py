"""Remote embedders: Ollama and OpenAI-compatible endpoints."""

from __future__ import annotations

import math
from typing import Any

from pydantic import SecretStr

from adapters.http import JsonClient
from adapters.reply import Reply
from layers.errors import ConfigurationError, DependencyMalformed
from layers.model import JsonObject
from layers.ports import Task, Vector

PREFIX: dict[Task, str] = {"document": "search_document: ", "query": "search_query: "}
"""What nomic-embed-text, and Sentinel with it, puts before a text."""

LONGEST = 1e30
"""No vector is longer: it could not be kept in single precision."""


class _Dimension:
    """The dimension as first seen: a model does not change it, so another one means that it is another model."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.value: int | None = None

    def check(self, vector: Vector) -> Vector:
        if self.value is None:
            self.value = len(vector)
        if len(vector) != self.value:
            raise ConfigurationError(
                f"the embedder {self.name} answered with {len(vector)} dimensions after {self.value}: "
                "another model answers under its name; vectors of different models must not be mixed"
            )
        return vector


class OllamaEmbedder:
    """Embeds with a model of an Ollama server, over `/api/embeddings`, or `/api/embed` where the former is gone."""

    def __init__(self, client: JsonClient, url: str, model: str) -> None:
        self._client = client
        self._url = url.rstrip("/")
        self._model = model
        self._dimension = _Dimension(f"ollama:{model}")
        self._old_api = True

    @property
    def name(self) -> str:
        return self._dimension.name

    @property
    def dimension(self) -> int | None:
        return self._dimension.value

    async def embed(self, text: str, task: Task) -> Vector:
        """The text's vector. Raises `DependencyError`; `ConfigurationError` when the dimension changes."""
        prompt = PREFIX[task] + text
        vector = await self._embeddings(prompt) if self._old_api else None
        if vector is None:
            vector = await self._embed(prompt)
            self._old_api = False  # only now: a 404 can also mean that the model is missing
        return self._dimension.check(vector)

    async def _embeddings(self, prompt: str) -> Vector | None:
        """None when there is no such endpoint."""
        return await self._client.call(
            "POST",
            f"{self._url}/api/embeddings",
            json={"model": self._model, "prompt": prompt},
            read=lambda reply: None if reply.status == 404 else _vector(reply, _object(reply).get("embedding")),
            expect={404},
        )

    async def _embed(self, prompt: str) -> Vector:
        return await self._client.call(
            "POST",
            f"{self._url}/api/embed",
            json={"model": self._model, "input": prompt},
            read=lambda reply: _vector(reply, _first(_object(reply).get("embeddings"))),
        )


class OpenAIEmbedder:
    """Embeds over an OpenAI-compatible `/embeddings`. The texts leave for wherever that endpoint sends them."""

    def __init__(self, client: JsonClient, base_url: str, model: str, *, api_key: SecretStr | None = None) -> None:
        self._client = client
        self._url = base_url.rstrip("/") + "/embeddings"
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key.get_secret_value()}"} if api_key else {}
        self._dimension = _Dimension(f"openai:{model}")

    @property
    def name(self) -> str:
        return self._dimension.name

    @property
    def dimension(self) -> int | None:
        return self._dimension.value

    async def embed(self, text: str, task: Task) -> Vector:
        """The text's vector. Raises `DependencyError`; `ConfigurationError` when the dimension changes."""
        vector = await self._client.call(
            "POST",
            self._url,
            json={"model": self._model, "input": PREFIX[task] + text, "encoding_format": "float"},
            headers=self._headers,
            read=_read_openai,
        )
        return self._dimension.check(vector)


def _read_openai(reply: Reply) -> Vector:
    item = _first(_object(reply).get("data"))
    return _vector(reply, item.get("embedding") if isinstance(item, dict) else None)


def _object(reply: Reply) -> JsonObject:
    value = reply.json()
    if not isinstance(value, dict):
        raise DependencyMalformed(reply.dependency, "malformed", "the reply is not a JSON object")
    return value


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else None


def _vector(reply: Reply, value: Any) -> Vector:
    numbers = value if isinstance(value, list) else []
    if not numbers or not set(map(type, numbers)) <= {int, float}:
        raise DependencyMalformed(reply.dependency, "malformed", "the reply holds no embedding")
    vector = [float(x) for x in numbers]
    if not 0 < math.hypot(*vector) < LONGEST:
        raise DependencyMalformed(reply.dependency, "malformed", "the embedding has no usable length")
    return vector
