"""What telemetry makes of gates and of binding verdicts."""

from __future__ import annotations

from collections.abc import Collection

from app.gates.model import GateVerdict, Status
from app.telemetry.labels import bounded
from app.telemetry.metrics import Metrics


class DecisionTelemetry:
    """Counts what gates and the arbiter said. The names of `systems` may become metric labels."""

    def __init__(self, metrics: Metrics, systems: Collection[str]) -> None:
        self._metrics = metrics
        self._systems = systems
        metrics.gate_verdicts.begin(tuple(systems), [status.value for status in Status])
        metrics.gate_rules.begin([status.value for status in Status])

    def gate(self, system: str, verdict: GateVerdict) -> None:
        """A run was judged by a policy; shows what it fixed and broke, where it was compared with a baseline."""
        system = bounded(system, self._systems)
        self._metrics.gate_verdicts.add(system, verdict.verdict)
        for rule in verdict.rules:
            self._metrics.gate_rules.add(rule.status)
        if verdict.comparison is not None:
            contrast = verdict.comparison.strict
            for change, n in (("fixed", contrast.corrected), ("broke", contrast.broke)):
                self._metrics.run_changes.set(n, {"system": system, "change": change})

    def verdict(self, verdict: str) -> None:
        """An artifact was accepted or blocked."""
        self._metrics.verdicts.add(bounded(verdict, ("accept", "block")))
