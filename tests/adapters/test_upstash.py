"""Upstash Vector: what is asked, and every reply that is no list of neighbours."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from adapters.upstash import UpstashIndex
from layers.errors import (
    ConfigurationError,
    DependencyError,
    DependencyMalformed,
    DependencyRejected,
    DependencyUnavailable,
)
from layers.ports import VectorIndex
from tests.adapters.judging import SECRET
from tests.adapters.support import Rig

pytestmark = pytest.mark.anyio

META = {"analysis": {"isThreat": True, "message": "m"}, "timestamp": "2026-01-01T00:00:00Z", "policy_epoch": "7"}


def upstash(query: httpx.Response | Exception, dimension: Any = 3) -> Callable[[httpx.Request], httpx.Response]:
    """A server that describes itself and answers every query with the same reply."""
    info = {"result": {"vectorCount": 9, "dimension": dimension, "similarityFunction": "COSINE", "namespaces": {}}}

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/info":
            return httpx.Response(200, json=info)
        if isinstance(query, Exception):
            raise query
        return query

    return handle


def index(rig: Rig) -> UpstashIndex:
    return UpstashIndex(rig.client, "https://vec.test/", SecretStr(SECRET), embedder="ollama:nomic")


def results(*items: Any) -> httpx.Response:
    return httpx.Response(200, json={"result": list(items)})


async def test_it_queries_the_namespace_and_keeps_metadata_as_stored() -> None:
    rig = Rig(upstash(results({"id": "txn_1", "score": 0.95, "metadata": META}, {"id": 7, "score": 1})))
    vectors: VectorIndex = index(rig)
    found = await vectors.query("a b", [0.1, 0.2, 0.3], top_k=5, filter="domain = 'aml'")
    assert [(m.id, m.score, m.metadata) for m in found] == [("7", 1.0, {}), ("txn_1", 0.95, META)]
    request = rig.requests[-1]
    assert request.url.raw_path == b"/query/a%20b"
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert json.loads(request.content) == {
        "vector": [0.1, 0.2, 0.3],
        "topK": 5,
        "includeMetadata": True,
        "filter": "domain = 'aml'",
    }


async def test_the_dimension_is_asked_for_once() -> None:
    rig = Rig(upstash(results()))
    vectors = index(rig)
    await vectors.query("t", [1, 2, 3], top_k=1)
    await vectors.query("t", [1, 2, 3], top_k=1)
    assert [r.url.path for r in rig.requests] == ["/info", "/query/t", "/query/t"]


async def test_another_dimension_is_a_configuration_error_with_names_and_numbers_before_anything_is_asked() -> None:
    rig = Rig(upstash(results(), dimension=1536))
    with pytest.raises(ConfigurationError, match=r"1536 dimensions, the embedder ollama:nomic makes 3") as failure:
        await index(rig).query("t", [1, 2, 3], top_k=1)
    assert [r.url.path for r in rig.requests] == ["/info"]
    assert SECRET not in str(failure.value)


async def test_a_null_result_is_no_neighbour() -> None:
    assert await index(Rig(upstash(httpx.Response(200, json={"result": None})))).query("t", [1, 2, 3], top_k=1) == []


async def test_no_more_than_asked_for_comes_back() -> None:
    rig = Rig(upstash(results(*({"id": f"v{n}", "score": 0.5} for n in range(4)))))
    assert [m.id for m in await index(rig).query("t", [1, 2, 3], top_k=2)] == ["v0", "v1"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(httpx.ConnectError("no"), DependencyUnavailable, id="refused"),
        pytest.param(httpx.Response(500), DependencyUnavailable, id="500"),
        pytest.param(httpx.Response(429), DependencyUnavailable, id="429"),
        pytest.param(httpx.Response(401, json={"error": "Unauthorized", "status": 401}), DependencyRejected, id="401"),
        pytest.param(
            httpx.Response(422, json={"error": "Invalid vector dimension", "status": 422}), DependencyRejected, id="422"
        ),
        pytest.param(httpx.Response(200, html="<html>"), DependencyMalformed, id="html"),
        pytest.param(httpx.Response(200, json=[]), DependencyMalformed, id="array"),
        pytest.param(httpx.Response(200, json={}), DependencyMalformed, id="no-result"),
        pytest.param(httpx.Response(200, json={"result": {}}), DependencyMalformed, id="result-object"),
        pytest.param(results("x"), DependencyMalformed, id="entry-text"),
        pytest.param(results({"id": "a"}), DependencyMalformed, id="no-score"),
        pytest.param(results({"id": "a", "score": "0.9"}), DependencyMalformed, id="score-text"),
        pytest.param(results({"score": 0.9}), DependencyMalformed, id="no-id"),
        pytest.param(results({"id": "a", "score": 1, "metadata": []}), DependencyMalformed, id="metadata-list"),
    ],
)
async def test_each_failure_has_its_class(answer: httpx.Response | Exception, error: type[DependencyError]) -> None:
    with pytest.raises(error) as failure:
        await index(Rig(upstash(answer), options={"attempts": 1})).query("t", [1, 2, 3], top_k=1)
    assert SECRET not in f"{failure.value} {failure.value.detail}"


@pytest.mark.parametrize("dimension", [None, "3", True, 0])
async def test_an_index_that_does_not_tell_its_dimension_is_malformed(dimension: Any) -> None:
    with pytest.raises(DependencyMalformed):
        await index(Rig(upstash(results(), dimension=dimension))).query("t", [1, 2, 3], top_k=1)
