"""The surface over the real service: what one request stores, another one finds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import pytest

from app.settings import ServerSettings, Settings, StoreSettings, TelemetrySettings
from app.wiring import service_app
from tests.fakes import client_of

pytestmark = pytest.mark.anyio

BODY = {"id": "txn-1", "system": "generic", "raw_output": {"a": 1}, "label": "low", "confidence": 0.9}
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(
        server=ServerSettings(max_in_flight=4),
        store=StoreSettings(url=f"sqlite:///{tmp_path}/whole.db"),
        telemetry=TelemetrySettings(enabled=False),
    )
    async with client_of(service_app(settings)) as client:
        yield client


async def done(http: httpx.AsyncClient, path: str, *, until: set[str]) -> dict:
    """Ask again until the status is one of `until`; there is nothing to wait for but the resource itself."""
    with anyio.fail_after(30):
        while (shown := (await http.get(path)).json()).get("status") not in until:
            await anyio.lowlevel.checkpoint()
    return shown


async def test_an_evaluation_is_found_proven_and_part_of_the_log(http: httpx.AsyncClient) -> None:
    made = (await http.post("/evaluate", json=BODY)).json()
    path = f"/evaluations/{made['evaluation_id']}"
    assert (await http.get(path)).json() == made
    assert (await http.post("/evaluate", json=BODY)).json() == {**made, "replayed": True}
    bundle = (await http.get(f"{path}/provenance?since=0")).json()
    assert bundle["root"] == made["provenance_root"]
    head = (await http.get("/log/head")).json()
    proof = (await http.get("/log/inclusion", params={"index": made["log_index"]})).json()
    assert proof["root_hash"] == head["root_hash"] == bundle["log"]["head"]["root_hash"]
    grown = (await http.get("/log/consistency?first=1")).json()
    assert (grown["first"], grown["second"]) == (1, 1)
    assert (await http.get("/log/key")).json()["key_id"] == head["key_id"]
    for refused in (
        f"{path}/provenance?since=9",
        "/log/consistency",
        "/log/consistency?first=9",
        "/log/inclusion?index=9",
    ):
        assert (await http.get(refused)).status_code == 400


async def test_a_batch_waits_for_its_turn_instead_of_being_refused(http: httpx.AsyncClient) -> None:
    """One caller's batch is larger than what may be in flight."""
    lines = "\n".join(json.dumps({**BODY, "id": str(n)}) for n in range(200))
    answers = [
        json.loads(line)
        for line in (await http.post("/evaluate/batch", content=lines, headers=NDJSON)).text.splitlines()
    ]
    assert [answer["prediction_id"] for answer in answers] == [str(n) for n in range(200)]


async def test_an_accepted_batch_is_worked_off(http: httpx.AsyncClient) -> None:
    lines = "\n".join(json.dumps({**BODY, "id": str(n)}) for n in range(5))
    accepted = await http.post("/evaluate/batch", content=lines, headers={**NDJSON, "prefer": "respond-async"})
    status = await done(http, accepted.headers["location"], until={"done"})
    assert (status["n_done"], status["n_failed"]) == (5, 0)
    for evaluation_id in status["evaluation_ids"]:
        assert (await http.get(f"/evaluations/{evaluation_id}")).json()["disposition"] == "pass"


async def test_a_run_is_worked_off_and_reported(http: httpx.AsyncClient) -> None:
    rows = [
        {"expected_label": "low", "prediction": {"raw_output": {}, "label": label, "confidence": 0.9}}
        for label in ("low", "low", "high")
    ]
    files = {"dataset": ("d.ndjson", "\n".join(map(json.dumps, rows))), "request": (None, '{"system": "recorded"}')}
    run = (await http.post("/runs", files=files, headers={"idempotency-key": "once"})).json()
    assert (await http.post("/runs", files=files, headers={"idempotency-key": "once"})).json()["run_id"] == run[
        "run_id"
    ]
    assert (await done(http, f"/runs/{run['run_id']}", until={"succeeded", "failed"}))["status"] == "succeeded"
    report = (await http.get(run["links"]["report"])).json()
    assert (report["total"], report["correct"]) == (3, 2)
    table = (await http.get(run["links"]["records"], headers={"accept": "text/csv"})).text
    assert len(table.splitlines()) == 4
    stored = await http.post("/runs", json={"system": "recorded", "dataset_id": run["dataset_id"]})
    assert (stored.status_code, stored.json()["dataset_id"]) == (202, run["dataset_id"])
    unknown = await http.post("/runs", json={"system": "recorded", "dataset_id": "sha256:" + "0" * 64})
    assert unknown.status_code == 404


async def test_the_index_is_filled_and_shown(http: httpx.AsyncClient) -> None:
    items = {"items": [{"id": "p1", "text": "Transfers above 10,000 EUR need a second review."}]}
    assert (await http.post("/index/policies", json=items)).json()["entries"] == 1
    assert (await http.get("/index")).json()["items"][0]["namespace"] == "policies"
    assert (await http.get("/index/policies")).json()["entries"] == 1
    assert (await http.get("/index/elsewhere")).status_code == 404
    other = {"items": [{"id": "p2", "vector": [1.0, 2.0]}]}
    assert (await http.post("/index/policies", json=other)).status_code in {409, 422}
    assert (await http.post("/index/%00", json=items)).status_code == 422


async def test_an_unknown_system_is_refused_by_name(http: httpx.AsyncClient) -> None:
    for path, body in (
        ("/evaluate", {**BODY, "system": "nobody"}),
        ("/runs", {"system": "nobody", "dataset": {"examples": [{"expected_label": "x"}]}}),
    ):
        response = await http.post(path, json=body)
        assert response.status_code == 422
        assert response.json()["errors"][0]["pointer"] == "/system"
