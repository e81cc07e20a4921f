"""The circuit breaker's rules, one test each."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import anyio
import pytest

from adapters.breaker import BreakerRegistry, CircuitBreaker, Permit, Transition
from adapters.outcomes import OutcomeWindow
from layers.errors import (
    CircuitOpen,
    DependencyError,
    DependencyMalformed,
    DependencyRejected,
    DependencyUnavailable,
    ToolFailed,
    VerdictNotOffered,
)
from tests.adapters.support import START, FakeClock

pytestmark = pytest.mark.anyio


def make(clock: FakeClock, **options: Any) -> CircuitBreaker:
    given = {"window": 60, "minimum_calls": 4, "failure_share": 0.5, "recovery_timeout": 30}
    return CircuitBreaker("remote", clock=clock, wall=clock.wall, **{**given, **options})


async def good() -> str:
    return "answer"


def bad(error: Exception | None = None) -> Any:
    async def fail() -> str:
        raise error or DependencyUnavailable("remote", "timeout")

    return fail


async def feed(breaker: CircuitBreaker, outcomes: str) -> None:
    """One call for each letter: `.` goes well, `x` fails."""
    for letter in outcomes:
        if letter == ".":
            await breaker.call(good)
        else:
            with pytest.raises(DependencyUnavailable):
                await breaker.call(bad())


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        pytest.param("xxx", "closed", id="below the minimum volume"),
        pytest.param("xxxx", "open", id="all failed"),
        pytest.param("..xx", "open", id="exactly the share"),
        pytest.param("...xx", "closed", id="below the share"),
        pytest.param("xxx.", "closed", id="a success never opens"),
    ],
)
async def test_opens_at_the_failure_share_once_the_minimum_volume_is_reached(outcomes: str, state: str) -> None:
    breaker = make(FakeClock())
    await feed(breaker, outcomes)
    assert breaker.state() == state


async def test_outcomes_older_than_the_window_are_forgotten() -> None:
    clock = FakeClock()
    breaker = make(clock)
    await feed(breaker, "xxx")
    clock.now = 60
    await feed(breaker, "x")
    assert breaker.state() == "closed"
    assert breaker.snapshot().calls == 1


def test_memory_is_flat_under_load() -> None:
    """A hundred thousand calls in a window keep no hundred thousand entries."""
    window = OutcomeWindow(60)
    for call in range(100_000):
        window.add(call * 0.0005, failed=call % 2 == 0)
    assert window.counts(50) == (100_000, 50_000)
    assert len(window) <= 61


@pytest.mark.parametrize(
    ("error", "state"),
    [
        pytest.param(DependencyMalformed("remote", "malformed"), "open", id="garbage counts"),
        pytest.param(ToolFailed("remote", "tool_failed"), "open", id="a failed tool counts"),
        pytest.param(DependencyRejected("remote", "rejected"), "closed", id="our own mistake does not"),
        pytest.param(VerdictNotOffered("remote", "not_a_label"), "closed", id="what a model says does not"),
        pytest.param(CircuitOpen("other"), "closed", id="another circuit does not"),
        pytest.param(KeyError("bug"), "closed", id="our own bug does not"),
        pytest.param(asyncio.CancelledError(), "closed", id="cancellation does not"),
    ],
)
async def test_only_what_counts_is_evidence(error: BaseException, state: str) -> None:
    breaker = make(FakeClock())
    for _ in range(6):
        with pytest.raises((type(error), CircuitOpen)):
            await breaker.call(bad(error))
    assert breaker.state() == state
    assert breaker.snapshot().failures == (4 if state == "open" else 0)


async def test_open_refuses_and_says_for_how_long() -> None:
    clock = FakeClock()
    breaker = make(clock)
    await feed(breaker, "xxxx")
    clock.now = 12
    with pytest.raises(CircuitOpen) as caught:
        await breaker.call(good)
    assert caught.value.retry_after == 18


async def test_half_open_lets_one_probe_through_and_no_other() -> None:
    clock = FakeClock()
    breaker = make(clock)
    await feed(breaker, "xxxx")
    clock.now = 30
    release, sent, refused = anyio.Event(), [], []

    async def slow() -> str:
        sent.append(1)
        await release.wait()
        return "answer"

    async def caller() -> None:
        try:
            await breaker.call(slow)
        except CircuitOpen:
            refused.append(1)

    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(caller)
        await anyio.wait_all_tasks_blocked()
        assert (len(sent), len(refused)) == (1, 99)
        release.set()
    assert breaker.state() == "closed"


async def test_a_good_probe_closes_and_starts_with_a_clean_window() -> None:
    clock = FakeClock()
    breaker = make(clock)
    await feed(breaker, "xxxx")
    clock.now = 30
    await feed(breaker, ".xxx")
    assert breaker.state() == "closed"
    assert (breaker.snapshot().failures, breaker.snapshot().calls) == (3, 3)


async def test_a_failed_probe_opens_for_another_recovery_time() -> None:
    """Alone, though the window holds no other outcome any more."""
    clock = FakeClock()
    breaker = make(clock, recovery_timeout=100)
    await feed(breaker, "xxxx")
    clock.now = 100
    await feed(breaker, "x")
    assert breaker.snapshot().calls == 1
    clock.now = 199
    with pytest.raises(CircuitOpen):
        await breaker.call(good)
    clock.now = 200
    await breaker.call(good)
    assert breaker.state() == "closed"


async def test_a_probe_that_is_rejected_closes_because_the_remote_answers_again() -> None:
    """Otherwise a bad API key would look like downtime."""
    clock = FakeClock()
    breaker = make(clock)
    await feed(breaker, "xxxx")
    clock.now = 30
    with pytest.raises(DependencyRejected):
        await breaker.call(bad(DependencyRejected("remote", "rejected")))
    assert breaker.state() == "closed"


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyError("bug"), CircuitOpen("inner")])
async def test_a_probe_without_evidence_only_gives_its_permit_back(error: BaseException) -> None:
    clock = FakeClock()
    breaker = make(clock)
    await feed(breaker, "xxxx")
    clock.now = 30
    with pytest.raises(type(error)):
        await breaker.call(bad(error))
    assert breaker.state() == "half_open"
    await breaker.call(good)
    assert breaker.state() == "closed"


async def test_a_cancelled_task_frees_the_probe() -> None:
    clock = FakeClock()
    breaker = make(clock)
    await feed(breaker, "xxxx")
    clock.now = 30
    async with anyio.create_task_group() as group:
        group.start_soon(breaker.call, anyio.sleep_forever)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert await breaker.call(good) == "answer"


@pytest.mark.parametrize("late", ["answer", "failure"])
async def test_a_late_result_from_an_earlier_state_changes_nothing(late: str) -> None:
    clock = FakeClock()
    breaker = make(clock)
    release = anyio.Event()

    async def slow() -> str:
        await release.wait()
        if late == "failure":
            raise DependencyUnavailable("remote", "timeout")
        return "answer"

    async def caller() -> None:
        with contextlib.suppress(DependencyError):
            await breaker.call(slow)

    async with anyio.create_task_group() as group:
        group.start_soon(caller)
        await anyio.wait_all_tasks_blocked()
        await feed(breaker, "xxxx")
        before = breaker.snapshot()
        release.set()
    assert breaker.snapshot() == before
    assert before.state == "open"


async def test_a_call_that_waited_asks_again_and_is_refused_once_open() -> None:
    breaker = make(FakeClock())

    async def queued(permit: Permit) -> str:
        await feed(breaker, "xxxx")
        permit.confirm()
        raise AssertionError("went out through an open circuit")

    with pytest.raises(CircuitOpen):
        await breaker.guard(queued)


async def test_a_call_that_waited_past_the_recovery_becomes_the_probe() -> None:
    clock = FakeClock()
    breaker = make(clock)

    async def queued(permit: Permit) -> str:
        await feed(breaker, "xxxx")
        clock.now = 30
        permit.confirm()
        assert permit.probe
        return "answer"

    await breaker.guard(queued)
    assert breaker.state() == "closed"


async def test_a_probe_keeps_its_permit_while_it_waits() -> None:
    clock = FakeClock()
    breaker = make(clock)
    await feed(breaker, "xxxx")
    clock.now = 30

    async def queued(permit: Permit) -> str:
        clock.now = 300
        permit.confirm()
        return "answer"

    assert await breaker.guard(queued) == "answer"


async def test_a_daily_quota_opens_at_once_and_for_long() -> None:
    clock = FakeClock()
    breaker = make(clock, quota_timeout=3600)
    with pytest.raises(DependencyUnavailable):
        await breaker.call(bad(DependencyUnavailable("remote", "rate_limited", detail={"quota": "daily"})))
    clock.now = 3599
    with pytest.raises(CircuitOpen):
        await breaker.call(good)
    clock.now = 3600
    await breaker.call(good)


async def test_no_remote_can_close_the_door_for_more_than_a_day() -> None:
    clock = FakeClock()
    breaker = make(clock)
    breaker.open_for(1e300)
    assert breaker.snapshot().retry_at == START.replace(day=2)


async def test_reset_closes_and_outdates_what_is_in_flight() -> None:
    breaker = make(FakeClock())
    await feed(breaker, "xxxx")
    breaker.reset()
    assert breaker.state() == "closed"
    assert breaker.snapshot().calls == 0
    assert await breaker.call(good) == "answer"


async def test_snapshot_tells_counts_and_wall_clock_times() -> None:
    clock = FakeClock()
    breaker = make(clock)
    await feed(breaker, ".x")
    assert (breaker.snapshot().opened_at, breaker.snapshot().retry_at) == (None, None)
    await feed(breaker, "xx")
    snapshot = breaker.snapshot()
    assert (snapshot.state, snapshot.failures, snapshot.calls) == ("open", 3, 4)
    assert snapshot.opened_at is not None
    assert snapshot.opened_at.isoformat() == "2026-01-01T00:00:00+00:00"
    assert snapshot.retry_at is not None
    assert snapshot.retry_at.isoformat() == "2026-01-01T00:00:30+00:00"
    clock.now = 30
    assert breaker.snapshot().state == "half_open"


async def test_every_change_of_state_is_told_once() -> None:
    clock = FakeClock()
    seen: list[Transition] = []
    breaker = make(clock, on_transition=seen.append)
    await feed(breaker, "xxxx")
    clock.now = 30
    await feed(breaker, ".")
    breaker.reset()
    assert [(t.before, t.after) for t in seen] == [("closed", "open"), ("open", "half_open"), ("half_open", "closed")]
    assert (seen[0].failures, seen[0].calls) == (4, 4)


async def test_a_broken_observer_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_transition: Transition) -> None:
        raise RuntimeError("metrics are down")

    breaker = make(FakeClock(), on_transition=broken)
    await feed(breaker, "xxxx")
    assert breaker.state() == "open"
    assert "observer of breaker remote failed" in caplog.text


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    registry = BreakerRegistry([CircuitBreaker("ollama.judge"), CircuitBreaker("gemini")])
    with pytest.raises(KeyError, match=r"'gemnii'; known: gemini, ollama.judge"):
        registry["gemnii"]
    assert list(registry) == ["ollama.judge", "gemini"]
    assert "gemnii" not in registry
    assert len(registry) == 2


def test_two_breakers_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two breakers are named gemini"):
        BreakerRegistry([CircuitBreaker("gemini"), CircuitBreaker("gemini")])
