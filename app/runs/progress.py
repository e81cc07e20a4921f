"""How far a run is and when it will be through, from its counts and times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

from app.runs.model import BUSY, TERMINAL, Progress, Run, links_of
from app.runs.store import StoredRun

Outlook: TypeAlias = Callable[[int], float]


def progress_of(
    run: StoredRun, n_scored: int, n_failed: int, measured: float | None, outlook: Outlook | None = None
) -> Progress:
    """`measured` is the rate of late, where this process alone works on the run; else its average is shown.

    `outlook` tells when the system's rate limit may have let so many more questions through.
    """
    n_done = n_scored + n_failed
    rate = measured if measured is not None else _average(run, n_done)
    eta = _eta(run.n_total - n_done, rate, outlook) if run.status in BUSY else None
    return Progress(
        n_total=run.n_total,
        n_done=n_done,
        n_scored=n_scored,
        n_failed=n_failed,
        rate_per_s=None if rate is None else round(rate, 3),
        eta_s=None if eta is None else round(eta, 1),
    )


def _eta(n_left: int, rate: float | None, outlook: Outlook | None) -> float | None:
    """Where the limit holds the next question back, it alone decides: what was measured is its bursts and pauses."""
    limited = outlook(n_left) if outlook is not None else 0.0
    if limited > 0 and outlook is not None and (rate is None or outlook(1) > 0):
        return limited
    return max(limited, n_left / rate) if rate else None


def _average(run: StoredRun, n_done: int) -> float | None:
    if run.started_at is None or n_done == 0:
        return None
    end = datetime.fromisoformat(run.finished_at) if run.finished_at else datetime.now(UTC)
    if run.attempts > 1:
        return None  # most of what is done was done by earlier attempts
    elapsed = (end - datetime.fromisoformat(run.started_at)).total_seconds()
    if run.status not in BUSY and run.status not in TERMINAL:
        return None  # paused: time goes by and says nothing
    return n_done / elapsed if elapsed > 0 else None


def resource_of(run: StoredRun, progress: Progress) -> Run:
    """The run as callers see it."""
    return Run(
        run_id=run.run_id,
        name=run.name,
        system=run.system,
        status=run.status,
        failure=run.failure,
        dataset_id=run.dataset_id,
        options=run.config.options,
        labels=run.config.labels,
        progress=progress,
        created_at=run.created_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        attempts=run.attempts,
        code_version=run.config.code_version,
        links=links_of(run.run_id),
    )
