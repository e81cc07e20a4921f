"""Whatever a caller sends, the answer is a problem that names the place, and never a 5xx."""

from __future__ import annotations

import json
import re

import httpx
import pytest

from app.openapi import SERVED

pytestmark = pytest.mark.anyio

GOOD = {"id": "txn-1", "system": "generic", "raw_output": {"a": 1}, "label": "low", "confidence": 0.9}
JSON = {"content-type": "application/json"}


def body(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def replaced(old: bytes, new: bytes) -> bytes:
    text = body()
    assert old in text
    return text.replace(old, new)


async def post(http: httpx.AsyncClient, content: bytes, **headers: str) -> httpx.Response:
    return await http.post("/evaluate", content=content, headers={**JSON, **headers})


def check_problem(response: httpx.Response, status: int) -> dict:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["type"].startswith("/problems/")
    assert problem["title"]
    assert problem["detail"]
    assert problem["instance"]
    return problem


@pytest.mark.parametrize(
    ("content", "pointer"),
    [
        pytest.param(replaced(b"0.9", b"NaN"), "/confidence", id="NaN"),
        pytest.param(replaced(b"0.9", b"Infinity"), "/confidence", id="Infinity"),
        pytest.param(replaced(b"0.9", b"-Infinity"), "/confidence", id="-Infinity"),
        pytest.param(replaced(b"0.9", b"1e400"), "/confidence", id="1e400"),
        pytest.param(replaced(b'{"a": 1}', b'{"a": [0, NaN]}'), "/raw_output/a/1", id="NaN inside the payload"),
        pytest.param(replaced(b'{"a": 1}', b'{"a": 1, "a": 2}'), "/raw_output/a", id="duplicate key"),
        pytest.param(replaced(b'"low"', b'"\\ud800"'), "/label", id="lone surrogate"),
        pytest.param(replaced(b'"low"', b'"a\\u0000b"'), "/label", id="NUL"),
        pytest.param(body(id=""), "/id", id="empty id"),
        pytest.param(body(label=""), "/label", id="empty label"),
        pytest.param(body(confidence=1.5), "/confidence", id="confidence over 1"),
        pytest.param(body(confidence="0.5"), "/confidence", id="number as text"),
        pytest.param(body(confidence=True), "/confidence", id="truth as number"),
        pytest.param(body(raw_output=[]), "/raw_output", id="payload is no object"),
        pytest.param(body(verdict="low"), "/verdict", id="unknown field"),
        pytest.param(body(id="x" * 513), "/id", id="id too long"),
        pytest.param(b'{"system": "generic", "raw_output": {}}', "/id", id="missing field"),
        pytest.param(b"[]", "", id="not an object"),
    ],
)
async def test_a_bad_value_is_refused_by_name(http: httpx.AsyncClient, content: bytes, pointer: str) -> None:
    problem = check_problem(await post(http, content), 422)
    assert problem["errors"][0]["pointer"] == pointer
    assert pointer in problem["detail"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "line 1 column 1", id="empty"),
        pytest.param(b'{"id": ', "line 1 column 8", id="cut off"),
        pytest.param(b'{"id": "\xff"}', "byte 8", id="undecodable"),
        pytest.param(b'{"id": "a\x00b"}', "line 1 column 10", id="raw NUL"),
        pytest.param(b"{}{}", "line 1 column 3", id="two values"),
        pytest.param(b'{"raw_output":' + b"[" * 1_000 + b"]" * 1_000 + b"}", "64 levels", id="depth 1,000"),
        pytest.param(b"[" * 10_000, "64 levels", id="depth 10,000, never closed"),
        pytest.param(body().decode().encode("utf-16"), "UTF-8", id="UTF-16"),
    ],
)
async def test_what_is_no_json_is_refused_with_the_place(http: httpx.AsyncClient, content: bytes, said: str) -> None:
    assert said in check_problem(await post(http, content), 400)["detail"]


async def test_a_depth_of_a_hundred_thousand_is_refused(api, settings) -> None:
    roomy = settings.model_copy(update={"server": settings.server.model_copy(update={"max_body_bytes": 1_000_000})})
    async with api(settings=roomy) as http:
        check_problem(await post(http, b"[" * 100_000 + b"]" * 100_000), 400)
        check_problem(await post(http, b'{"a":' * 100_000 + b"1" + b"}" * 100_000), 400)


async def test_a_byte_order_mark_is_accepted(http: httpx.AsyncClient) -> None:
    assert (await post(http, b"\xef\xbb\xbf" + body())).status_code == 200


async def test_integers_of_any_size_within_a_double_pass(http: httpx.AsyncClient) -> None:
    assert (await post(http, body(raw_output={"n": 10**300, "m": -(10**40)}))).status_code == 200
    check_problem(await post(http, body(raw_output={"n": 10**400})), 422)


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "",
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-16",
        "multipart/form-data",
        "é",
    ],
)
async def test_another_content_type_is_refused(http: httpx.AsyncClient, content_type: str) -> None:
    response = await http.post("/evaluate", content=body(), headers={b"content-type": content_type.encode("latin-1")})
    check_problem(response, 415)


async def test_a_missing_content_type_is_refused(http: httpx.AsyncClient) -> None:
    check_problem(await http.post("/evaluate", content=body()), 415)


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=UTF-8", "APPLICATION/JSON", "application/vnd.x+json"]
)
async def test_json_by_any_of_its_names_is_read(http: httpx.AsyncClient, content_type: str) -> None:
    assert (await http.post("/evaluate", content=body(), headers={"content-type": content_type})).status_code == 200


async def test_compressed_bodies_are_refused(http: httpx.AsyncClient) -> None:
    check_problem(await post(http, body(), **{"content-encoding": "gzip"}), 415)


async def test_a_body_over_the_limit_is_refused_before_it_is_read(http: httpx.AsyncClient) -> None:
    check_problem(await post(http, body(metadata={"x": "y" * 20_000})), 413)


async def test_a_body_over_the_limit_is_refused_without_an_announced_length(http: httpx.AsyncClient) -> None:
    async def pieces():
        for _ in range(30):
            yield b" " * 1_000

    response = await http.post("/evaluate", content=pieces(), headers=JSON)
    assert "content-length" not in response.request.headers
    check_problem(response, 413)


async def test_a_body_in_pieces_is_read_whole(http: httpx.AsyncClient) -> None:
    text = body(metadata={"x": "y" * 5_000})

    async def pieces():
        for at in range(0, len(text), 1_000):
            yield text[at : at + 1_000]

    assert (await http.post("/evaluate", content=pieces(), headers=JSON)).status_code == 200


@pytest.mark.parametrize("path", ["/evaluations", "/runs", "/batches"])
@pytest.mark.parametrize(
    "name", ["x", "%00", "%ff", "%2e%2e", "é", "0" * 36, "%F0%9F%98%80", "a" * 5_000, "'--", "%ud800"]
)
async def test_an_odd_id_is_not_found(http: httpx.AsyncClient, path: str, name: str) -> None:
    check_problem(await http.get(f"{path}/{name}"), 404)


@pytest.mark.parametrize("path", ["/", "/nothing", "/evaluate/", "/%00", "/runs//records"])
async def test_an_unknown_path_is_a_problem(http: httpx.AsyncClient, path: str) -> None:
    check_problem(await http.get(path), 404)


async def test_an_unknown_breaker_names_the_known_ones(http: httpx.AsyncClient) -> None:
    assert "ollama.judge" in check_problem(await http.post("/breakers/%00/reset"), 404)["detail"]


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "TRACE", "BREW"])
async def test_another_method_says_which_are_allowed(http: httpx.AsyncClient, method: str) -> None:
    response = await http.request(method, "/runs")
    check_problem(response, 405)
    assert response.headers["allow"] == "POST, GET, HEAD, OPTIONS"


async def test_options_lists_the_methods(http: httpx.AsyncClient) -> None:
    response = await http.request("OPTIONS", "/evaluate")
    assert (response.status_code, response.headers["allow"]) == (204, "POST, OPTIONS")


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=501", "limit=x", "limit=-1", "limit=", "limit=1&limit=2", "limit=١", "cursor=%00", "cursor=",
        "cursor=zzz", "degraded=yes", "disposition=bad", "since=yesterday", "since=5",
        "since=2026-01-01T00:00:00", "since=0001-01-01T00:00:00%2B10:00", "since=2026-02-30T00:00:00Z",
        "prediction_id=%00", "system=",
    ],
)  # fmt: skip
async def test_a_bad_query_parameter_is_named(http: httpx.AsyncClient, query: str) -> None:
    problem = check_problem(await http.get(f"/evaluations?{query}"), 400)
    assert query.partition("=")[0] in problem["detail"]


def paths() -> list[tuple[str, str]]:
    return [(each.method, re.sub(r"\{\w+\}", "x", each.path)) for each in SERVED]


@pytest.mark.parametrize(("method", "path"), paths())
async def test_an_unknown_query_parameter_is_refused_and_named(http: httpx.AsyncClient, method: str, path: str) -> None:
    """By every operation: one that is misspelt would else change nothing and say nothing."""
    problem = check_problem(await http.request(method, f"{path}?limits=1"), 422)
    assert "no query parameter 'limits'" in problem["detail"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/evaluations?limits=1", "did you mean limit?"),
        ("/evaluations?Limit=1", "did you mean limit?"),
        ("/evaluations?limit=1&zzz=", "there are limit, cursor, prediction_id"),
        ("/evaluations/x?nothing=1", "there is revision"),
        ("/breakers?a=1", "this operation takes none"),
        ("/breakers?%ff%00=1", "this operation takes none"),
        ("/breakers?" + "a" * 9_000 + "=1", "'" + "a" * 64 + "'"),
    ],
)
async def test_who_misspells_a_query_parameter_is_told_what_there_is(
    http: httpx.AsyncClient, path: str, says: str
) -> None:
    assert says in check_problem(await http.get(path), 422)["detail"]


async def test_headers_with_any_bytes_do_no_harm(http: httpx.AsyncClient) -> None:
    odd = {b"prefer": b"\xff", b"accept": b"\xe9", b"x-request-id": b"\xff\xfe", b"x-anything": bytes(range(128, 256))}
    response = await http.post("/evaluate", content=body(), headers={b"content-type": b"application/json", **odd})
    assert response.status_code == 200
    assert "x-request-id" not in response.headers


async def test_a_problem_never_repeats_what_was_sent(http: httpx.AsyncClient) -> None:
    problem = check_problem(await post(http, body(confidence="hunter2-secret")), 422)
    assert "hunter2" not in json.dumps(problem)


async def test_a_body_with_a_thousand_faults_names_a_hundred(http: httpx.AsyncClient) -> None:
    content = body(**{f"x{n}": 1 for n in range(1_000)})
    problem = check_problem(await post(http, content), 422)
    assert len(problem["errors"]) == 100
    assert "999 more" in problem["detail"]
