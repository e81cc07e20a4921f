"""The instruments of the service. Names that existing dashboards use are marked and must stay."""

from __future__ import annotations

from opentelemetry.metrics import Meter

from app.telemetry.histogram import Histogram
from app.telemetry.setup import Telemetry
from app.telemetry.tally import Shown, Tally
from layers.model import InstrumentPath, LayerName, Rung

LATENCY_BUCKETS_MS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 75_000)

REQUEST_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 75)

LAYER_SPAN_NAMES: dict[LayerName, str] = {
    LayerName.HEURISTICS: "heuristics_check",
    LayerName.NARRATIVE_GROUNDING: "narrative_grounding",
    LayerName.DISAGREEMENT: "cross_provider_disagreement",
    LayerName.CONSISTENCY: "embedding_consistency",
    LayerName.JUDGE: "judge_call",
}
"""Layer names as spans and as the `layer` attribute of the latency histogram (kept from before)."""

SOURCES = tuple(source.value for source in InstrumentPath)
RUNGS = tuple(rung.value for rung in Rung)


class Metrics:
    """All instruments, made once."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._histograms, meter = telemetry.histograms, telemetry.meter
        self._evaluations(meter)
        self._judging(meter)
        self._dependencies(meter)
        self._offline(meter)
        self._critics(meter)
        self._service(meter)

    def _latency(self, name: str, description: str, *labels: str) -> Histogram:
        return self._histograms.make(name, "ms", description, LATENCY_BUCKETS_MS, *labels)

    def _evaluations(self, meter: Meter) -> None:
        # kept: existing dashboards read it
        self.layer_latency = self._latency("arbiter_l8.layer.latency", "Time of one layer", "layer")
        self.evaluation_latency = self._latency("arbiter_l8.evaluation.latency", "Time of one evaluation", "system")
        self.evaluations = Tally(
            meter, "arbiter_l8.evaluations", ("system", "disposition"), "Evaluations by system and disposition"
        )
        self.degraded = Tally(
            meter, "arbiter_l8.degraded", ("layer", "cause"), "Layers that should have spoken and did not, by cause"
        )
        self.evaluations_degraded = Tally(
            meter, "arbiter_l8.evaluations.degraded", ("system",), "Evaluations in which a layer that should have "
            "spoken did not",
        )  # fmt: skip
        self.escalations = Tally(
            meter, "arbiter_l8.escalations", ("system", "reason"), "Reasons for looking closer; one item may have many"
        )
        self.evaluations_escalated = Tally(
            meter, "arbiter_l8.evaluations.escalated", ("system",), "Evaluations that were escalated"
        )
        self.audited = Tally(
            meter, "arbiter_l8.audit.examined", ("system", "disposition"), "Items of the audit sample, fully looked at"
        )
        self.audit_estimate = Tally(
            meter,
            "arbiter_l8.audit.estimated",
            ("system", "disposition"),
            "The sample weighted by its chances: what a full look at every unflagged item would have said",
        )

    def _judging(self, meter: Meter) -> None:
        # kept: existing dashboards read it
        self.judge_outcome = Tally(
            meter, "arbiter_l8.judge.outcome", ("source",), "Judge verdicts by who gave them", known=(SOURCES,)
        )
        self.judge_attempts = Tally(
            meter,
            "arbiter_l8.judge.attempts",
            ("source", "outcome", "error_type"),
            "Judges asked in evaluations, by how it ended",
        )
        self.model_calls = Tally(
            meter,
            "arbiter_l8.model.calls",
            ("prompt", "source", "outcome", "cached"),
            "Questions to models, by prompt; cached = answered without asking",
        )
        self.judge_tokens = Tally(
            meter,
            "arbiter_l8.judge.tokens",
            ("prompt", "source", "direction"),
            "Tokens spent; an answer from the cache spends none",
        )
        self.rungs = Tally(
            meter,
            "arbiter_l8.grounding.rungs",
            ("of", "rung"),
            "How much was checked of a judge's claims, and of its answers as a whole",
            known=(("claim", "answer"), RUNGS),
        )

    def _dependencies(self, meter: Meter) -> None:
        self.breaker_state = Shown(meter, "arbiter_l8.breaker.state", "1 for the state that the breaker is in, else 0")
        self.breaker_transitions = Tally(
            meter, "arbiter_l8.breaker.transitions", ("breaker", "state"), "Changes of breakers, by new state"
        )
        self.dependency_calls = Tally(
            meter, "arbiter_l8.dependency.calls", ("dependency", "lane"), "Attempts to call a remote"
        )
        self.dependency_errors = Tally(
            meter, "arbiter_l8.dependency.errors", ("dependency", "cause"), "Attempts that failed, by cause"
        )
        self.dependency_latency = self._latency(
            "arbiter_l8.dependency.latency", "Time of one attempt", "dependency", "lane"
        )
        self.provider_errors = Tally(
            meter, "arbiter_l8.provider.errors", ("provider", "cause"), "Providers that gave no label, by cause"
        )

    def _offline(self, meter: Meter) -> None:
        # kept: existing dashboards read it
        self.harness_metric = meter.create_gauge("arbiter_l8.harness.metric", description="Figures of the latest run")
        self.runs = Tally(meter, "arbiter_l8.runs", ("system", "status"), "Runs that ended, by status")
        self.run_examples = Tally(
            meter, "arbiter_l8.run.examples", ("system", "status"), "Examples recorded, scored or failed"
        )
        self.run_errors = Tally(
            meter, "arbiter_l8.run.errors", ("system", "cause"), "Examples that failed, by cause"
        )  # fmt: skip
        self.runs_active = Shown(meter, "arbiter_l8.run.active", "Runs that this process works on")
        self.run_progress = Shown(meter, "arbiter_l8.run.progress", "Share done of the runs worked on")
        self.run_remaining = Shown(meter, "arbiter_l8.run.remaining", "Examples that the runs worked on still have")
        self.run_changes = meter.create_gauge(
            "arbiter_l8.run.changes", description="Examples that the latest judged run fixed or broke"
        )
        self.gate_verdicts = Tally(
            meter, "arbiter_l8.gate.verdicts", ("system", "verdict"), "Gates of runs, by verdict"
        )
        self.gate_rules = Tally(meter, "arbiter_l8.gate.rules", ("status",), "Rules of those gates, by what they said")
        self.verdicts = Tally(
            meter, "arbiter_l8.verdicts", ("verdict",), "Binding verdicts on artifacts", known=(("accept", "block"),)
        )

    def _critics(self, meter: Meter) -> None:
        own = ("system", "instrument")
        self.critic_rows = Tally(meter, "arbiter_l8.critic.rows", (*own, "state"), "Rows under a critic, by their end")
        self.critic_reviews = Tally(
            meter, "arbiter_l8.critic.reviews", (*own, "ruling"), "First reviews, by what the gate made of them"
        )
        self.critic_bounces = Tally(
            meter, "arbiter_l8.critic.bounces", (*own, "state"), "Rows asked once more, by how they ended"
        )
        self.critic_calls = Tally(
            meter, "arbiter_l8.critic.calls", (*own, "role"), "Questions that recorded rows took, by who was asked"
        )

    def _service(self, meter: Meter) -> None:
        self.http_requests = self._histograms.make(
            "http.server.request.duration",
            "s",
            "Duration of HTTP server requests",
            REQUEST_BUCKETS_S,
            "http.request.method",
            "http.route",
            "http.response.status_code",
        )
        self.http_active = Shown(meter, "http.server.active_requests", "Requests under way, streams not counted")
        self.queue_depth = Shown(meter, "arbiter_l8.queue.depth", "Work that was accepted and is not done")
        self.queue_age = Shown(meter, "arbiter_l8.queue.observed_age", "Age of the queue's last count", unit="s")
        self.store_commits = Shown(meter, "arbiter_l8.store.commits", "Transactions written", counter=True)
        self.store_jobs = Shown(meter, "arbiter_l8.store.jobs", "Pieces of work in those transactions", counter=True)
        self.store_seconds = Shown(
            meter, "arbiter_l8.store.busy", "Time the writer spent in transactions", unit="s", counter=True
        )
        self.store_failures = Shown(meter, "arbiter_l8.store.failures", "Transactions that failed", counter=True)
        self.streams = Shown(meter, "arbiter_l8.sse.streams", "Event streams that are open")
        self.stream_events = Tally(meter, "arbiter_l8.sse.events", ("route",), "Pieces sent on event streams")
