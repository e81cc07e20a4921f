"""The client's rules over a fake transport: what every failure becomes, and what it does about it."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from typing import Any

import anyio
import httpx
import pytest

from adapters.breaker import CircuitBreaker
from adapters.http import CallEvent, JsonClient, Reply
from adapters.limits import Lane, OverBudget
from layers.errors import (
    CircuitOpen,
    DependencyError,
    DependencyMalformed,
    DependencyRejected,
    DependencyUnavailable,
)
from tests.adapters.support import Rig, replies

pytestmark = pytest.mark.anyio

OK = httpx.Response(200, json={"a": 1})


def body(content: bytes, **headers: str) -> httpx.Response:
    return httpx.Response(200, headers=headers, content=content)


def raises(error: type[httpx.HTTPError]) -> Any:
    return replies(error("http://user:secret@remote/"))  # type: ignore[call-arg]


FAILURES = [
    pytest.param(raises(httpx.ConnectError), DependencyUnavailable, "refused", id="refused"),
    pytest.param(raises(httpx.ConnectTimeout), DependencyUnavailable, "timeout", id="connect time-out"),
    pytest.param(raises(httpx.ReadTimeout), DependencyUnavailable, "timeout", id="read time-out"),
    pytest.param(raises(httpx.WriteTimeout), DependencyUnavailable, "timeout", id="write time-out"),
    pytest.param(raises(httpx.PoolTimeout), DependencyUnavailable, "timeout", id="pool time-out"),
    pytest.param(raises(httpx.ReadError), DependencyUnavailable, "disconnected", id="read error"),
    pytest.param(raises(httpx.WriteError), DependencyUnavailable, "disconnected", id="write error"),
    pytest.param(raises(httpx.CloseError), DependencyUnavailable, "disconnected", id="close error"),
    pytest.param(raises(httpx.ProxyError), DependencyUnavailable, "refused", id="proxy"),
    pytest.param(raises(httpx.RemoteProtocolError), DependencyMalformed, "malformed", id="not HTTP"),
    pytest.param(raises(httpx.LocalProtocolError), DependencyRejected, "rejected", id="our HTTP"),
    pytest.param(raises(httpx.UnsupportedProtocol), DependencyRejected, "rejected", id="scheme"),
    pytest.param(replies(httpx.Response(429)), DependencyUnavailable, "rate_limited", id="429"),
    pytest.param(replies(httpx.Response(500)), DependencyUnavailable, "server_error", id="500"),
    pytest.param(replies(httpx.Response(503)), DependencyUnavailable, "server_error", id="503"),
    pytest.param(replies(httpx.Response(400)), DependencyRejected, "rejected", id="400"),
    pytest.param(replies(httpx.Response(401)), DependencyRejected, "rejected", id="401"),
    pytest.param(replies(httpx.Response(404)), DependencyRejected, "rejected", id="404"),
    pytest.param(replies(httpx.Response(408)), DependencyRejected, "rejected", id="408"),
    pytest.param(
        replies(httpx.Response(302, headers={"location": "http://elsewhere/"})),
        DependencyRejected,
        "rejected",
        id="302",
    ),
    pytest.param(replies(body(b"<html>")), DependencyMalformed, "malformed", id="html"),
    pytest.param(replies(body(b"")), DependencyMalformed, "malformed", id="empty"),
    pytest.param(replies(body(b'{"a": 1')), DependencyMalformed, "malformed", id="half a value"),
    pytest.param(replies(body(b'{"a": NaN}')), DependencyMalformed, "malformed", id="NaN"),
    pytest.param(replies(body(b'{"a": 1e400}')), DependencyMalformed, "malformed", id="1e400"),
    pytest.param(replies(body(b'{"a": "\xff"}')), DependencyMalformed, "malformed", id="invalid UTF-8"),
    pytest.param(replies(body(b'{"a": "\\ud800"}')), DependencyMalformed, "malformed", id="lone surrogate"),
    pytest.param(replies(body(b"[" * 5000)), DependencyMalformed, "malformed", id="depth bomb"),
    pytest.param(replies(body(b'{"a": 1, "a": 2}')), DependencyMalformed, "malformed", id="duplicate key"),
    pytest.param(replies(body(b'"' + b"x" * 10_000 + b'"')), DependencyMalformed, "too_large", id="too large"),
]


@pytest.mark.parametrize(("handler", "error", "kind"), FAILURES)
async def test_every_failure_becomes_one_of_ours(handler: Any, error: type[DependencyError], kind: str) -> None:
    rig = Rig(handler, options={"attempts": 1})
    with pytest.raises(error) as caught:
        await rig.get()
    assert type(caught.value) is error
    assert (caught.value.kind, caught.value.dependency) == (kind, "remote")
    assert rig.breaker.snapshot().failures == int(error.counts)
    assert "secret" not in str(caught.value)
    assert "http://" not in str(caught.value)
    assert rig.limiter.snapshot().in_use == 0


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        pytest.param(b'\xef\xbb\xbf{"a": 1}', {}, id="byte order mark"),
        pytest.param(b'{"a": 1}', {"content-type": "text/plain"}, id="mislabelled"),
    ],
)
async def test_a_good_reply_is_read(content: bytes, headers: Mapping[str, str]) -> None:
    assert await Rig(replies(body(content, **headers))).get() == {"a": 1}


async def test_a_body_that_a_transport_has_read_already_is_taken_as_it_is() -> None:
    packed = gzip.compress(b'{"a": 1}')
    rig = Rig(lambda _request: httpx.Response(200, content=packed, headers={"content-encoding": "gzip"}))
    assert await rig.get() == {"a": 1}


async def test_a_body_that_a_transport_has_read_already_may_not_be_too_large_either() -> None:
    packed = gzip.compress(b'"' + b"x" * 10_000 + b'"')
    rig = Rig(lambda _request: httpx.Response(200, content=packed, headers={"content-encoding": "gzip"}))
    with pytest.raises(DependencyMalformed, match="larger than 10000 bytes"):
        await rig.get()


async def test_a_status_in_expect_is_handed_to_read() -> None:
    rig = Rig(replies(httpx.Response(422, json={"error": "no"}, headers={"Content-Type": "Application/JSON; a=b"})))

    def read(reply: Reply) -> tuple[int, str, str, Any]:
        return reply.status, reply.media_type, reply.headers["content-type"], reply.json()

    answer = await rig.client.call("POST", "http://remote/", read=read, expect={422})
    assert answer == (422, "application/json", "Application/JSON; a=b", {"error": "no"})


async def test_what_read_raises_of_ours_is_counted_by_its_class_and_a_bug_is_not() -> None:
    rig = Rig(replies(OK))

    def bug(_reply: Reply) -> None:
        raise KeyError("label")

    def garbage(_reply: Reply) -> None:
        raise DependencyMalformed("remote", "malformed")

    with pytest.raises(KeyError):
        await rig.client.call("GET", "http://remote/", read=bug)
    assert rig.breaker.snapshot().calls == 0
    with pytest.raises(DependencyMalformed):
        await rig.client.call("GET", "http://remote/", read=garbage)
    assert rig.breaker.snapshot().failures == 1


async def test_a_refusal_keeps_a_short_excerpt_without_secrets() -> None:
    def echo(request: httpx.Request) -> httpx.Response:
        text = f"bad key {request.headers['x-goog-api-key']}\r\n\x00 at https://me:pw@host/?key=AIza-abc123"
        return httpx.Response(403, text=text + "x" * 5000)

    rig = Rig(echo)
    with pytest.raises(DependencyRejected) as caught:
        await rig.get(headers={"x-goog-api-key": "s3cr3t-value", "authorization": "Bearer tok-en-123"})
    assert caught.value.detail["status"] == 403
    text = caught.value.detail["body"]
    assert text.startswith("bad key *** at https://***@host/?key=***")
    assert len(text) <= 300
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("Authorization: Bearer abc.def-ghi", "Authorization: Bearer ***", id="bearer"),
        pytest.param('{"api_key": "abcdefgh"}', '{"api_key": "***"}', id="json field"),
        pytest.param("tok-en-123 has expired", "*** has expired", id="the token that was sent"),
        pytest.param("a keyword is fine", "a keyword is fine", id="plain words"),
    ],
)
async def test_what_looks_like_a_secret_is_hidden(text: str, shown: str) -> None:
    rig = Rig(replies(httpx.Response(400, text=text)))
    with pytest.raises(DependencyRejected) as caught:
        await rig.get(headers={"authorization": "Bearer tok-en-123"})
    assert caught.value.detail["body"] == shown


# --- what goes out --------------------------------------------------------------------------------------------------


async def test_a_json_body_is_compact_utf8_as_it_stands() -> None:
    rig = Rig(replies(OK))
    await rig.get(json={"ключ": ["ä", 1.5, None]}, headers={"x-a": "b"})
    sent = rig.requests[0]
    assert sent.content == '{"ключ":["ä",1.5,null]}'.encode()
    assert (sent.headers["content-type"], sent.headers["x-a"]) == ("application/json", "b")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"], ids=["NaN", "Infinity", "lone surrogate"])
async def test_what_json_cannot_carry_is_never_sent_and_no_evidence(value: Any) -> None:
    rig = Rig(replies(OK))
    with pytest.raises(DependencyRejected):
        await rig.get(json={"a": value})
    assert rig.requests == []
    assert rig.breaker.snapshot().calls == 0


@pytest.mark.parametrize("value", ["ключ", "a\ud800"])
async def test_a_header_that_cannot_be_sent_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(DependencyRejected) as caught:
        await Rig(replies(OK)).get(headers={"x-key": value})
    assert value not in repr(caught.value)
    assert caught.value.__cause__ is None


async def test_trace_headers_are_added_to_every_call_and_not_to_the_callers_dict() -> None:
    rig = Rig(replies(OK), options={"propagate": lambda headers: headers.update(traceparent="00-1-2-01")})
    mine = {"x-a": "b"}
    await rig.get(headers=mine)
    assert rig.requests[0].headers["traceparent"] == "00-1-2-01"
    assert mine == {"x-a": "b"}


# --- budget, breaker, lanes -----------------------------------------------------------------------------------------


async def test_an_open_circuit_spends_no_turn() -> None:
    rig = Rig(replies(OK), rate=10)
    rig.breaker.open_for(30)
    with pytest.raises(CircuitOpen):
        await rig.get()
    assert rig.limiter.snapshot().used == 0


async def test_calls_that_wait_for_a_slot_do_not_go_out_once_the_circuit_has_opened() -> None:
    gate = anyio.Event()

    async def held(_request: httpx.Request) -> httpx.Response:
        await gate.wait()
        return httpx.Response(500)

    rig = Rig(held, slots=3, options={"attempts": 1})
    errors: list[str] = []

    async def caller() -> None:
        try:
            await rig.get()
        except DependencyError as exc:
            errors.append(exc.kind)

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(caller)
        await anyio.wait_all_tasks_blocked()
        gate.set()
    assert sorted(errors) == ["circuit_open"] * 7 + ["server_error"] * 3
    assert len(rig.requests) == 3


async def test_lanes_share_breaker_and_budget() -> None:
    rig = Rig(replies(OK), rate=10)
    run = rig.client.on("run")
    for _ in range(8):
        await run.call("GET", "http://remote/", read=Reply.json)
    with pytest.raises(OverBudget):
        await run.call("GET", "http://remote/", read=Reply.json)
    assert await rig.get() == {"a": 1}
    assert rig.breaker.snapshot().calls == 9


async def test_another_breaker_guards_the_same_remote_and_budget() -> None:
    rig = Rig(replies(httpx.Response(500)), rate=10, options={"attempts": 1})
    other = CircuitBreaker("remote.gemini", minimum_calls=1, clock=rig.clock)
    guarded: JsonClient = rig.client.guarded_by(other)
    with pytest.raises(DependencyUnavailable) as caught:
        await guarded.call("GET", "http://remote/", read=Reply.json)
    assert caught.value.dependency == "remote.gemini"
    assert (other.state(), rig.breaker.snapshot().calls) == ("open", 0)
    assert rig.limiter.snapshot().used == 1


async def test_cancellation_is_no_evidence_and_gives_slot_and_probe_back() -> None:
    async def never(_request: httpx.Request) -> httpx.Response:
        await anyio.sleep_forever()
        raise AssertionError

    rig = Rig(never)
    rig.breaker.open_for(5)
    rig.clock.now = 5
    async with anyio.create_task_group() as group:
        group.start_soon(rig.get)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert (rig.breaker.state(), rig.breaker.snapshot().calls) == ("half_open", 0)
    assert rig.limiter.snapshot().in_use == 0
    rig.handler = replies(OK)
    assert await rig.get() == {"a": 1}
    assert rig.breaker.state() == "closed"


async def test_the_total_time_out_is_evidence() -> None:
    async def never(_request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    rig = Rig(never, options={"timeout": 0.02, "attempts": 1})
    with pytest.raises(DependencyUnavailable) as caught:
        await rig.get()
    assert caught.value.kind == "timeout"
    assert rig.breaker.snapshot().failures == 1


async def test_a_deadline_that_has_passed_sends_nothing_and_is_no_evidence() -> None:
    rig = Rig(replies(OK), rate=10)
    rig.clock.now = 5
    with pytest.raises(OverBudget):
        await rig.get(deadline=5)
    assert rig.requests == []
    assert (rig.breaker.snapshot().calls, rig.limiter.snapshot().used) == (0, 0)


async def test_a_time_out_after_a_long_wait_in_our_own_queue_is_no_evidence() -> None:
    async def never(_request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    rig = Rig(never)
    rig.limiter.learn(429, {}, 3)
    with pytest.raises(OverBudget) as caught:
        await rig.get(deadline=3.02)
    assert caught.value.kind == "timeout"
    assert rig.breaker.snapshot().calls == 0


# --- what is told ---------------------------------------------------------------------------------------------------


async def test_every_attempt_is_told_with_its_kind_status_and_time() -> None:
    seen: list[CallEvent] = []
    first = httpx.Response(503, headers={"retry-after": "2"})
    rig = Rig(replies(first, httpx.ReadError("x"), OK), options={"observe": seen.append, "attempts": 4})
    lane: Lane = "run"
    await rig.client.on(lane).call("GET", "http://remote/", read=Reply.json)
    assert [(e.dependency, e.lane, e.attempt, e.kind, e.status) for e in seen] == [
        ("remote", "run", 1, "server_error", 503),
        ("remote", "run", 2, "disconnected", None),
        ("remote", "run", 3, "ok", 200),
    ]
    assert all(event.seconds >= event.queued >= 0 for event in seen)


async def test_waiting_for_the_budget_is_told_apart() -> None:
    seen: list[CallEvent] = []
    rig = Rig(replies(OK), options={"observe": seen.append})
    rig.limiter.learn(429, {}, 3)
    await rig.get()
    assert (seen[0].queued, seen[0].seconds) == (3, 3)


@pytest.mark.parametrize(("outcome", "kind"), [("bug", "bug"), ("open", "circuit_open"), ("cancelled", "cancelled")])
async def test_what_never_got_an_answer_is_told_too(outcome: str, kind: str) -> None:
    seen: list[CallEvent] = []
    rig = Rig(replies(OK), options={"observe": seen.append})
    if outcome == "open":
        rig.breaker.open_for(9)

    def read(_reply: Reply) -> None:
        raise KeyError("bug") if outcome == "bug" else asyncio.CancelledError

    with pytest.raises((KeyError, CircuitOpen, asyncio.CancelledError)):
        await rig.client.call("GET", "http://remote/", read=read)
    assert [event.kind for event in seen] == [kind]


async def test_a_broken_observer_breaks_no_call(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_event: CallEvent) -> None:
        raise RuntimeError("metrics are down")

    assert await Rig(replies(OK), options={"observe": broken}).get() == {"a": 1}
    assert "observer of calls to remote failed" in caplog.text


async def test_the_error_names_what_strict_json_refused() -> None:
    with pytest.raises(DependencyMalformed, match="HTTP 200 with a body that is not acceptable JSON: duplicate key"):
        await Rig(replies(body(json.dumps({"a": 1}).replace("}", ', "a": 2}').encode()))).get()
