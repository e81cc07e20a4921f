"""What telemetry makes of runs: progress while they go on, the figures of the harness when they end."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Literal

from app.runs.metrics import score
from app.runs.model import TERMINAL, Record, RunStatus
from app.runs.observe import UnderWay
from app.runs.store import StoredRun
from app.runs.tally import Tally
from app.telemetry.critics import CriticTelemetry
from app.telemetry.labels import CAUSES, OTHER, bounded
from app.telemetry.metrics import Metrics
from app.telemetry.place import Place
from app.telemetry.setup import Telemetry
from app.telemetry.traces import spanned
from layers.ports import System

OVERALL = "overall"


class RunTelemetry:
    """The observer that the service of runs is given. The names of `systems` may become metric labels."""

    def __init__(self, telemetry: Telemetry, metrics: Metrics, systems: Mapping[str, System]) -> None:
        self._telemetry = telemetry
        self._metrics = metrics
        self._systems = systems
        self._critics = CriticTelemetry(metrics, systems)
        metrics.runs.begin(tuple(systems), [status.value for status in TERMINAL])
        metrics.run_examples.begin(tuple(systems), ("scored", "failed"))

    def step(self, run_id: str) -> AbstractContextManager[object]:
        """All work on a run, by whatever process, belongs to the one trace that its id names."""
        place = Place(trace_id=trace_of(run_id))
        return spanned(self._telemetry, place, "run_step", {"run_id": run_id}, always=True)

    def recorded(self, system: str, record: Record) -> None:
        """Count an example."""
        system = bounded(system, self._systems)
        self._metrics.run_examples.add(system, record.status)
        if record.error is not None:
            self._metrics.run_errors.add(system, bounded(record.error.kind, CAUSES))
        self._critics.recorded(system, record)

    def ended(self, run: StoredRun, tally: Tally) -> None:
        """Count the run; of one that succeeded, show the figures until the next one of its system ends."""
        system = bounded(run.system, self._systems)
        self._metrics.runs.add(system, run.status)
        if run.status is RunStatus.SUCCEEDED:
            profile = run.config.profile
            labels = {profile.fold(label) for label in profile.labels}
            for metric, label, value in harness_figures(tally, labels):
                values = {"metric": metric, "label": label, "system": system}
                self._metrics.harness_metric.set(value, values)

    def follow(self, look: Callable[[], list[UnderWay]]) -> None:
        """Show the runs under way, by system."""

        def sums(part: Literal["active", "progress", "remaining"]) -> list[tuple[float, dict[str, str]]]:
            by_system: dict[str, list[UnderWay]] = {name: [] for name in self._systems}
            for run in look():
                by_system.setdefault(bounded(run.system, self._systems), []).append(run)
            return [
                (value, {"system": name})
                for name, runs in by_system.items()
                if (value := _PARTS[part](runs)) is not None
            ]

        self._metrics.runs_active.show(lambda: sums("active"))
        self._metrics.run_progress.show(lambda: sums("progress"))
        self._metrics.run_remaining.show(lambda: sums("remaining"))


def _progress(runs: list[UnderWay]) -> float | None:
    """The share that is done; None where nothing is under way, which is neither 0 nor 1."""
    total = sum(run.n_total for run in runs)
    return sum(run.n_done for run in runs) / total if total else None


_PARTS: dict[str, Callable[[list[UnderWay]], float | None]] = {
    "active": len,
    "progress": _progress,
    "remaining": lambda runs: sum(run.n_total - run.n_done for run in runs),
}


def trace_of(run_id: str) -> int | None:
    """The trace that a run's work belongs to: its id is as good a random number as any."""
    try:
        return uuid.UUID(run_id).int or None
    except ValueError:
        return None


def harness_figures(tally: Tally, labels: Collection[str]) -> list[tuple[str, str, float]]:
    """(metric, label, value) of a run, without what is undefined.

    Labels that are not among `labels` are counted together as `other`: precision there is the share of predictions of
    any such label that were right, recall the share of examples with any such label that were found.
    """
    scores = score(tally, labels)
    found = [("accuracy", OVERALL, scores.accuracy)]
    for row in scores.per_label:
        if row.label in labels:
            found += [
                ("precision", row.label, row.precision),
                ("recall", row.label, row.recall),
                ("f1", row.label, row.f1),
            ]
    right = predicted = expected = 0
    for (wanted, given), n in tally.scored.items():
        right += n if wanted == given and wanted not in labels else 0
        predicted += n if given not in labels else 0
        expected += n if wanted not in labels else 0
    found += [
        ("precision", OTHER, right / predicted if predicted else None),
        ("recall", OTHER, right / expected if expected else None),
        ("f1", OTHER, 2 * right / (predicted + expected) if predicted + expected else None),
    ]
    return [(metric, label, value) for metric, label, value in found if value is not None]
