"""How far a run is and when it will be through, from its counts and times."""

from __future__ import annotations

from datetime import UTC, datetime

from app.runs.model import BUSY, TERMINAL, Progress, Run, links_of
from app.runs.store import StoredRun


def progress_of(run: StoredRun, n_scored: int, n_failed: int, measured: float | None) -> Progress:
    """`measured` is the rate of late, where the run is worked on in this process; else its average is shown."""
    n_done = n_scored + n_failed
    rate = measured if measured is not None else _average(run, n_done)
    eta = (run.n_total - n_done) / rate if rate and run.status in BUSY else None
    return Progress(
        n_total=run.n_total,
        n_done=n_done,
        n_scored=n_scored,
        n_failed=n_failed,
        rate_per_s=None if rate is None else round(rate, 3),
        eta_s=None if eta is None else round(eta, 1),
    )


def _average(run: StoredRun, n_done: int) -> float | None:
    if run.started_at is None or n_done == 0:
        return None
    end = datetime.fromisoformat(run.finished_at) if run.finished_at else datetime.now(UTC)
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
