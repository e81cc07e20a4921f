"""A service whose SQLite file is lost under it answers no request as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.standins import FLAGGED, service, settings_for

pytestmark = pytest.mark.anyio

RUN = "01a22c4e-4dd4-7000-a912-70408d41bef9"
READS = (f"/runs/{RUN}", "/runs", f"/runs/{RUN}/report", f"/runs/{RUN}/records", f"/evaluations/{RUN}", "/evaluations")
READS += ("/datasets", "/baselines", "/log/head", f"/runs/{RUN}/gate", f"/runs/{RUN}/comparison?baseline={RUN}")


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    path.with_name(f"{path.name}-wal").write_bytes(b"")


@pytest.mark.parametrize("harm", [delete, empty, overwrite])
async def test_every_request_for_records_is_503_and_the_service_is_not_ready(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    settings = settings_for(tmp_path)
    path = Path(settings.store.url.removeprefix("sqlite:///"))
    async with service(settings) as http:
        assert (await http.get("/readyz")).status_code == 200
        harm(path)
        answers = {read: await http.get(read) for read in READS}
        refused = {read for read, response in answers.items() if response.status_code == 503}
        # Of an overwritten file a connection may still hold some pages in memory, and those are true.
        assert refused == set(READS) or (harm is overwrite and refused)
        assert {answers[read].status_code for read in READS if read not in refused} <= {200, 404}
        assert all("the store's" in answers[read].json()["detail"] for read in refused)
        assert (await http.post("/evaluate", json=FLAGGED)).status_code == 503
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "not_ready")
        assert ready.json()["store"]["reason"]
        assert (await http.get("/livez")).status_code == 200
