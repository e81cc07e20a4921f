"""Probes, breakers and systems."""

from __future__ import annotations

import anyio
import httpx
import pytest

from app.api import operate
from app.errors import Unavailable
from app.settings import StoreSettings
from app.store.database import Database
from tests.fakes import FakeDatabase

pytestmark = pytest.mark.anyio


async def test_an_open_circuit_is_listed_and_not_fatal(http: httpx.AsyncClient) -> None:
    response = await http.get("/readyz")
    assert response.status_code == 200
    assert response.json() == {"status": "ready", "store": {"status": "ok"}, "degraded": {"ollama.judge": "open"}}


@pytest.mark.parametrize("error", [Unavailable("away"), OSError("gone"), TimeoutError()])
async def test_without_its_store_the_service_is_not_ready(api, error: Exception) -> None:
    async with api(database=FakeDatabase(error)) as http:
        response = await http.get("/readyz")
        assert (await http.get("/livez")).json() == {"status": "ok"}
    assert (response.status_code, response.json()["store"]["status"]) == (503, "unreachable")


async def test_a_store_of_another_version_is_not_ready(api, tmp_path) -> None:
    database = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path / 'x.db'}"))
    try:
        async with api(database=database) as http:
            assert (await http.get("/readyz")).json()["store"] == {"status": "ok"}
            await database.write(lambda conn: conn.exec_driver_sql("UPDATE alembic_version SET version_num = '0000'"))
            response = await http.get("/readyz")
    finally:
        await database.close()
    assert (response.status_code, response.json()["store"]["status"]) == (503, "not_migrated")


async def test_a_store_that_hangs_is_not_ready(api) -> None:
    class Hanging(FakeDatabase):
        async def read(self, _: object) -> None:
            await anyio.sleep_forever()

    with anyio.fail_after(operate.STORE_TIMEOUT + 3):
        async with api(database=Hanging()) as http:
            assert (await http.get("/readyz")).status_code == 503


async def test_a_breaker_is_shown_and_reset(http: httpx.AsyncClient) -> None:
    before = (await http.get("/breakers")).json()["ollama.judge"]
    assert before == {
        "state": "open",
        "failures": 5,
        "calls": 5,
        "opened_at": "2026-01-01T00:00:00Z",
        "retry_at": "2026-01-02T00:00:00Z",
    }
    after = (await http.post("/breakers/ollama.judge/reset")).json()
    assert (after["state"], after["opened_at"]) == ("closed", None)
    assert (await http.get("/breakers")).json() == {"ollama.judge": after}


async def test_systems_say_what_they_can_do(http: httpx.AsyncClient) -> None:
    systems = (await http.get("/systems")).json()
    assert systems["next_cursor"] is None
    generic = systems["items"][0]
    assert (generic["name"], generic["can_be_asked"], generic["reads_payload"]) == ("generic", False, False)
    assert generic["why_not"] == "its predictions are recorded"
    assert generic["profile"]["thresholds"]["low_confidence"] == 0.4


async def test_head_is_answered_as_get(http: httpx.AsyncClient) -> None:
    assert (await http.head("/livez")).status_code == 200
