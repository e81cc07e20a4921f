"""`POST /evaluate/batch`: order, isolation of bad items, bounds, and batches for later."""

from __future__ import annotations

import json

import anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.batch_items import index_items
from app.errors import Overloaded, ServiceError
from app.evaluation.model import EvaluateRequest
from tests.fakes import FakeEvaluations

pytestmark = pytest.mark.anyio

NDJSON = {"content-type": "application/x-ndjson"}
JSON = {"content-type": "application/json"}
LATER = {"prefer": "respond-async"}


def item(name: str, **changes: object) -> bytes:
    return json.dumps(
        {"id": name, "system": "generic", "raw_output": {}, "label": "low", "confidence": 0.9, **changes}
    ).encode()


def answers(response: httpx.Response) -> list[dict]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


@pytest.mark.parametrize(
    "join", [lambda items: (NDJSON, b"\n".join(items)), lambda items: (JSON, b"[" + b",".join(items) + b"]")]
)
async def test_answers_come_in_order_whatever_takes_long(api, join) -> None:
    release = anyio.Event()

    async def hold_the_first(request: EvaluateRequest) -> None:
        if request.id == "0":
            await release.wait()
        if request.id == "40":
            release.set()

    headers, content = join([item(str(n)) for n in range(45)])
    async with api(evaluations=FakeEvaluations(before=hold_the_first)) as http:
        got = answers(await http.post("/evaluate/batch", content=content, headers=headers))
    assert [answer["prediction_id"] for answer in got] == [str(n) for n in range(45)]


async def test_one_bad_line_spoils_no_other(http: httpx.AsyncClient) -> None:
    lines = [
        item("a"),
        b"{",
        item("", label="x"),
        b"\xff",
        item("b"),
        b"",
        item("c", x=float("nan")),
        b"[" * 500,
        item("d"),
    ]
    got = answers(await http.post("/evaluate/batch", content=b"\r\n".join(lines), headers=NDJSON))
    assert [answer.get("prediction_id", answer.get("line")) for answer in got] == ["a", 2, 3, 4, "b", 7, 8, "d"]
    problems = [answer["problem"] for answer in got if "problem" in answer]
    assert [problem["status"] for problem in problems] == [400, 422, 400, 422, 400]
    assert problems[1]["errors"] == [{"pointer": "/id", "message": "String should have at least 1 character"}]
    assert problems[1]["instance"] == "/evaluate/batch#3"


async def test_one_bad_element_of_an_array_spoils_no_other(http: httpx.AsyncClient) -> None:
    content = b"\xef\xbb\xbf [ " + b" , ".join([item("a"), b'{"a":1,"a":2}', b"", b"nonsense", item("b")]) + b" ] \n"
    got = answers(await http.post("/evaluate/batch", content=content, headers=JSON))
    assert [answer.get("prediction_id", answer.get("line")) for answer in got] == ["a", 2, 3, 4, "b"]


async def test_a_failure_of_ours_is_the_items_own(api) -> None:
    async def fail(request: EvaluateRequest) -> None:
        if request.id == "b":
            raise RuntimeError("hunter2")
        if request.id == "c":
            raise Overloaded

    async with api(evaluations=FakeEvaluations(before=fail)) as http:
        response = await http.post("/evaluate/batch", content=b"\n".join(map(item, "abcd")), headers=NDJSON)
    assert [answer.get("problem", {}).get("status") for answer in answers(response)] == [None, 500, 503, None]
    assert "hunter2" not in response.text


@pytest.mark.parametrize(
    ("headers", "content", "status"),
    [
        pytest.param(NDJSON, b"", 422, id="empty"),
        pytest.param(NDJSON, b"\n \n", 422, id="blank"),
        pytest.param(JSON, b"[]", 422, id="empty array"),
        pytest.param(JSON, b"", 400, id="no array"),
        pytest.param(JSON, b'{"id": 1}', 400, id="an object"),
        pytest.param(JSON, b"[1, 2", 400, id="no end"),
        pytest.param(JSON, b'["', 400, id="a string without an end"),
        pytest.param(JSON, b"[1] [2]", 400, id="two arrays"),
        pytest.param(NDJSON, b"1\n" * 51, 413, id="too many lines"),
        pytest.param(JSON, b"[" + b"1," * 50 + b"1]", 413, id="too many elements"),
        pytest.param(NDJSON, b" " * 200_001, 413, id="too many bytes"),
        pytest.param({"content-type": "text/csv"}, b"a", 415, id="another content type"),
    ],
)
async def test_a_batch_that_makes_no_sense_is_refused(http: httpx.AsyncClient, headers, content, status) -> None:
    response = await http.post("/evaluate/batch", content=content, headers=headers)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"


async def test_an_item_over_the_limit_of_one_evaluation_is_refused_alone(http: httpx.AsyncClient) -> None:
    content = b"\n".join([item("a"), item("b", metadata={"x": "y" * 30_000}), item("c")])
    got = answers(await http.post("/evaluate/batch", content=content, headers=NDJSON))
    assert [answer.get("problem", {}).get("status") for answer in got] == [None, 413, None]


async def test_a_batch_for_later_tells_what_was_refused(http: httpx.AsyncClient) -> None:
    content = b"\n".join([item("a"), b"{", item("b")])
    response = await http.post("/evaluate/batch", content=content, headers={**NDJSON, **LATER})
    assert response.status_code == 202
    accepted = response.json()
    assert response.headers["location"] == f"/batches/{accepted['batch_id']}"
    assert accepted["n_accepted"] == 2
    assert [problem["line"] for problem in accepted["problems"]] == [2]
    status = (await http.get(response.headers["location"])).json()
    assert status["evaluation_ids"] == accepted["evaluation_ids"]


async def test_a_batch_for_later_without_one_good_item_is_refused(http: httpx.AsyncClient) -> None:
    response = await http.post("/evaluate/batch", content=b"{\n[]", headers={**NDJSON, **LATER})
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == ["/0", "/1"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(json_values, min_size=1, max_size=8), st.sampled_from([None, 1]), st.booleans())
def test_an_array_is_cut_where_its_elements_end(values: list, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    items = index_items(text, array=True, limit=8)
    assert [json.loads(text[each.start : each.end].decode("utf-8", "surrogatepass")) for each in items] == values
    assert [each.number for each in items] == list(range(1, len(values) + 1))


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_cut_or_refused(text: bytes, array: bool) -> None:
    try:
        items = index_items(text, array=array, limit=5)
    except ServiceError:
        return
    assert 1 <= len(items) <= 5
    assert all(0 <= each.start <= each.end <= len(text) for each in items)
