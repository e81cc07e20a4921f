"""Upstash Vector over REST, where Sentinel keeps its earlier verdicts and its policies."""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr

from adapters.http import JsonClient
from adapters.reply import Reply
from layers.errors import ConfigurationError, DependencyMalformed
from layers.model import JsonObject
from layers.ports import Match, Vector


class UpstashIndex:
    """Queries one Upstash index with the vectors of one embedder, whose dimension it compares at the first call."""

    name = "upstash"

    def __init__(self, client: JsonClient, url: str, token: SecretStr, *, embedder: str) -> None:
        self._client = client
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token.get_secret_value()}"}
        self._embedder = embedder
        self._dimension: int | None = None

    async def query(self, namespace: str, vector: Vector, *, top_k: int, filter: str | None = None) -> list[Match]:
        """Nearest entries, nearest first; scores are (1 + cosine) / 2.

        Raises `DependencyError`; `ConfigurationError` when the index was made for vectors of another dimension.
        """
        await self._check_dimension(len(vector))
        body: JsonObject = {"vector": vector, "topK": top_k, "includeMetadata": True}
        if filter is not None:
            body["filter"] = filter
        url = f"{self._url}/query/{quote(namespace, safe='')}"
        matches = await self._client.call("POST", url, json=body, headers=self._headers, read=_read_matches)
        return sorted(matches, key=lambda match: (-match.score, match.id))[:top_k]

    async def _check_dimension(self, dimension: int) -> None:
        if self._dimension is None:
            self._dimension = await self._client.call(
                "GET", f"{self._url}/info", headers=self._headers, read=_read_dimension
            )
        if self._dimension != dimension:
            raise ConfigurationError(
                f"the vector index at UPSTASH_VECTOR_REST_URL has {self._dimension} dimensions, the embedder "
                f"{self._embedder} makes {dimension}: use the embedding model that the index was filled with"
            )


def _read_dimension(reply: Reply) -> int:
    result = _result(reply)
    dimension = result.get("dimension") if isinstance(result, dict) else None
    if not isinstance(dimension, int) or isinstance(dimension, bool) or dimension < 1:
        raise DependencyMalformed(reply.dependency, "malformed", "the index does not tell its dimension")
    return dimension


def _read_matches(reply: Reply) -> list[Match]:
    result = _result(reply)
    if result is None:
        return []
    if not isinstance(result, list):
        raise DependencyMalformed(reply.dependency, "malformed", "the reply's `result` is no list")
    return [_read_match(reply, item) for item in result]


def _read_match(reply: Reply, item: Any) -> Match:
    found = item if isinstance(item, dict) else {}
    score, metadata = found.get("score"), found.get("metadata")
    sound = isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score)
    if not sound or not isinstance(found.get("id"), str | int) or not isinstance(metadata, dict | None):
        raise DependencyMalformed(reply.dependency, "malformed", "an entry lacks its id or score, or has odd metadata")
    return Match(id=str(found["id"]), score=float(found["score"]), metadata=metadata or {})


def _result(reply: Reply) -> Any:
    value = reply.json()
    if not isinstance(value, dict) or "result" not in value:
        raise DependencyMalformed(reply.dependency, "malformed", "the reply has no `result`")
    return value["result"]
