"""How long a run still takes: by its speed, or by what the system's rate limit allows."""

from __future__ import annotations

import dataclasses

import pytest

from adapters.limits import LocalLimiter
from app.runs.dataset_store import StoredDataset
from app.runs.model import RunStatus
from app.runs.progress import progress_of
from app.runs.store import StoredRun
from app.runs.submission import new_run
from app.settings import RunSettings
from tests.runs import PROFILE, request

pytestmark = pytest.mark.anyio


def a_run(size: int, **fields: object) -> StoredRun:
    run = new_run(request(), StoredDataset(1, "sha256:" + "0" * 64, size), PROFILE, RunSettings(), "test")
    return dataclasses.replace(run, **{"status": RunStatus.RUNNING, **fields})


def test_without_a_limit_the_speed_decides() -> None:
    assert progress_of(a_run(200), 50, 0, 10.0).eta_s == 15.0
    assert progress_of(a_run(200), 50, 0, 10.0, lambda _: 0.0).eta_s == 15.0
    assert progress_of(a_run(200), 0, 0, None).eta_s is None
    assert progress_of(a_run(200, status=RunStatus.PAUSED), 50, 0, 10.0).eta_s is None


def test_a_slow_system_decides_where_the_limit_is_far() -> None:
    assert progress_of(a_run(200), 50, 0, 0.5, lambda n: max(0.0, n - 60) / 1.0).eta_s == 300.0


@pytest.mark.parametrize("measured", [None, 25.0, 0.01], ids=["at once", "in a burst", "in a pause"])
async def test_200_examples_at_60_a_minute_take_about_200_seconds(measured) -> None:
    """Before the first answer, after the first burst and in the silence that follows it."""
    now = 0.0
    limiter = LocalLimiter("sentinel", slots=99, rate_per_minute=60, clock=lambda: now)
    done = 0
    if measured is not None:
        for _ in range(48):  # all that runs may have of the first minute
            await limiter.acquire("run", None, lambda: None)
        done, now = 48, 5.0
    eta = progress_of(a_run(200), done, 0, measured, lambda n: limiter.outlook("run", n)).eta_s
    assert eta is not None
    assert 180 < eta < 250


def test_a_new_attempt_does_not_brag_with_what_earlier_ones_did() -> None:
    run = a_run(200, attempts=2, started_at="2026-01-01T00:00:00.000000Z")
    assert progress_of(run, 199, 0, None).rate_per_s is None
