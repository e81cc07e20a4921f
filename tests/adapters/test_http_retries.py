"""When a call is sent again, and how long it waits first."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from adapters.breaker import CircuitBreaker
from adapters.http import DAILY_QUOTA, Reply
from adapters.limits import OverBudget
from layers.errors import CircuitOpen, DependencyError, DependencyUnavailable
from tests.adapters.support import Rig, replies

pytestmark = pytest.mark.anyio

OK = httpx.Response(200, json={"a": 1})
HTML = httpx.Response(200, text="<html>")


def patient(rig: Rig) -> Rig:
    """With a breaker that does not open while a rule about attempts is looked at."""
    rig.client = rig.client.guarded_by(CircuitBreaker("remote", minimum_calls=100))
    return rig


@pytest.mark.parametrize(
    ("first", "sent"),
    [
        pytest.param(httpx.ConnectError("x"), 2, id="refused"),
        pytest.param(httpx.ReadTimeout("x"), 2, id="timeout"),
        pytest.param(httpx.Response(429), 2, id="429"),
        pytest.param(httpx.Response(503), 2, id="503"),
        pytest.param(httpx.Response(400), 1, id="400"),
        pytest.param(HTML, 1, id="garbage"),
    ],
)
async def test_only_what_may_pass_is_sent_again(first: Any, sent: int) -> None:
    rig = Rig(replies(first, OK))
    if sent == 1:
        with pytest.raises(DependencyError):
            await rig.get()
    else:
        assert await rig.get() == {"a": 1}
    assert len(rig.requests) == sent


async def test_a_call_is_sent_attempts_times_and_the_last_error_stands() -> None:
    rig = patient(Rig(replies(httpx.Response(500), httpx.ReadTimeout("x"), httpx.Response(503))))
    with pytest.raises(DependencyUnavailable) as caught:
        await rig.get()
    assert len(rig.requests) == 3
    assert caught.value.detail["status"] == 503


async def test_back_off_is_full_jitter_below_a_doubling_ceiling() -> None:
    waits: list[list[float]] = []
    for _ in range(60):
        rig = patient(Rig(replies(httpx.Response(500)), options={"attempts": 4}))
        with pytest.raises(DependencyUnavailable):
            await rig.get()
        waits.append(rig.clock.slept)
    for position, ceiling in enumerate((0.25, 0.5, 1.0)):
        column = [row[position] for row in waits]
        assert max(column) <= ceiling
        assert max(column) > ceiling * 0.6
        assert min(column) < ceiling * 0.4


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        pytest.param({"retry-after": "2"}, 2, id="seconds"),
        pytest.param({"retry-after": "Thu, 01 Jan 2026 00:00:05 GMT"}, 5, id="date"),
        pytest.param(
            {"retry-after": "Mon, 01 Jan 2024 00:00:03 GMT", "date": "Mon, 01 Jan 2024 00:00:00 GMT"}, 3, id="own clock"
        ),
        pytest.param({"retry-after": "Thu, 01 Jan 1970 00:00:05 GMT"}, 0, id="past date"),
        pytest.param({"retry-after": "-3"}, 0, id="negative"),
        pytest.param({"retry-after": "soon"}, 0, id="unreadable"),
        pytest.param({"retry-after": "nan"}, 0, id="NaN"),
        pytest.param({"retry-after": "inf"}, 0, id="Infinity"),
        pytest.param({"retry-after": "Thu, 01 Jan 2026 00:00:05 -0000"}, 5, id="date without a zone"),
        pytest.param({"retry-after": "Thu, 99 Foo 2026 99:99:99 GMT"}, 0, id="no date"),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_obeyed(status: int, headers: dict[str, str], seconds: float) -> None:
    rig = Rig(replies(httpx.Response(status, headers=headers), OK))
    assert await rig.get() == {"a": 1}
    assert seconds <= rig.clock.now <= seconds + 0.25


async def test_a_retry_after_beyond_the_deadline_fails_at_once() -> None:
    rig = Rig(replies(httpx.Response(429, headers={"retry-after": "30"}), OK))
    with pytest.raises(DependencyUnavailable) as caught:
        await rig.get()
    assert (caught.value.kind, caught.value.retry_after, rig.clock.now) == ("rate_limited", 30, 0)


async def test_no_attempt_begins_after_the_deadline() -> None:
    rig = Rig(replies(httpx.Response(503, headers={"retry-after": "2"}), OK))
    with pytest.raises(DependencyUnavailable):
        await rig.get(deadline=1.5)
    assert len(rig.requests) == 1


async def test_a_429_holds_back_other_calls_too() -> None:
    rig = Rig(replies(httpx.Response(429, headers={"retry-after": "30"}), OK))
    with pytest.raises(DependencyUnavailable):
        await rig.get()
    with pytest.raises(OverBudget) as caught:
        await rig.get()
    assert len(rig.requests) == 1
    assert caught.value.retry_after == 30
    assert rig.breaker.snapshot().calls == 1


async def test_a_delay_in_the_body_wins_over_the_header() -> None:
    def hook(reply: Reply) -> float | None:
        return float(reply.json()["retryDelay"].removesuffix("s"))

    first = httpx.Response(429, json={"retryDelay": "4.5s"}, headers={"retry-after": "1"})
    rig = Rig(replies(first, OK), options={"retry_after_from": hook})
    await rig.get()
    assert 4.5 <= rig.clock.now <= 4.75


async def test_a_body_the_hook_cannot_read_leaves_the_header() -> None:
    first = httpx.Response(429, text="<html>", headers={"retry-after": "3"})
    rig = Rig(replies(first, OK), options={"retry_after_from": lambda reply: reply.json()["x"]})
    await rig.get()
    assert 3 <= rig.clock.now <= 3.25


async def test_a_daily_quota_is_not_tried_again_and_opens_the_breaker_at_once() -> None:
    rig = Rig(replies(httpx.Response(429), OK), options={"retry_after_from": lambda _reply: DAILY_QUOTA})
    with pytest.raises(DependencyUnavailable) as caught:
        await rig.get()
    assert (caught.value.detail["quota"], caught.value.retry_after) == ("daily", None)
    assert rig.breaker.state() == "open"
    assert rig.limiter.snapshot().paused_for == 0  # it is one driver's quota, not the remote's
    with pytest.raises(CircuitOpen) as refused:
        await rig.get()
    assert refused.value.retry_after == 3600
    assert len(rig.requests) == 1


@pytest.mark.parametrize(
    ("first", "sent"),
    [
        pytest.param(httpx.ConnectError("x"), 2, id="never connected"),
        pytest.param(httpx.ConnectTimeout("x"), 2, id="connect time-out"),
        pytest.param(httpx.Response(429), 2, id="throttled"),
        pytest.param(httpx.ReadTimeout("x"), 1, id="it may have been done"),
        pytest.param(httpx.ReadError("x"), 1, id="cut off"),
        pytest.param(httpx.Response(500), 1, id="500"),
    ],
)
async def test_what_is_not_repeatable_goes_out_again_only_if_nothing_was_done(first: Any, sent: int) -> None:
    rig = Rig(replies(first, OK))
    try:
        await rig.get(repeatable=False)
    except DependencyError:
        assert sent == 1
    assert len(rig.requests) == sent


async def test_a_circuit_that_opens_between_attempts_leaves_the_real_cause() -> None:
    rig = Rig(replies(httpx.Response(500), httpx.Response(502), httpx.Response(503)), options={"attempts": 5})
    with pytest.raises(DependencyUnavailable) as caught:
        await rig.get()
    assert caught.value.detail["status"] == 503
    assert len(rig.requests) == 3
    with pytest.raises(CircuitOpen):
        await rig.get()
