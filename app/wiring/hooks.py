"""What is counted and logged of calls to remotes."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from adapters.breaker import CircuitBreaker, Transition
from adapters.http import CallEvent
from app.telemetry.labels import CAUSES, bounded
from app.telemetry.metrics import Metrics
from app.telemetry.place import current
from app.telemetry.traces import is_wanted, propagate
from app.wiring.remotes import Hooks

log = logging.getLogger("arbiter.dependencies")

STATES = ("closed", "half_open", "open")


def telemetry_hooks(metrics: Metrics) -> Hooks:
    """Count each attempt by cause, each change of a breaker once, and pass the trace on.

    Remotes are named by the operator's settings, so their names are labels as they stand.
    """

    def observe(event: CallEvent) -> None:
        place = current.get()
        span = place.ref() if place is not None and is_wanted(place) else None
        metrics.dependency_latency.at(event.dependency, event.lane).record(event.seconds * 1000, span)
        metrics.dependency_calls.add(event.dependency, event.lane)
        if event.kind != "ok":
            metrics.dependency_errors.add(event.dependency, bounded(event.kind, CAUSES))

    return Hooks(observe=observe, propagate=propagate, on_transition=lambda change: _on_transition(metrics, change))


def _on_transition(metrics: Metrics, change: Transition) -> None:
    """A remote's trouble is told once, when its circuit changes: not for every call that fails meanwhile."""
    metrics.breaker_transitions.add(change.name, change.after)
    level = logging.WARNING if change.after == "open" else logging.INFO
    log.log(
        level,
        "circuit %s: %s -> %s (%d of %d calls failed)",
        change.name,
        change.before,
        change.after,
        change.failures,
        change.calls,
        extra={"breaker": change.name, "state": change.after},
    )


def show_breakers(metrics: Metrics, breakers: Mapping[str, CircuitBreaker]) -> None:
    """Show for each breaker the state that it is in; the series of a state exist from the start."""
    metrics.breaker_transitions.begin(tuple(breakers), STATES)
    metrics.breaker_state.show(
        lambda: [
            (float(breaker.state() == state), {"breaker": name, "state": state})
            for name, breaker in breakers.items()
            for state in STATES
        ]
    )
