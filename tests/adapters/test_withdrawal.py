"""A question that waits for its turn is taken back when whoever asked stops; one that was sent is not."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.lowlevel
import httpx
import pytest

from adapters.limits import LocalLimiter
from adapters.shared_limits import SharedLimiter
from app.runs.gate import Gate
from layers.errors import Withdrawn
from layers.withdrawal import ASKER
from tests.adapters.support import Rig

pytestmark = pytest.mark.anyio


class Unreached:
    """An account that nobody needs to look into."""

    async def change(self, name: str, change: Callable[..., object]) -> object:
        raise AssertionError(name)


@pytest.mark.parametrize("shared", [False, True], ids=["local", "shared"])
async def test_what_waits_for_a_slot_is_taken_back_and_what_was_sent_is_answered(shared: bool) -> None:
    """The slot is whole afterwards, the breaker learns nothing, and a later question goes out as ever."""
    sent, go = anyio.Event(), anyio.Event()

    async def held(_request: httpx.Request) -> httpx.Response:
        sent.set()
        await go.wait()
        return httpx.Response(200, json={})

    rig, gate = Rig(held, slots=1), Gate()
    if shared:
        rig.client._limiter = SharedLimiter("remote", Unreached(), slots=1, clock=rig.clock, sleep=rig.clock.sleep)  # type: ignore[arg-type]
    ended: list[str] = []

    async def ask(name: str) -> None:
        ASKER.set(gate)
        try:
            await rig.get()
        except Withdrawn as exc:
            ended.append(f"{name} {exc.kind}")
        else:
            ended.append(f"{name} answered")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(ask, "first")
            await sent.wait()
            group.start_soon(ask, "second")
            while not rig.client._limiter.snapshot().waiting:  # type: ignore[attr-defined]
                await anyio.lowlevel.checkpoint()
            gate.stop()
            while not ended:
                await anyio.lowlevel.checkpoint()
            go.set()
        assert ended == ["second withdrawn", "first answered"]
        await rig.get()
    assert len(rig.requests) == 2
    assert rig.breaker.state() == "closed"
    assert rig.client._limiter.snapshot().in_use == 0  # type: ignore[attr-defined]


async def test_whoever_has_stopped_already_does_not_begin_to_wait() -> None:
    rig, gate = Rig(lambda _: httpx.Response(200, json={}), slots=1), Gate()
    gate.stop()
    assert isinstance(rig.limiter, LocalLimiter)
    assert rig.limiter.take_now("evaluate")
    token = ASKER.set(gate)
    with anyio.fail_after(5), pytest.raises(Withdrawn):
        await rig.get()
    ASKER.reset(token)
    assert rig.requests == []
