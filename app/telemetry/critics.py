"""What telemetry makes of rows under a critic: how they ended, what the gate made of challenges, what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from app.runs.model import Record
from app.telemetry.labels import OTHER, bounded
from app.telemetry.metrics import SOURCES, Metrics
from layers.critic import Discard, State
from layers.model import InstrumentPath
from layers.ports import System

PIPELINE = "critic"
ROLES = ("triage", "classifier", "critic")
RULINGS = ("accepted", "admitted", *(discard.value for discard in Discard))
STATES = tuple(state.value for state in State)
MODELS = tuple(source for source in SOURCES if source != InstrumentPath.HEURISTICS_FALLBACK)
_ASKED = {"triage": "triage", "label": "classifier", "review": "critic"}
"""Who was asked where an event of this kind stands in a trail."""


class CriticTelemetry:
    """Counts rows of those `systems` that have a critic, as they are recorded. The instrument is the classifier's."""

    def __init__(self, metrics: Metrics, systems: Mapping[str, System]) -> None:
        self._metrics = metrics
        self._reviewed = frozenset(name for name, system in systems.items() if PIPELINE in system.pipelines)
        self._instruments = frozenset((*SOURCES, *systems))
        for tally, ends in (
            (metrics.critic_rows, STATES),
            (metrics.critic_bounces, STATES),
            (metrics.critic_reviews, RULINGS),
            (metrics.critic_calls, ROLES),
        ):
            tally.begin(self._reviewed, MODELS, ends)

    def recorded(self, system: str, record: Record) -> None:
        """A row was recorded. One of another pipeline, or one that failed, has no state and is not counted here."""
        prediction = record.prediction
        if system not in self._reviewed or prediction is None:
            return
        state = prediction.metadata.get("state")
        if state is None:
            return
        metrics = self._metrics
        instrument = bounded(_text(prediction.metadata.get("instrument_path")), self._instruments)
        state = bounded(_text(state), STATES)
        trail = list(_events(prediction.raw_output.get("audit")))
        metrics.critic_rows.add(system, instrument, state)
        for role, n in Counter(_ASKED[kind] for event in trail if (kind := event["event"]) in _ASKED).items():
            metrics.critic_calls.add(system, instrument, role, n=n)
        for event in trail:
            if event["event"] == "bounce":
                metrics.critic_bounces.add(system, instrument, state)
            elif event["event"] == "review" and event.get("pass") == 1:
                metrics.critic_reviews.add(system, instrument, _ruling(event))


def _ruling(event: Mapping[str, Any]) -> str:
    """What the gate made of a review: a challenge let through, none raised, or why it was thrown away."""
    if event.get("admitted") is True:
        return "admitted"
    if event.get("discarded") is None:
        return "accepted" if event.get("decision") == "accept" else OTHER
    return bounded(_text(event["discarded"]), RULINGS)


def _events(audit: Any) -> Iterator[Mapping[str, Any]]:
    for event in audit if isinstance(audit, list) else ():
        if isinstance(event, Mapping) and isinstance(event.get("event"), str):
            yield event


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
