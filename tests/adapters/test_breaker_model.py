"""The circuit breaker against a model of forty lines, in any order of events."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adapters.breaker import CircuitBreaker
from layers.errors import CircuitOpen, DependencyRejected, DependencyUnavailable
from tests.adapters.support import FakeClock

WINDOW, MINIMUM, SHARE, RECOVERY = 10, 3, 0.5, 7

ENDINGS: dict[str, BaseException | None] = {
    "good": None,
    "failed": DependencyUnavailable("remote", "timeout"),
    "rejected": DependencyRejected("remote", "rejected"),
    "cancelled": asyncio.CancelledError(),
    "bug": KeyError("bug"),
}


class _Pause:
    def __await__(self) -> Generator[None, None, None]:
        yield


async def _remote() -> None:
    await _Pause()


class Model:
    """What a breaker should do: lists and loops, no counters, no slices."""

    def __init__(self) -> None:
        self.phase, self.epoch = "closed", 0
        self.retry_at = 0
        self.probe: object | None = None
        self.outcomes: list[tuple[int, bool]] = []

    def enter(self, phase: str) -> None:
        self.phase, self.probe = phase, None
        self.epoch += 1
        if phase == "closed":
            self.outcomes = []

    def admit(self, now: int, call: object) -> bool:
        if self.phase == "closed":
            return True
        if self.state(now) == "open" or self.probe is not None:
            return False
        if self.phase == "open":
            self.enter("half_open")
        self.probe = call
        return True

    def end(self, now: int, call: object, epoch: int, ending: str) -> None:
        if epoch != self.epoch:
            return
        probing = self.probe is call
        if probing and ending in {"good", "rejected"}:
            self.enter("closed")
        elif probing and ending != "failed":
            self.probe = None
        elif ending in {"good", "failed"}:
            self.outcomes.append((now, ending == "failed"))
            recent = self.recent(now)
            too_many = len(recent) >= MINIMUM and sum(recent) >= SHARE * len(recent)
            if ending == "failed" and (probing or too_many):
                self.retry_at = now + RECOVERY
                self.enter("open")

    def recent(self, now: int) -> list[bool]:
        return [failed for at, failed in self.outcomes if at > now - WINDOW]

    def state(self, now: int) -> str:
        return "half_open" if self.phase == "open" and now >= self.retry_at else self.phase


class BreakerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.breaker = CircuitBreaker(
            "remote",
            window=WINDOW,
            minimum_calls=MINIMUM,
            failure_share=SHARE,
            recovery_timeout=RECOVERY,
            clock=self.clock,
            wall=self.clock.wall,
        )
        self.model = Model()
        self.calls: list[tuple[Coroutine[Any, Any, None], int]] = []

    @property
    def now(self) -> int:
        return int(self.clock.now)

    @rule(seconds=st.integers(0, 12))
    def pass_time(self, seconds: int) -> None:
        self.clock.now += seconds

    @rule()
    def start(self) -> None:
        call = self.breaker.call(_remote)
        admitted = self.model.admit(self.now, call)
        try:
            call.send(None)
        except CircuitOpen:
            assert not admitted
        else:
            assert admitted
            self.calls.append((call, self.model.epoch))

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), ending=st.sampled_from(sorted(ENDINGS)))
    def end(self, data: st.DataObject, ending: str) -> None:
        call, epoch = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        error = ENDINGS[ending]
        with pytest.raises(StopIteration if error is None else type(error)):
            call.send(None) if error is None else call.throw(error)
        self.model.end(self.now, call, epoch, ending)

    @rule()
    def reset(self) -> None:
        self.breaker.reset()
        self.model.enter("closed")

    @invariant()
    def agrees(self) -> None:
        snapshot = self.breaker.snapshot()
        recent = self.model.recent(self.now)
        assert snapshot.state == self.model.state(self.now)
        assert (snapshot.failures, snapshot.calls) == (sum(recent), len(recent))
        assert (snapshot.retry_at is None) == (snapshot.state == "closed")

    def teardown(self) -> None:
        for call, _ in self.calls:
            call.close()


TestBreakerAgainstModel = BreakerMachine.TestCase
TestBreakerAgainstModel.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
