"""What is counted and logged of calls to remotes."""

from __future__ import annotations

import logging

from adapters.breaker import Transition
from adapters.http import CallEvent
from app.telemetry.metrics import Metrics
from app.telemetry.traces import propagate
from app.wiring.remotes import Hooks

log = logging.getLogger("arbiter.dependencies")


def telemetry_hooks(metrics: Metrics) -> Hooks:
    """Count each attempt by cause, each change of a breaker once, and pass the trace on."""

    def observe(event: CallEvent) -> None:
        metrics.dependency_latency.record(event.seconds * 1000, {"dependency": event.dependency, "lane": event.lane})
        if event.kind != "ok":
            metrics.dependency_errors.add(1, {"dependency": event.dependency, "cause": event.kind})

    def on_transition(change: Transition) -> None:
        metrics.breaker_transitions.add(1, {"breaker": change.name, "state": change.after})
        level = logging.INFO if change.after == "closed" else logging.WARNING
        log.log(
            level,
            "circuit %s: %s -> %s (%d of %d calls failed)",
            change.name,
            change.before,
            change.after,
            change.failures,
            change.calls,
        )

    return Hooks(observe=observe, propagate=propagate, on_transition=on_transition)
