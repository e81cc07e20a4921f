"""A telemetry whose spans and metrics can be read, and evaluations to put through it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.evaluation.item import Item
from app.evaluation.observe import Ending
from app.evaluation.plan import Plan, Trigger
from app.evaluation.verdict import Verdict
from app.settings import TelemetrySettings
from app.telemetry.evaluations import EvaluationTelemetry
from app.telemetry.metrics import Metrics
from app.telemetry.model_calls import ModelCallTelemetry
from app.telemetry.runs import RunTelemetry
from app.telemetry.setup import Telemetry
from layers.model import (
    Cause,
    Claim,
    Disposition,
    EvalPrediction,
    Failed,
    Flag,
    HeuristicResult,
    InstrumentPath,
    JudgeAttempt,
    JudgeVerdict,
    LayerName,
    Outcome,
    Rung,
    Scored,
)
from layers.ports import System
from layers.profile import SystemProfile
from layers.structured_call import CallRecord

NOW = 1_700_000_000_000_000_000
PROFILE = SystemProfile(
    name="sentinel-l7", labels=("low", "high"), narrative_pointer="/narrative", providers=("gemini",)
)
SYSTEMS = {"sentinel-l7": System(PROFILE)}
NARRATIVE = "Paid by bob@example.com from account 12345678901, token=hunter2secret."


class Kit:
    """Everything telemetry has, with exporters in memory."""

    def __init__(self, *, systems: Mapping[str, System] = SYSTEMS, **settings: Any) -> None:
        self.spans = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.telemetry = Telemetry(TelemetrySettings(**settings), span_exporter=self.spans, metric_reader=self.reader)
        self.metrics = Metrics(self.telemetry)
        self.observer = EvaluationTelemetry(self.telemetry, self.metrics, SYSTEMS)
        self.calls = ModelCallTelemetry(self.telemetry, self.metrics)
        self.runs = RunTelemetry(self.telemetry, self.metrics, systems)

    def finished(self) -> list[ReadableSpan]:
        self.telemetry.tracer_provider.force_flush()
        return list(self.spans.get_finished_spans())

    def by_name(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.finished()}

    def points(self, name: str) -> list[Any]:
        """The metric's data points, those of counters that never rose left out."""
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
            if getattr(point, "value", 1) != 0
        ]

    def counts(self, name: str) -> dict[tuple[str, ...], float]:
        """Value by label values, in the labels' order of names."""
        return {
            tuple(str(value) for _, value in sorted(point.attributes.items())): point.value
            for point in self.points(name)
        }


def item(system: str = "sentinel-l7", prediction_id: str = "txn-1") -> Item:
    raw = {"narrative": NARRATIVE, "api_key": "abcdef123456", "risk_level": "high"}
    prediction = EvalPrediction.model_construct(
        id=prediction_id, metadata={}, raw_output=raw, label="high", confidence=0.5
    )
    return Item(prediction, PROFILE, system, None, b"{}", b"")


def heuristics(*, flagged: bool = True) -> Scored:
    flags = (Flag(rule="low_confidence", reason="low", severity=0.5, pointer="/confidence"),) if flagged else ()
    return Scored(finding=HeuristicResult(flagged=flagged, flags=flags), elapsed_ms=0.2, version="1")


def judged(source: InstrumentPath = InstrumentPath.GEMINI_FLASH) -> Scored:
    attempts = (
        JudgeAttempt(source=InstrumentPath.OLLAMA, outcome="failed", error_type="timeout", elapsed_ms=20.0),
        JudgeAttempt(
            source=InstrumentPath.GEMINI_FLASH, outcome="answered", elapsed_ms=5.0, input_tokens=90, output_tokens=7
        ),
    )
    claims = (Claim(text="c", evidence_ids=("E1",), rung=Rung.ANCHOR_WARRANTED),)
    verdict = JudgeVerdict(
        source=source,
        verdict_label="high",
        agrees=True,
        confidence=0.9,
        reasoning="The customer bob@example.com is known.",
        claims=claims,
        attempts=attempts,
    )
    return Scored(finding=verdict, elapsed_ms=25.0, version="1")


def call(**fields: Any) -> CallRecord:
    known: dict[str, Any] = {
        "prompt": "judge",
        "prompt_version": "3",
        "prompt_sha256": "sha256:0",
        "question": "sha256:1",
        "model": "ollama:qwen3.5:9b-q4_K_M:num_ctx=8192",
        "source": "ollama",
        "outcome": "answered",
        "cached": False,
        "elapsed_ms": 20.0,
    }
    return CallRecord(**{**known, **fields})


CALLS = (
    call(outcome="timeout", error="DependencyUnavailable", message="no answer to bob@example.com in time"),
    call(model="gemini:gemini-2.0-flash", source="gemini_flash", input_tokens=90, output_tokens=7, elapsed_ms=5.0),
)


def ended(
    outcomes: Mapping[LayerName, Outcome],
    *,
    disposition: Disposition = Disposition.FLAG,
    degraded: bool = False,
    reasons: tuple[str, ...] = ("heuristics:low_confidence",),
    probability: float = 1.0,
) -> Ending:
    trigger = Trigger.SOFT if reasons else Trigger.NONE
    verdict = Verdict(disposition, "flagged_and_confirmed", degraded, 0.7, Rung.ANCHOR_WARRANTED, None)
    return Ending("e-1", Plan(trigger, reasons, probability), verdict, outcomes)


def cheap(kit: Kit, system: str = "sentinel-l7") -> None:
    """An unflagged evaluation."""
    watch = kit.observer.begin(item(system))
    watch.layer(LayerName.HEURISTICS, heuristics(flagged=False), NOW, NOW)
    watch.end(ended({LayerName.HEURISTICS: heuristics(flagged=False)}, disposition=Disposition.PASS, reasons=()))


def escalated(kit: Kit, judge: Outcome | None = None, **ending: Any) -> None:
    """A flagged one, judged by the second of two models."""
    outcomes: dict[LayerName, Outcome] = {LayerName.HEURISTICS: heuristics(), LayerName.JUDGE: judge or judged()}
    watch = kit.observer.begin(item())
    watch.layer(LayerName.HEURISTICS, outcomes[LayerName.HEURISTICS], NOW, NOW + 200_000)
    for record in CALLS:
        kit.calls(record)
    watch.layer(LayerName.JUDGE, outcomes[LayerName.JUDGE], NOW, NOW + 25_000_000)
    watch.end(ended(outcomes, **ending))


def failed(kind: str = "timeout") -> Failed:
    cause = Cause(kind=kind, message="no answer", dependency="ollama.judge")
    return Failed(cause=cause, elapsed_ms=1, version="1")
