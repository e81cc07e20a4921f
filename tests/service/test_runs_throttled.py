"""Runs whose system can't be asked at the moment: it takes only so many a minute, or is away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from app.demo.sentinel import build_sentinel
from app.runs.model import RunStatus
from app.settings import LogSettings, StoreSettings
from app.store.database import Database
from app.store.migrate import upgrade
from app.telemetry.metrics import Metrics
from app.telemetry.setup import Telemetry
from app.wiring import connector
from layers.errors import CircuitOpen
from layers.model import EvalExample, EvalPrediction
from tests.adapters.peers import serving
from tests.runs import Scripted, answer_high, dataset, ended, reached, run_service
from tests.runs import request as run_request
from tests.standins import FLAGGED, sentinel_at, service, settings_for

pytestmark = pytest.mark.anyio

SIZE = 200


def request(**options: Any) -> dict[str, Any]:
    examples = [
        {"id": str(n), "input": {"amount": n, "currency": "USD", "merchant": f"m{n}"}, "expected_label": "low"}
        for n in range(SIZE)
    ]
    return {"system": "sentinel-l7", "dataset": {"examples": examples}, "options": options}


async def seen(http: httpx.AsyncClient, path: str, status: str, done: int = 0) -> dict[str, Any]:
    """The run, once it has that status and so many examples are done."""
    with anyio.fail_after(20):
        while True:
            run = (await http.get(path)).json()
            if run["status"] == status and run["progress"]["n_done"] >= done:
                return dict(run)
            await anyio.sleep(0.02)


async def test_200_examples_at_60_a_minute_say_how_long_they_take(tmp_path: Path) -> None:
    """About 200 s and the share that is kept for `/evaluate`: when accepted, and when the first minute is used up."""
    with serving(app := build_sentinel()) as url:
        sentinel = sentinel_at(url).model_copy(update={"rate_per_minute": 60})
        async with service(settings_for(tmp_path, sentinel=sentinel)) as http:
            accepted = (await http.post("/runs", json=request())).json()
            run = await seen(http, f"/runs/{accepted['run_id']}", "waiting", done=48)
            await http.post(f"/runs/{accepted['run_id']}/cancel")
            ended = await seen(http, f"/runs/{accepted['run_id']}", "cancelled")
    assert 180 < accepted["progress"]["eta_s"] < 260
    assert 150 < run["progress"]["eta_s"] < 260
    assert (ended["progress"]["n_done"], ended["progress"]["n_failed"]) == (48, 0)
    assert app.state.sentinel.throttled == 0


async def test_a_service_and_its_worker_have_one_budget(tmp_path: Path, store_settings: StoreSettings) -> None:
    """On either database: what a worker's runs have spent is gone for the service, but for the share kept for it."""
    with serving(app := build_sentinel(per_minute=None, opinions={name: lambda _: 3 for name in "abc"})) as url:
        sentinel = sentinel_at(url, drivers=("a", "b", "c")).model_copy(update={"rate_per_minute": 10})
        log = LogSettings(key_file=tmp_path / "log.key")
        settings = settings_for(tmp_path, short=True, sentinel=sentinel, store=store_settings, log=log)
        upgrade(store_settings.url)
        idle = settings.model_copy(update={"runs": settings.runs.model_copy(update={"work": False})})
        telemetry = Telemetry(settings.telemetry)
        worker = connector(execute=True, telemetry=telemetry, metrics=Metrics(telemetry), beside=True)
        async with service(idle) as http, worker(settings):
            run = (await http.post("/runs", json=request())).json()
            await seen(http, f"/runs/{run['run_id']}", "waiting", done=8)
            answers = [(await http.post("/evaluate", json={**FLAGGED, "id": f"t{n}"})).json() for n in range(3)]
            await http.post(f"/runs/{run['run_id']}/cancel")
    assert len(app.state.sentinel.calls) == 10
    kinds = {error["kind"] for each in answers for error in each["disagreement_result"]["errors_by_provider"].values()}
    assert kinds == {"rate_limited"}


async def test_a_waiting_run_is_paused_at_once_and_goes_on_when_its_system_is_back(database: Database) -> None:
    back = anyio.Event()

    async def system(example: EvalExample) -> EvalPrediction:
        if example.input["n"] > 0 and not back.is_set():
            raise CircuitOpen("tested", retry_after=3600)
        return await answer_high(example)

    async with run_service(database, Scripted(system)) as service:
        run_id = (await service.submit(run_request(), dataset(5))).run_id
        await reached(service, run_id, RunStatus.WAITING)
        assert (await service.pause(run_id)).status is RunStatus.PAUSED
        back.set()
        await service.resume(run_id)
        run = await ended(service, run_id)
    assert (run.status, run.progress.n_scored) == (RunStatus.SUCCEEDED, 5)
