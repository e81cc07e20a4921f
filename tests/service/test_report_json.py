"""A run's report as JSON, held against a baseline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.reports.service import ReportService
from app.settings import StoreSettings
from app.store.database import Database
from tests.gates import examples, world_on
from tests.service.conftest import Api


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/store.db"))
    yield opened
    await opened.close()


@pytest.mark.anyio
async def test_json_obeys_a_baseline_as_the_page_does(api: Api, database: Database) -> None:
    """The same figures with and without one; with one, the comparison that is also a resource of its own."""
    async with world_on(database) as world:
        before, run = await world.run(examples(20)), await world.run(examples(20, wrong=[3, 4]))
        reports = ReportService(database, world.runs, world.gates, version="1")
        report = f"/runs/{run}/report"
        async with api(runs=world.runs, reports=reports, gates=world.gates) as http:
            params = {"baseline": before, "slice": "/input/kind", "predictions": "true"}
            given = (await http.get(report, params=params)).json()
            plain = (await http.get(report, params={**params, "baseline": []})).json()
            comparison = {"baseline": before, "slice": "/input/kind"}
            for query, status in (({"baseline": "nothing"}, 404), ({"baseline": "a b"}, 400)):
                assert (await http.get(report, params=query)).status_code == status
            made = (await http.get(f"/runs/{run}/comparison", params=comparison)).json()
    assert given.pop("comparison") == made
    assert made["baseline_run_id"] == before
    assert given == plain
    assert given["predictions"]
