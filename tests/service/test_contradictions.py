"""A log that lost its newest entry while its stages stayed: told in a sentence, and nothing is answered 500."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from app.settings import LogSettings, Settings, StoreSettings, TelemetrySettings
from app.store.database import Database
from app.store.trouble import CONTRADICTS
from app.wiring import service_app
from tests.fakes import client_of

pytestmark = pytest.mark.anyio


def body(number: int) -> dict[str, object]:
    return {"id": str(number), "system": "generic", "raw_output": {"n": number}, "label": "low", "confidence": 0.9}


async def lose_newest_leaf(store: StoreSettings) -> None:
    database = await Database.open(store)
    newest = text("DELETE FROM log_leaves WHERE leaf_index = (SELECT MAX(leaf_index) FROM log_leaves)")
    await database.write(lambda conn: conn.execute(newest))
    await database.close()


async def check_not_ready(http: httpx.AsyncClient) -> None:
    ready = await http.get("/readyz")
    assert ready.status_code == 503
    assert ready.json()["store"] == {"status": "not_writable", "reason": CONTRADICTS}


@pytest.fixture
def settings(store_settings: StoreSettings, tmp_path: Path) -> Settings:
    log = LogSettings(key_file=tmp_path / "log.key")
    return Settings(store=store_settings, log=log, telemetry=TelemetrySettings(enabled=False))


async def test_a_log_that_contradicts_its_stages_makes_the_service_not_ready(settings: Settings) -> None:
    """Until a backup is restored, whatever else can still be written; what is stored can be read."""
    async with client_of(service_app(settings, execute=False)) as http:
        for number in range(2):
            made = (await http.post("/evaluate", json=body(number))).json()
        await lose_newest_leaf(settings.store)
        for number in (2, 3):
            refused = await http.post("/evaluate", json=body(number))
            assert (refused.status_code, refused.json()["detail"]) == (503, CONTRADICTS)
        accepted = await http.post("/evaluate", json=body(4), headers={"prefer": "respond-async"})
        assert accepted.status_code == 202
        await check_not_ready(http)
        assert (await http.get(f"/evaluations/{made['evaluation_id']}")).status_code == 200


async def test_the_contradiction_is_seen_at_start(settings: Settings) -> None:
    async with client_of(service_app(settings, execute=False)) as http:
        await http.post("/evaluate", json=body(1))
        assert (await http.get("/readyz")).status_code == 200
    await lose_newest_leaf(settings.store)
    async with client_of(service_app(settings, execute=False)) as http:
        await check_not_ready(http)
