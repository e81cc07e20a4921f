"""`/runs`: JSON and uploads, refusals that name the field, idempotency, records by `Accept`."""

from __future__ import annotations

import json

import httpx
import pytest

from app.api.negotiation import negotiate
from app.errors import NotAcceptable

pytestmark = pytest.mark.anyio

REQUEST = {"system": "recorded"}


def example(name: str | None = None, label: str = "low") -> dict:
    prediction = {"id": name or "p", "raw_output": {}, "label": label, "confidence": 1}
    return {**({"id": name} if name else {}), "expected_label": "low", "prediction": prediction}


def form(
    dataset: bytes | None, name: str = "d.ndjson", request: object = REQUEST, content_type: str | None = None
) -> dict:
    files = []
    if dataset is not None:
        files.append(("dataset", (name, dataset, *([content_type] if content_type else []))))
    if request is not None:
        files.append(("request", (None, request if isinstance(request, bytes) else json.dumps(request))))
    return {"files": files}


async def submit(http: httpx.AsyncClient, examples: list, **headers: str) -> httpx.Response:
    return await http.post("/runs", json={**REQUEST, "dataset": {"examples": examples}}, headers=headers)


async def test_a_run_is_accepted_and_found_again(http: httpx.AsyncClient) -> None:
    response = await submit(http, [example("a"), example("b", "high")])
    assert response.status_code == 202
    run = response.json()
    assert response.headers["location"] == f"/runs/{run['run_id']}"
    assert (await http.get(response.headers["location"])).json() == run
    assert [each["run_id"] for each in (await http.get("/runs")).json()["items"]] == [run["run_id"]]
    report = (await http.get(run["links"]["report"])).json()
    assert (report["total"], report["correct"], report["accuracy"]) == (2, 1, 0.5)


@pytest.mark.parametrize(
    ("name", "content", "content_type"),
    [
        ("d.json", json.dumps({"examples": [example("a"), example("b")]}).encode(), None),
        ("d.json", json.dumps([example("a"), example("b")]).encode(), None),
        ("d.ndjson", b"\n".join(json.dumps(example(name)).encode() for name in "ab"), None),
        ("d.jsonl", b"\xef\xbb\xbf" + b"\r\n".join(json.dumps(example(name)).encode() for name in "ab"), None),
        ("d.csv", b"id,expected_label,input.amount\na,low,1\nb,high,2\n", None),
        ("whatever", b"id,expected_label,input.amount\na,low,1\nb,high,2\n", "text/csv; charset=utf-8"),
    ],
)
async def test_a_dataset_can_be_uploaded(http: httpx.AsyncClient, name, content, content_type) -> None:
    response = await http.post("/runs", **form(content, name, content_type=content_type))
    assert response.status_code == 202, response.text
    records = (await http.get(response.json()["links"]["records"])).json()["items"]
    assert [record["example_id"] for record in records] == ["a", "b"]


async def test_the_request_may_be_a_file_too(http: httpx.AsyncClient) -> None:
    files = {
        "dataset": ("d.ndjson", json.dumps(example("a"))),
        "request": ("r.json", json.dumps(REQUEST), "application/json"),
    }
    assert (await http.post("/runs", files=files)).status_code == 202


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        pytest.param({"dataset": {"examples": []}}, "/system", id="no system"),
        pytest.param({**REQUEST}, "/dataset", id="no dataset"),
        pytest.param({**REQUEST, "dataset": {}, "dataset_id": "sha256:" + "0" * 64}, "/dataset", id="two datasets"),
        pytest.param({**REQUEST, "dataset_id": "latest"}, "/dataset_id", id="bad dataset id"),
        pytest.param({**REQUEST, "dataset": {"examples": []}}, "/dataset/examples", id="empty dataset"),
        pytest.param(
            {**REQUEST, "dataset": {"examples": [example(), {}]}}, "/dataset/examples/1/expected_label", id="no label"
        ),
        pytest.param({**REQUEST, "dataset": {"examples": [], "name": "x"}}, None, id="unknown field of the dataset"),
        pytest.param({**REQUEST, "url": "http://elsewhere"}, "/url", id="unknown field"),
        pytest.param({**REQUEST, "options": {"limit": 0}, "dataset": {}}, "/options/limit", id="bad option"),
        pytest.param({**REQUEST, "options": {"limit": "5"}, "dataset": {}}, "/options/limit", id="number as text"),
        pytest.param([], "", id="a list"),
    ],
)
async def test_a_run_that_makes_no_sense_is_refused_by_name(http: httpx.AsyncClient, body, pointer) -> None:
    response = await http.post("/runs", json=body)
    assert response.status_code == 422, response.text
    if pointer is not None:
        assert response.json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("uploaded", [False, True])
async def test_an_option_beside_the_options_is_told_where_it_belongs(http: httpx.AsyncClient, uploaded: bool) -> None:
    stray = {**REQUEST, "concurrency": 8, "nonsense": 1}
    if uploaded:
        response = await http.post("/runs", **form(b"{}", request=stray))
    else:
        response = await http.post("/runs", json={**stray, "dataset": {"examples": [example()]}})
    problem = response.json()
    assert response.status_code == 422
    assert problem["detail"] == '`concurrency` belongs inside `options`: write {"options": {"concurrency": ...}}'
    said = {error["pointer"]: error["message"] for error in problem["errors"]}
    assert set(said) == {"/concurrency", "/nonsense"}
    assert "inside `options`" in said["/concurrency"]
    assert "options" not in said["/nonsense"]


async def test_an_empty_dataset_has_a_type_of_its_own(http: httpx.AsyncClient) -> None:
    assert (await submit(http, [])).json()["type"] == "/problems/empty-dataset"
    assert (await http.post("/runs", **form(b""))).json()["type"] == "/problems/empty-dataset"


async def test_duplicate_ids_are_listed(http: httpx.AsyncClient) -> None:
    lines = [json.dumps(example(name)).encode() for name in ("a", "b", "a", "b", "c")]
    for response in (
        await submit(http, [example(name) for name in ("a", "b", "a", "b", "c")]),
        await http.post("/runs", **form(b"\n".join(lines))),
    ):
        assert response.status_code == 422
        assert response.json()["type"] == "/problems/duplicate-example-id"
        assert "'a', 'b'" in response.json()["detail"]


@pytest.mark.parametrize(
    ("parts", "status", "said"),
    [
        pytest.param(form(b"id,input.amount\na,1\n", "d.csv"), 422, "expected_label", id="CSV without a column"),
        pytest.param(form(b"expected_label\nx\xff\n", "d.csv"), 422, "UTF-8", id="undecodable CSV"),
        pytest.param(form(b"{", "d.ndjson"), 422, "line 1", id="bad line"),
        pytest.param(form(b'{"examples": [', "d.json"), 422, "", id="cut off"),
        pytest.param(form(b"x", "d.xlsx"), 422, ".csv", id="another format"),
        pytest.param(form(None), 422, "dataset", id="no dataset"),
        pytest.param(form(b"{}", request=None), 422, "request", id="no request"),
        pytest.param(form(b"{}", request=b"{"), 400, "line 1", id="request is no JSON"),
        pytest.param(
            form(b"{}", request={**REQUEST, "dataset_id": "sha256:" + "0" * 64}), 422, "dataset", id="two datasets"
        ),
        pytest.param(form(b"{}", request=b" " * 1_100_000), 413, "", id="request too large"),
        pytest.param(form(b" " * 300_000), 413, "200,000", id="dataset too large"),
        pytest.param({"files": [*form(b"{}")["files"], ("extra", (None, "1"))]}, 422, "extra", id="unknown part"),
        pytest.param(
            {"files": [*form(b"{}")["files"], ("request", (None, "1"))]}, 422, "request", id="part given twice"
        ),
    ],
)
async def test_a_bad_upload_is_a_problem(http: httpx.AsyncClient, parts: dict, status: int, said: str) -> None:
    response = await http.post("/runs", **parts)
    assert response.status_code == status, response.text
    assert said in response.json()["detail"]


@pytest.mark.parametrize(
    ("content_type", "content"),
    [
        ("multipart/form-data", b"--x--"),
        ("multipart/form-data; boundary=", b"--x--"),
        ("multipart/form-data; boundary=x", b"nonsense"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--"),
        ("multipart/form-data; boundary=x", b"--x\r\n: \r\n\r\n--x--"),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="dataset"; filename="a.csv"\r\n\r\nabc',
        ),
        ("multipart/form-data; boundary=" + "x" * 5_000, b""),
        (
            "multipart/form-data; boundary=x; charset=idna",
            b'--x\r\nContent-Disposition: form-data; name="\xff"\r\n\r\n1\r\n--x--',
        ),
        ("multipart/form-data; boundary=x", b"--x\r\n" + b"a: b\r\n" * 2_000 + b"\r\n--x--"),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="\xff\x00"\r\n\r\n1\r\n--x--',
        ),
    ],
)
async def test_a_broken_form_is_a_problem(http: httpx.AsyncClient, content_type: str, content: bytes) -> None:
    response = await http.post("/runs", content=content, headers={"content-type": content_type})
    assert response.status_code in {400, 415, 422}, response.text
    assert response.headers["content-type"] == "application/problem+json"


async def test_the_same_key_makes_one_run(http: httpx.AsyncClient) -> None:
    key = {"idempotency-key": "nightly-1"}
    first = await submit(http, [example("a")], **key)
    again = await submit(http, [example("a")], **key)
    assert again.json() == first.json()
    assert (await submit(http, [example("b")], **key)).status_code == 422


async def test_an_upload_is_recognised_whatever_its_boundary(http: httpx.AsyncClient) -> None:
    runs = [
        await http.post("/runs", **form(b'{"expected_label": "x"}'), headers={"idempotency-key": "k"}) for _ in "12"
    ]
    assert runs[0].request.headers["content-type"] != runs[1].request.headers["content-type"]
    assert runs[0].json()["run_id"] == runs[1].json()["run_id"]


@pytest.mark.parametrize("key", [b"", b"a b", b"\xff", b"x" * 256])
async def test_a_bad_idempotency_key_is_refused(http: httpx.AsyncClient, key: bytes) -> None:
    headers = {b"idempotency-key": key, b"content-type": b"application/json"}
    assert (await http.post("/runs", content=b"{}", headers=headers)).status_code == 400


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("application/x-ndjson", "application/x-ndjson"),
        ("text/csv", "text/csv; charset=utf-8"),
        ("text/*;q=0.5, application/json;q=0.4", "text/csv; charset=utf-8"),
        ("application/json;q=0, */*;q=0.1", "application/x-ndjson"),
    ],
)
async def test_records_are_written_as_accepted(http: httpx.AsyncClient, accept: str | None, content_type: str) -> None:
    run = (await submit(http, [example("a"), example("b")])).json()
    headers = {} if accept is None else {"accept": accept}
    response = await http.get(run["links"]["records"], headers=headers)
    assert response.headers["content-type"] == content_type
    assert "a" in response.text


async def test_records_of_an_unknown_run_are_not_found_in_any_form(http: httpx.AsyncClient) -> None:
    for accept in ("application/json", "application/x-ndjson", "text/csv"):
        response = await http.get("/runs/01900000-0000-7000-8000-000000000000/records", headers={"accept": accept})
        assert response.status_code == 404


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "nonsense", "text/csv;q=x", ";", "*/*;q=0"])
def test_what_can_not_be_written_is_said(accept: str) -> None:
    with pytest.raises(NotAcceptable):
        negotiate({"headers": [(b"accept", accept.encode())]}, ("application/json", "text/csv"))


@pytest.mark.parametrize("steer", ["cancel", "pause", "resume"])
async def test_an_ended_run_can_not_be_steered(http: httpx.AsyncClient, steer: str) -> None:
    run = (await submit(http, [example("a")])).json()
    assert (await http.post(f"/runs/{run['run_id']}/{steer}")).status_code == 409
    assert (await http.post(f"/runs/x/{steer}")).status_code == 404
