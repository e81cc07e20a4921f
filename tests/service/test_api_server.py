"""What only a real server shows: connections that survive a refusal, answers that flow, callers that hang up."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain, repeat

import anyio
import httpx
import pytest
import uvicorn

from app.evaluation.model import EvaluateRequest
from app.main import create_app
from tests.fakes import FakeEvaluations, connect_to, fake_services

pytestmark = pytest.mark.anyio

BODY = {"id": "1", "system": "generic", "raw_output": {}, "label": "low", "confidence": 0.9}
JSON = "Content-Type: application/json\r\n"


@asynccontextmanager
async def served(settings, http: str = "httptools", **parts) -> AsyncIterator[int]:
    """The port of a server over fakes; it takes connections at once and answers them when it is up."""
    app = create_app(settings, connect_to(fake_services(settings, **parts)))
    server = uvicorn.Server(uvicorn.Config(app, http=http, lifespan="on", log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with anyio.create_task_group() as group:
            group.start_soon(server.serve, [listener])
            yield listener.getsockname()[1]
            server.should_exit = True


async def read_answer(stream: anyio.abc.SocketStream) -> tuple[int, bytes]:
    """One answer with a Content-Length: its status and body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        body += await stream.receive()
    return int(head[9:12]), body


@pytest.mark.parametrize("http", ["httptools", "h11"])
@pytest.mark.parametrize("announced", [True, False])
async def test_after_a_refused_body_the_connection_can_be_used_again(settings, http: str, announced: bool) -> None:
    """The caller gets its 413, and no part of the body that was not read is taken for a request."""
    async with served(settings, http) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        large = b"x" * 3_000_000
        framing = f"Content-Length: {len(large)}" if announced else "Transfer-Encoding: chunked"
        head = f"POST /evaluate HTTP/1.1\r\nHost: localhost\r\n{JSON}{framing}\r\n\r\n".encode()
        body = large if announced else f"{len(large):x}\r\n".encode() + large + b"\r\n0\r\n\r\n"
        with anyio.fail_after(10):
            await stream.send(head + body)
            status, problem = await read_answer(stream)
            assert (status, json.loads(problem)["type"]) == (413, "/problems/too-large")
            await stream.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await read_answer(stream) == (200, b'{"status":"ok"}')


async def test_a_caller_that_waits_to_be_asked_is_refused_at_once(settings) -> None:
    """`Expect: 100-continue` with too large a length is answered without asking for the body."""
    async with served(settings) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        length = "Content-Length: 999999999\r\nExpect: 100-continue\r\n"
        head = f"POST /evaluate HTTP/1.1\r\nHost: localhost\r\n{JSON}{length}\r\n"
        await stream.send(head.encode())
        with anyio.fail_after(10):
            assert (await read_answer(stream))[0] == 413


async def test_a_batch_is_answered_while_it_is_worked_on(settings) -> None:
    """The first answers are there before the last item is done."""
    release = anyio.Event()

    async def hold_the_last(request: EvaluateRequest) -> None:
        if request.id == "last":
            await release.wait()

    lines = "\n".join(json.dumps({**BODY, "id": name}) for name in ("first", "second", "last"))
    async with (
        served(settings, evaluations=FakeEvaluations(before=hold_the_last)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
        http.stream(
            "POST", "/evaluate/batch", content=lines, headers={"content-type": "application/x-ndjson"}
        ) as response,
    ):
        with anyio.fail_after(10):
            answers = response.aiter_lines()
            assert json.loads(await anext(answers))["prediction_id"] == "first"
            release.set()
            assert [json.loads(line)["prediction_id"] async for line in answers] == ["second", "last"]


async def test_hanging_up_cancels_the_evaluation(settings) -> None:
    started, cancelled = anyio.Event(), anyio.Event()

    async def wait_for_ever(_: EvaluateRequest) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    text = json.dumps(BODY)
    async with served(settings, evaluations=FakeEvaluations(before=wait_for_ever)) as port:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            head = f"POST /evaluate HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: {len(text)}\r\n\r\n"
            await stream.send((head + text).encode())
            await started.wait()
        with anyio.fail_after(10):
            await cancelled.wait()


async def test_records_flow_to_the_last(settings) -> None:
    examples = [{"id": str(n), "expected_label": "low"} for n in range(2_000)]
    async with served(settings) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        run = (await http.post("/runs", json={"system": "recorded", "dataset": {"examples": examples}})).json()
        response = await http.get(run["links"]["records"], headers={"accept": "application/x-ndjson"})
    assert [json.loads(line)["example_id"] for line in response.text.splitlines()] == [str(n) for n in range(2_000)]


@pytest.mark.parametrize("path", ["/evaluate", "/datasets"])
async def test_a_body_that_stops_coming_is_given_up(settings, path: str) -> None:
    """Who announces a body and sends no more of it is told so, and holds no connection for ever."""
    server = settings.server.model_copy(update={"body_timeout": 0.05})
    impatient = settings.model_copy(update={"server": server})
    async with served(impatient) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: 100\r\n\r\n{{".encode())
        with anyio.fail_after(10):
            status, body = await read_answer(stream)
        with anyio.fail_after(10), pytest.raises(anyio.EndOfStream):
            await stream.receive()  # nor does who goes on dripping
    assert status == 408
    assert json.loads(body)["type"] == "/problems/too-slow"


FILE = b'--b\r\nContent-Disposition: form-data; name="dataset"; filename="d.csv"\r\n\r\n'


@pytest.mark.parametrize(
    ("path", "kind", "begin"),
    [
        ("/evaluate", b"application/json", b""),
        ("/evaluate/batch", b"application/x-ndjson", b""),
        ("/datasets", b"text/csv", b""),
        ("/runs", b"multipart/form-data; boundary=b", FILE),
    ],
)
async def test_a_body_that_drips_is_given_up(settings, path: str, kind: bytes, begin: bytes) -> None:
    """However it is read, it comes at a least rate on the whole: else a byte now and then would hold a connection."""
    changes = {"body_timeout": 0.05, "body_min_rate": 10**9, "max_body_bytes": 10**9, "max_upload_bytes": 10**9}
    patient = settings.model_copy(update={"server": settings.server.model_copy(update=changes)})
    app = create_app(patient, connect_to(fake_services(patient)))
    said: list[dict] = []
    pieces = chain([begin], repeat(b" "))

    async def drip() -> dict:
        await anyio.lowlevel.checkpoint()
        return {"type": "http.request", "body": next(pieces), "more_body": True}

    async def hear(message: dict) -> None:
        said.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "root_path": ""}
    headers = [(b"host", b"localhost"), (b"content-type", kind)]
    async with app.router.lifespan_context(app) as state:
        with anyio.fail_after(10):
            await app({**scope, "query_string": b"", "headers": headers, "state": dict(state or {})}, drip, hear)
    assert said[0]["status"] == 408
    assert (b"connection", b"close") in said[0]["headers"]
