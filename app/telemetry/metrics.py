"""The instruments of the service. Names that existing dashboards use are marked and must stay."""

from __future__ import annotations

from collections.abc import Collection

from opentelemetry.metrics import Histogram, Meter

LATENCY_BUCKETS_MS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 75_000)

REQUEST_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 75)

LAYER_SPAN_NAMES = {
    "heuristics": "heuristics_check",
    "narrative_grounding": "narrative_grounding",
    "disagreement": "cross_provider_disagreement",
    "consistency": "embedding_consistency",
    "judge": "judge_call",
}
"""Layer names as spans and as the `layer` attribute of the latency histogram (kept from before)."""


def bounded(value: str | None, known: Collection[str]) -> str:
    """`value` if it is among `known`, else `other`: caller-made text never becomes a time series."""
    return value if value is not None and value in known else "other"


def _milliseconds(meter: Meter, name: str, description: str) -> Histogram:
    return meter.create_histogram(name, "ms", description, explicit_bucket_boundaries_advisory=LATENCY_BUCKETS_MS)


class Metrics:
    """All instruments, made once."""

    def __init__(self, meter: Meter) -> None:
        # kept: existing dashboards read these three
        self.judge_outcome = meter.create_counter("arbiter_l8.judge.outcome", description="Verdicts by who gave them")
        self.layer_latency = _milliseconds(meter, "arbiter_l8.layer.latency", "Time of one layer")
        self.harness_metric = meter.create_gauge("arbiter_l8.harness.metric", description="Metrics of the latest run")
        self.evaluations = meter.create_counter("arbiter_l8.evaluations", description="By system and disposition")
        self.evaluation_latency = _milliseconds(meter, "arbiter_l8.evaluation.latency", "Time of one evaluation")
        self.degraded = meter.create_counter("arbiter_l8.degraded", description="Layers that should have spoken")
        self.escalations = meter.create_counter("arbiter_l8.escalations", description="By reason")
        self.breaker_transitions = meter.create_counter("arbiter_l8.breaker.transitions", description="By new state")
        self.dependency_errors = meter.create_counter("arbiter_l8.dependency.errors", description="By cause")
        self.dependency_latency = _milliseconds(meter, "arbiter_l8.dependency.latency", "Time of one call to a remote")
        self.judge_attempts = meter.create_counter("arbiter_l8.judge.attempts", description="By source and outcome")
        self.judge_tokens = meter.create_counter("arbiter_l8.judge.tokens", description="By source and direction")
        self.http_requests = meter.create_histogram(
            "http.server.request.duration",
            "s",
            "Duration of HTTP server requests",
            explicit_bucket_boundaries_advisory=REQUEST_BUCKETS_S,
        )
        self.runs = meter.create_counter("arbiter_l8.runs", description="Runs ended, by system and status")
        self.run_examples = meter.create_counter("arbiter_l8.run.examples", description="Examples done, by status")
