"""A gate that waits for its run: told by the run's events, patient with a service that starts anew, not for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx
import pytest

from app.cli.gate import gate
from app.cli.progress import PATIENCE, follow
from app.gates.service import GateService
from app.runs.event_store import EventStore
from app.runs.events import RunEvents
from app.runs.model import RunOptions
from app.settings import Settings, StoreSettings
from app.store.database import Database
from layers.model import EvalDataset, EvalExample, EvalPrediction
from tests.gates import PROFILE, World, examples, recorded
from tests.runs import Scripted, request, run_service
from tests.service.serving import served

pytestmark = pytest.mark.anyio

POLICY = '[[floors]]\nmetric = "accuracy"\nmin = 0.5\n'


@dataclass
class Waited:
    """A run of 100 examples whose second half is answered only after `go`, on a service at `url`."""

    url: str
    run_id: str
    go: anyio.Event
    events: RunEvents


@asynccontextmanager
async def going_on(settings: Settings, folder: Path) -> AsyncIterator[Waited]:
    go = anyio.Event()

    async def slow(asked: EvalExample) -> EvalPrediction:
        if int((asked.id or "e0")[1:]) >= 50:
            await go.wait()
        return await recorded(asked)

    database = await Database.open(StoreSettings(url=f"sqlite:///{folder}/store.db"))
    async with run_service(database, Scripted(slow).as_system(PROFILE)) as runs:
        world = World(runs, GateService(database), database)
        events = RunEvents(runs.get, EventStore(database), interval=0.01)
        async with served(settings, runs=runs, gates=world.gates, database=database, events=events) as http:
            given = EvalDataset(examples=tuple(examples(100)))
            run = await runs.submit(request(options=RunOptions(concurrency=2)), given)
            yield Waited(str(http.base_url), run.run_id, go, events)
            go.set()
    await database.close()


async def judged(settings: Settings, waited: Waited, folder: Path, timeout: float | None) -> int:
    policy = folder / "gate.toml"
    policy.write_text(POLICY, encoding="utf-8")
    with anyio.fail_after(20):
        return await gate(
            settings,
            waited.run_id,
            policy,
            None,
            server=waited.url,
            key=None,
            wait=True,
            timeout=timeout,
            as_json=False,
            files={},
        )


async def test_a_gate_waits_for_the_end_of_its_run(settings: Settings, tmp_path: Path, capsys) -> None:
    """It listens to the run's events meanwhile, and is not asking again and again."""
    async with going_on(settings, tmp_path) as waited, anyio.create_task_group() as group:

        async def let_go() -> None:
            while not waited.events.watched:  # noqa: ASYNC110 - it is the service that knows
                await anyio.sleep(0.01)
            waited.go.set()

        group.start_soon(let_go)
        assert await judged(settings, waited, tmp_path, 15) == 0
    assert "verdict: PASS" in capsys.readouterr().out


async def test_a_gate_that_waited_in_vain_says_that_the_run_is_not_over(settings, tmp_path: Path, capsys) -> None:
    """What is not there yet is MISSING, which no pipeline takes for a pass."""
    async with going_on(settings, tmp_path) as waited:
        assert await judged(settings, waited, tmp_path, 0.2) == 2
    said = capsys.readouterr()
    assert "not ended within 0.2 s" in said.err
    assert "verdict: MISSING" in said.out


@pytest.mark.parametrize(("away", "ends"), [(3, True), (PATIENCE + 1, False)])
async def test_a_service_may_be_away_for_a_while(away: int, ends: bool) -> None:
    """While it starts anew it is asked again and again, less and less often; at some point it is gone."""
    asked = 0
    pauses: list[float] = []

    async def answer(sent: httpx.Request) -> httpx.Response:
        nonlocal asked
        if sent.url.path.endswith("/events"):
            return httpx.Response(404, json={})
        asked += 1
        if asked <= away:
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json={"run_id": "r", "status": "succeeded"})

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://x") as http:
        states = follow(http, {"run_id": "r", "status": "running"}, sleep=pause)
        if ends:
            assert [run["status"] async for run in states] == ["succeeded"]
        else:
            with pytest.raises(httpx.ConnectError):
                await anext(states)
    assert pauses == sorted(pauses)
    assert max(pauses) <= 5.0
