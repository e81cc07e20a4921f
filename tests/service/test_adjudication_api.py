"""Adjudication over HTTP: every resource written and read back, and every refusal by name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from pydantic import SecretStr

from app.adjudication.service import AdjudicationService
from app.settings import (
    AdjudicationSettings,
    EmbedderSettings,
    ModelRoles,
    OllamaJudgeSettings,
    ServerSettings,
    Settings,
    StoreSettings,
    TelemetrySettings,
)
from app.store.database import Database
from app.wiring import service_app
from app.wiring.adjudication import adjudicator, secrets_of
from layers.structured_call import StructuredCall
from tests.adjudications import build, reply, says
from tests.fakes import client_of
from tests.service.conftest import Api
from tests.unit.answerers import ScriptedAnswerer

pytestmark = pytest.mark.anyio
NOBODY = "01933d2c-0000-7000-8000-00000000000b"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[AdjudicationService]:
    database = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/store.db"))
    yield build(database, says(reply()))
    await database.close()


@pytest.fixture
async def http(api: Api, service: AdjudicationService) -> AsyncIterator[httpx.AsyncClient]:
    async with api(adjudications=service) as client:
        yield client


async def post(http: httpx.AsyncClient, path: str, status: int, **body: Any) -> Any:
    answer = await http.post(path, json=body)
    assert answer.status_code == status, answer.text
    if status in {201, 202} and "location" in answer.headers:
        found = (await http.get(answer.headers["location"])).json()
        assert found.keys() >= {key for key in answer.json() if key.endswith("_id")}
    return answer.json()


async def get(http: httpx.AsyncClient, path: str) -> Any:
    answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_whole_way_of_a_hypothesis(http: httpx.AsyncClient, service: AdjudicationService) -> None:
    """Stated, shown, asserted, adjudicated, read, handed over."""
    hypothesis = (await post(http, "/hypotheses", 201, text="It rains.", importance=80))["hypothesis_id"]
    assert (await post(http, "/hypotheses", 200, text="it RAINS."))["hypothesis_id"] == hypothesis
    pieces = [
        (await post(http, "/evidence", 201, text=text, source=text, metadata={"n": 1}))["evidence_id"] for text in "ab"
    ]
    by = {"kind": "person", "name": "ann"}
    await post(http, f"/hypotheses/{hypothesis}/assertions", 201, evidence_id=pieces[0], relation="contradicts", by=by)
    run = await post(http, "/adjudications", 202, hypothesis_ids=[hypothesis], evidence_ids=pieces)
    assert (run["status"], run["n_pairs"]) == ("accepted", 2)
    await service.drain()
    assert (await get(http, f"/adjudications/{run['run_id']}"))["outcomes"] == {"interpreted": 2}
    found = await get(http, f"/hypotheses/{hypothesis}")
    assert (found["standing"]["n_supporting"], len(found["links"]), len(found["assertions"])) == (2, 2, 1)
    moves = (await get(http, f"/hypotheses/{hypothesis}/transitions"))["items"]
    records = (await get(http, f"/adjudication-records?hypothesis_id={hypothesis}&outcome=interpreted"))["items"]
    assert {cause for move in moves for cause in move["caused_by"]} == {record["record_id"] for record in records}
    assert await get(http, f"/adjudication-records/{records[0]['record_id']}") == records[0]
    for path, n in (("/hypotheses?qualification=unresolved", 1), ("/evidence", 2), ("/adjudications", 1)):
        assert len((await get(http, path))["items"]) == n
    first = await get(http, "/evidence?limit=1")
    assert len((await get(http, f"/evidence?limit=1&cursor={first['next_cursor']}"))["items"]) == 1


async def test_a_synthesis_is_made_once(http: httpx.AsyncClient) -> None:
    hypothesis = (await post(http, "/hypotheses", 201, text="It rains."))["hypothesis_id"]
    made = await post(http, "/syntheses", 201, hypothesis_ids=[hypothesis], mode="deterministic")
    again = await post(http, "/syntheses", 200, hypothesis_ids=[hypothesis], mode="deterministic")
    assert (again["synthesis_id"], again["reused"]) == (made["synthesis_id"], True)
    assert len((await get(http, "/syntheses"))["items"]) == 1


async def test_a_snapshot_goes_from_one_service_to_another(http: httpx.AsyncClient, api: Api, tmp_path: Path) -> None:
    await post(http, "/hypotheses", 201, text="It rains.")
    snapshot = await http.get("/adjudication-snapshot")
    assert snapshot.headers["content-type"].startswith("application/x-ndjson")
    database = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/other.db"))
    async with api(adjudications=build(database, None)) as other:
        lines = {"content": snapshot.content, "headers": {"content-type": "application/x-ndjson"}}
        taken = await other.post("/adjudication-snapshot", **lines)
        assert (taken.status_code, taken.json()["counts"]["hypothesis"]) == (200, 1)
        assert (await other.get("/adjudication-snapshot")).content == snapshot.content
        lines["content"] = snapshot.content.replace(b"rains", b"snows")
        assert (await other.post("/adjudication-snapshot", **lines)).json()["type"] == "/problems/snapshot-refused"
        await post(other, "/hypotheses", 201, text="It snows.")
        lines["content"] = snapshot.content
        assert (await other.post("/adjudication-snapshot", **lines)).status_code == 409
    await database.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/hypotheses", {"text": " "}),
        ("/hypotheses", {"text": "x", "score": 1.0}),
        ("/hypotheses", {"text": "x", "qualification": "supported"}),
        ("/hypotheses", {"text": "x", "importance": 101}),
        ("/hypotheses", {"text": "x", "evidence": [{"evidence_id": NOBODY}]}),
        ("/evidence", {"text": "x"}),
        ("/evidence", {"text": "x" * 16_001, "source": "s"}),
        ("/adjudications", {"hypothesis_ids": [NOBODY], "evidence_ids": [NOBODY]}),
        ("/adjudications", {"hypothesis_ids": [], "evidence_ids": []}),
        ("/adjudications", {"hypothesis_ids": ["x"], "evidence_ids": ["x"]}),
        ("/syntheses", {}),
        ("/syntheses", {"run_id": NOBODY, "hypothesis_ids": [NOBODY]}),
        ("/syntheses", {"hypothesis_ids": [NOBODY]}),
    ],
)
async def test_what_makes_no_sense_is_refused(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> None:
    await post(http, path, 422, **body)


@pytest.mark.parametrize(
    "path",
    ["hypotheses", "evidence", "adjudications", "adjudication-records", "syntheses", "hypotheses/{}/transitions"],
)
async def test_what_there_is_not_is_not_found(http: httpx.AsyncClient, path: str) -> None:
    for name in (NOBODY, "x"):
        at = f"/{path}".format(name) if "{}" in path else f"/{path}/{name}"
        assert (await http.get(at)).status_code == 404


async def test_a_service_without_adjudication_says_so(api: Api) -> None:
    async with api() as http:
        assert (await http.get("/hypotheses")).status_code == 404


# --- the service as it is put together --------------------------------------------------------------------------------


def judge(asked: list[tuple[str, str | None]]) -> Any:
    def make(lane: str, model: str | None = None) -> ScriptedAnswerer:
        asked.append((lane, model))
        return ScriptedAnswerer(lambda _: reply(), identity=f"vendor:{model or 'its own'}")

    return make


def test_roles_are_models_of_the_first_judge_and_of_nobody_else() -> None:
    """Unset: its own model; escalation unset: none. A second judge is no spare."""
    asked: list[tuple[str, str | None]] = []
    other: list[tuple[str, str | None]] = []
    plain = adjudicator(Settings(), (judge(asked), judge(other)), StructuredCall(), None, "run")
    assert plain is not None
    assert (plain.model.identity, plain.escalation) == ("vendor:its own", None)
    roles = Settings(models=ModelRoles(adjudication="fast", escalation="strong"))
    named = adjudicator(roles, (judge(asked), judge(other)), StructuredCall(), None, "run")
    assert named is not None
    assert named.escalation is not None
    assert (named.model.identity, named.escalation.identity) == ("vendor:fast", "vendor:strong")
    assert other == []
    assert adjudicator(Settings(), (), StructuredCall(), None, "run") is None


def test_thresholds_are_settings() -> None:
    own = AdjudicationSettings(
        min_relevance=1, min_confidence=2, escalate_below=3, escalate_min_importance=4, prefilter_similarity=0.5
    )
    made = adjudicator(Settings(adjudication=own), (judge([]),), StructuredCall(), None, "run")
    assert made is not None
    assert made.thresholds.model_dump() == {
        "min_relevance": 1,
        "min_confidence": 2,
        "escalate_below": 3,
        "escalate_min_importance": 4,
        "prefilter_similarity": 0.5,
    }


def test_every_secret_that_was_set_is_known_and_no_default_is() -> None:
    given = Settings(
        server=ServerSettings(api_keys=(SecretStr("ann:read:key-of-ann"),)),
        adjudication=AdjudicationSettings(snapshot_key=SecretStr("seal-it")),
    )
    assert {"key-of-ann", "seal-it"} <= set(secrets_of(given))
    assert list(secrets_of(Settings())) == []


async def test_a_real_service_works_its_adjudications_off(tmp_path: Path) -> None:
    """With the judge's address pointing nowhere: accepted, failed, and nothing accepted from it."""
    settings = Settings(
        store=StoreSettings(url=f"sqlite:///{tmp_path}/real.db"),
        telemetry=TelemetrySettings(enabled=False),
        ollama=OllamaJudgeSettings(host="http://127.0.0.1:9", timeout=2),
        embedder=EmbedderSettings(kind="embedded"),
    )
    async with client_of(service_app(settings)) as http:
        hypothesis = (await post(http, "/hypotheses", 201, text="It rains."))["hypothesis_id"]
        piece = (await post(http, "/evidence", 201, text="Wet.", source="s"))["evidence_id"]
        run = await post(http, "/adjudications", 202, hypothesis_ids=[hypothesis], evidence_ids=[piece])
        with anyio.fail_after(20):
            while (now := await get(http, f"/adjudications/{run['run_id']}"))["status"] != "done":
                await anyio.lowlevel.checkpoint()
        assert now["outcomes"] == {"failed": 1}
        assert (await get(http, f"/hypotheses/{hypothesis}"))["standing"]["score"] == 0.5
        assert (await get(http, "/log/head"))["tree_size"] == 1
