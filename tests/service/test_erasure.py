"""Erasing what was recorded: gone from every place it stood in, and everything that proves it still holds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr
from sqlalchemy import text

from app import verify
from app.settings import EvaluationSettings, ServerSettings, Settings, StoreSettings, TelemetrySettings
from app.store.database import Database
from app.wiring import service_app
from tests.fakes import client_of

pytestmark = pytest.mark.anyio

PRIVATE = "Corner-Books-of-Jane-Doe"
BODY = {
    "id": "txn-1",
    "system": "sentinel-l7",
    "raw_output": {
        "source": "cache_miss", "is_threat": True, "risk_level": "low", "confidence": 0.2, "policy_refs": [PRIVATE],
        "narrative": f"Split deposits at {PRIVATE} under AML-BSA-001.",
    },
    "input": {"amount": 9900, "currency": "USD", "merchant": PRIVATE},
}  # fmt: skip
CLEAN = {"id": "txn-2", "system": "generic", "raw_output": {"note": PRIVATE}, "label": "low", "confidence": 0.9}


def settings_in(folder: Path, **more: object) -> Settings:
    return Settings(
        store=StoreSettings(url=f"sqlite:///{folder}/e.db"), telemetry=TelemetrySettings(enabled=False), **more
    )


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = settings_in(tmp_path, evaluation=EvaluationSettings(audit_rate=0))
    async with client_of(service_app(settings)) as client:
        yield client


async def erase(http: httpx.AsyncClient, evaluation_id: str, stages: list[str], **more: object) -> httpx.Response:
    return await http.post(f"/evaluations/{evaluation_id}/erase", json={"stages": stages, **more})


async def stored_bytes(folder: Path) -> bytes:
    """All that the tables of evaluations hold, as one text."""
    database = await Database.open(StoreSettings(url=f"sqlite:///{folder}/e.db"))
    try:
        return await database.read(
            lambda conn: b"".join(
                bytes(value) if isinstance(value, bytes) else str(value).encode()
                for table in ("evaluations", "accepted_work", "provenance_stages")
                for row in conn.execute(text(f"SELECT * FROM {table}"))  # noqa: S608 - names from above
                for value in row
            )
        )
    finally:
        await database.close()


async def test_what_is_erased_is_in_no_table_any_more(http: httpx.AsyncClient, tmp_path: Path) -> None:
    """Stages, the stored answer, and the request that was accepted for later."""
    accepted = await http.post("/evaluate", json=BODY, headers={"prefer": "respond-async"})
    evaluation_id = accepted.json()["evaluation_id"]
    while "disposition" not in (made := (await http.get(f"/evaluations/{evaluation_id}")).json()):
        assert made["status"] == "accepted"
    assert PRIVATE.encode() in await stored_bytes(tmp_path)
    stages = [each["name"] for each in (await http.get(f"/evaluations/{evaluation_id}/provenance")).json()["stages"]]
    erased = await erase(http, evaluation_id, stages)
    assert erased.json() == {
        "evaluation_id": evaluation_id,
        "revisions": [1],
        "stages": sorted(stages),
        "n_erased": len(stages),
    }
    assert PRIVATE.encode() not in await stored_bytes(tmp_path)


async def test_what_proves_it_still_holds(http: httpx.AsyncClient, tmp_path: Path) -> None:
    """Root, log and signature check out; the bundle says what is gone."""
    made = (await http.post("/evaluate", json=BODY)).json()
    await erase(http, made["evaluation_id"], ["input", "verdict"])
    bundle = (await http.get(f"/evaluations/{made['evaluation_id']}/provenance")).json()
    assert bundle["root"] == made["provenance_root"]
    assert {stage["name"] for stage in bundle["stages"] if stage["erased"]} == {"input", "verdict"}
    (tmp_path / "bundle.json").write_text(json.dumps(bundle))
    assert verify.main([str(tmp_path / "bundle.json")]) == 3, "without its verdict it says nothing of the decision"
    assert verify.main([str(tmp_path / "bundle.json"), "--without-verdict"]) == 0


async def test_the_stored_answer_keeps_how_it_was_decided_and_not_what_was_said(http: httpx.AsyncClient) -> None:
    made = (await http.post("/evaluate", json=BODY)).json()
    path = f"/evaluations/{made['evaluation_id']}"
    await erase(http, made["evaluation_id"], ["verdict"])
    left = (await http.get(path)).json()
    assert (left["erased"], left["label"], left["heuristic_result"], left["suspicion_score"]) == (
        True,
        "erased",
        None,
        None,
    )
    kept = ("disposition", "decision", "degraded", "provenance_root", "log_index", "created_at", "escalation_reasons")
    assert {name: left[name] for name in kept} == {name: made[name] for name in kept}
    assert PRIVATE not in json.dumps(left)
    assert (await http.get("/evaluations")).json()["items"] == [left]


@pytest.mark.parametrize(("stages", "again"), [(["input"], True), (["verdict"], True), (["evidence"], False)])
async def test_a_content_that_was_erased_is_evaluated_anew(
    http: httpx.AsyncClient, stages: list[str], again: bool
) -> None:
    """Nothing is left that a guess could be held against: not even the hash of the content."""
    made = (await http.post("/evaluate", json=BODY)).json()
    await erase(http, made["evaluation_id"], stages)
    repeated = (await http.post("/evaluate", json=BODY)).json()
    assert (repeated["evaluation_id"] != made["evaluation_id"]) is again
    assert repeated["replayed"] is not again


async def test_what_waits_for_the_audit_sample_can_not_be_done_any_more(tmp_path: Path) -> None:
    """Its copy of the input is gone too, and it says why."""
    settings = settings_in(tmp_path, evaluation=EvaluationSettings(audit_rate=1))
    async with client_of(service_app(settings, execute=False)) as http:
        made = (await http.post("/evaluate", json=CLEAN)).json()
        await erase(http, made["evaluation_id"], ["input", "verdict"])
    assert PRIVATE.encode() not in await stored_bytes(tmp_path)
    async with client_of(service_app(settings)) as http:
        assert len((await http.get("/evaluations")).json()["items"]) == 1


async def test_one_revision_can_be_named_and_erasing_twice_changes_nothing(http: httpx.AsyncClient) -> None:
    made = (await http.post("/evaluate", json=BODY)).json()
    first = (await erase(http, made["evaluation_id"], ["input"], revision=1)).json()
    again = (await erase(http, made["evaluation_id"], ["input", "input"])).json()
    assert (first["n_erased"], again["n_erased"], again["stages"]) == (1, 0, ["input"])


@pytest.mark.parametrize(
    ("stages", "more", "status"),
    [
        (["nothing"], {}, 404),
        (["input"], {"revision": 7}, 404),
        ([], {}, 422),
        (["../x"], {}, 422),
        (["input"], {"revision": 0}, 422),
        (["input"], {"odd": 1}, 422),
    ],
)
async def test_what_can_not_be_erased_is_said_so(
    http: httpx.AsyncClient, stages: list[str], more: dict, status: int
) -> None:
    made = (await http.post("/evaluate", json=BODY)).json()
    assert (await erase(http, made["evaluation_id"], stages, **more)).status_code == status
    assert (await erase(http, "0" * 8 + "-0000-0000-0000-" + "0" * 12, ["input"])).status_code == 404
    assert (await http.get(f"/evaluations/{made['evaluation_id']}")).json() == made


async def test_only_an_operator_may_erase(tmp_path: Path) -> None:
    keys = (SecretStr("w:submit+read:writer-key-0123456"), SecretStr("o:operate:operator-key-01234"))
    settings = settings_in(tmp_path, server=ServerSettings(api_keys=keys))
    async with client_of(service_app(settings)) as http:
        writer, operator = {"x-api-key": "writer-key-0123456"}, {"x-api-key": "operator-key-01234"}
        made = (await http.post("/evaluate", json=BODY, headers=writer)).json()
        path, body = f"/evaluations/{made['evaluation_id']}/erase", {"stages": ["input"]}
        assert (await http.post(path, json=body, headers=writer)).status_code == 403
        assert (await http.post(path, json=body, headers=operator)).status_code == 200
