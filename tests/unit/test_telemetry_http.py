"""Telemetry of requests: the callers' traces are continued, and only what matters leaves a span."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from adapters.breaker import CircuitBreaker
from adapters.http import CallEvent
from app.telemetry.gauges import QueueGauge
from app.telemetry.middleware import HttpTelemetry
from app.telemetry.place import trace_id_now
from app.wiring.hooks import show_breakers, telemetry_hooks
from layers.errors import DependencyUnavailable
from tests.telemetry.kit import Kit, cheap, escalated

pytestmark = pytest.mark.anyio
TRACE, SPAN = "1" * 32, "2" * 16


@pytest.fixture
def kit() -> Iterator[Kit]:
    made = Kit(trace_ratio=0.0)
    yield made
    made.telemetry.shutdown()


def route(path: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
    """A route that puts itself into the scope, as the service's own do."""

    async def placed(request: Request) -> Response:
        request.scope["route"] = made
        return await endpoint(request)

    made = Route(path, placed, methods=["GET", "POST"])
    return made


@pytest.fixture
async def http(kit: Kit) -> AsyncIterator[httpx.AsyncClient]:
    async def evaluate(request: Request) -> JSONResponse:
        (escalated if "flagged" in str(request.url) else cheap)(kit)
        return JSONResponse({"trace": trace_id_now()})

    async def broken(_: Request) -> JSONResponse:
        return JSONResponse({}, 503)

    async def events(_: Request) -> StreamingResponse:
        async def lines() -> AsyncIterator[bytes]:
            yield b"data: 1\n\n"
            assert kit.counts("arbiter_l8.sse.streams") == {("/runs/{id}/events",): 1}
            assert kit.points("http.server.active_requests") == []
            yield b"data: 2\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    routes = [
        route("/evaluate", evaluate),
        route("/evaluate/batch", evaluate),
        route("/broken", broken),
        route("/runs/{id}/events", events),
    ]
    app = FastAPI(routes=routes, openapi_url=None)
    wrapped = HttpTelemetry(app, kit.telemetry, kit.metrics)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(wrapped), base_url="http://test") as client:
        yield client


async def test_an_evaluation_continues_its_callers_trace(kit: Kit, http: httpx.AsyncClient) -> None:
    said = await http.post("/evaluate?flagged", headers={"traceparent": f"00-{TRACE}-{SPAN}-00"})
    spans = kit.by_name()
    request, evaluation = spans["POST /evaluate"], spans["evaluate_item"]
    assert f"{request.context.trace_id:032x}" == f"{evaluation.context.trace_id:032x}" == TRACE == said.json()["trace"]
    assert f"{request.parent.span_id:016x}" == SPAN
    assert request.parent.is_remote
    assert evaluation.parent.span_id == request.context.span_id


async def test_a_cheap_request_leaves_a_measurement_and_no_span(kit: Kit, http: httpx.AsyncClient) -> None:
    await http.post("/evaluate")
    assert kit.finished() == []
    (point,) = kit.points("http.server.request.duration")
    assert dict(point.attributes) == {
        "http.request.method": "POST",
        "http.route": "/evaluate",
        "http.response.status_code": 200,
    }


async def test_what_the_caller_keeps_is_kept(kit: Kit, http: httpx.AsyncClient) -> None:
    await http.post("/evaluate", headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
    assert set(kit.by_name()) == {"POST /evaluate", "evaluate_item", "heuristics_check"}


async def test_a_server_error_is_kept(kit: Kit, http: httpx.AsyncClient) -> None:
    await http.get("/broken")
    assert kit.by_name()["GET /broken"].attributes["error.type"] == "503"


async def test_a_batch_is_one_request_and_many_traces(kit: Kit, http: httpx.AsyncClient) -> None:
    await http.post("/evaluate/batch?flagged", headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
    spans = kit.by_name()
    request, evaluation = spans["POST /evaluate/batch"], spans["evaluate_item"]
    assert f"{request.context.trace_id:032x}" == TRACE
    assert evaluation.context.trace_id != request.context.trace_id
    assert evaluation.links[0].context.span_id == request.context.span_id


async def test_an_unknown_path_is_no_label(kit: Kit, http: httpx.AsyncClient) -> None:
    await http.get("/made/up/by/a/caller")
    assert {point.attributes["http.route"] for point in kit.points("http.server.request.duration")} == {"unknown"}


async def test_an_event_stream_is_counted_as_a_stream_and_not_as_a_slow_request(
    kit: Kit, http: httpx.AsyncClient
) -> None:
    await http.get("/runs/7/events")
    assert kit.points("http.server.request.duration") == []
    assert kit.counts("arbiter_l8.sse.streams") == {}
    assert kit.counts("arbiter_l8.sse.events") == {("/runs/{id}/events",): 2}
    assert kit.points("http.server.active_requests") == []


# --- dependencies -----------------------------------------------------------------------------------------------------


async def test_a_sick_dependency_is_told_once_per_change_and_not_per_call(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    hooks = telemetry_hooks(kit.metrics)
    breaker = CircuitBreaker("ollama.judge", clock=lambda: now, on_transition=hooks.on_transition)
    show_breakers(kit.metrics, {"ollama.judge": breaker})

    async def refuse() -> None:
        raise DependencyUnavailable("ollama.judge", "refused")

    async def answer() -> None:
        pass

    with caplog.at_level(logging.INFO, "arbiter.dependencies"):
        for _ in range(50):
            with pytest.raises(Exception, match="ollama"):
                await breaker.call(refuse)
        assert [(each.levelname, each.state) for each in caplog.records] == [("WARNING", "open")]
        assert kit.counts("arbiter_l8.breaker.state") == {("ollama.judge", "open"): 1}
        now = 31.0
        await breaker.call(answer)
    assert [(each.levelname, each.state) for each in caplog.records[1:]] == [("INFO", "half_open"), ("INFO", "closed")]
    assert kit.counts("arbiter_l8.breaker.transitions") == {
        ("ollama.judge", state): 1 for state in ("open", "half_open", "closed")
    }
    assert kit.counts("arbiter_l8.breaker.state") == {("ollama.judge", "closed"): 1}


def test_calls_to_remotes_are_counted_by_cause(kit: Kit) -> None:
    observe = telemetry_hooks(kit.metrics).observe
    assert observe is not None
    for kind in ("ok", "timeout", "never heard of"):
        observe(CallEvent("gemini", "evaluate", 1, kind, None, 0.5, 0.0))
    assert kit.counts("arbiter_l8.dependency.calls") == {("gemini", "evaluate"): 3}
    assert kit.counts("arbiter_l8.dependency.errors") == {("timeout", "gemini"): 1, ("other", "gemini"): 1}


async def test_a_queue_that_can_not_be_counted_is_told_once_and_shows_its_age(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    now, broken = 100.0, False

    async def backlog() -> int:
        if broken:
            raise ConnectionError
        return 7

    gauge = QueueGauge(kit.metrics, backlog, clock=lambda: now)
    assert kit.points("arbiter_l8.queue.depth") == []
    await gauge.look()
    broken, now = True, 160.0
    for _ in range(5):
        await gauge.look()
    assert kit.counts("arbiter_l8.queue.depth") == {("evaluations",): 7}
    assert kit.counts("arbiter_l8.queue.observed_age") == {("evaluations",): 60.0}
    assert len(caplog.records) == 1
