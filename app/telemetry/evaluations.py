"""What telemetry makes of an evaluation: metrics always; spans for what was escalated, failed or slow, and a share."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager

from app.evaluation.item import Item
from app.evaluation.observe import Ending, Watch
from app.evaluation.plan import AUDIT_REASON, Plan
from app.evaluation.verdict import Verdict
from app.telemetry.evaluation_steps import Layer, evaluation_step
from app.telemetry.labels import CAUSES, bounded, escalation_reasons, providers
from app.telemetry.metrics import LAYER_SPAN_NAMES, Metrics
from app.telemetry.model_calls import ModelCall, collected
from app.telemetry.place import Place, current
from app.telemetry.setup import Telemetry
from app.telemetry.traces import caller_now, emit, is_wanted, parse_traceparent, spanned
from layers.model import (
    DisagreementResult,
    Disposition,
    Failed,
    InstrumentPath,
    JudgeVerdict,
    LayerName,
    Outcome,
    Scored,
    Skipped,
    is_degraded,
)
from layers.ports import System

REPLAYED, GIVEN_UP = "replayed", "given_up"


class EvaluationTelemetry:
    """The observer that the evaluation service is given. The names of `systems` may become metric labels."""

    def __init__(self, telemetry: Telemetry, metrics: Metrics, systems: Mapping[str, System]) -> None:
        self.telemetry = telemetry
        self.metrics = metrics
        profiles = [system.profile for system in systems.values()]
        self.systems = frozenset(systems)
        self.layers = {name: metrics.layer_latency.at(span) for name, span in LAYER_SPAN_NAMES.items()}
        self.reasons = escalation_reasons(profiles)
        self.providers = providers(profiles)
        metrics.evaluations.begin(tuple(systems), (*(each.value for each in Disposition), REPLAYED, GIVEN_UP))
        metrics.evaluations_escalated.begin(tuple(systems))
        metrics.evaluations_degraded.begin(tuple(systems))
        metrics.degraded.begin((LayerName.JUDGE.value,), (InstrumentPath.HEURISTICS_FALLBACK.value,))

    def begin(self, item: Item) -> Watch:
        """Watch one evaluation; its spans hang beneath the request at hand, if there is one."""
        return _Watch(self, item)

    def job(self, work_id: str, caller: str | None = None) -> AbstractContextManager[object]:
        """Accepted work is a trace of its own, which links to the span of whoever asked for it."""
        place = Place(link=parse_traceparent(caller))
        return spanned(self.telemetry, place, "accepted_work", {"work_id": work_id}, always=False)

    def caller(self) -> str | None:
        """The caller's span as it came with the request at hand."""
        return caller_now()


class _Watch:
    __slots__ = ("_calls", "_calls_token", "_item", "_layers", "_owner", "_place", "_started_ns", "_token")

    def __init__(self, owner: EvaluationTelemetry, item: Item) -> None:
        self._owner = owner
        self._item = item
        outer = current.get()
        self._place = Place() if outer is None else outer.beneath()
        self._token = current.set(self._place)
        self._calls: list[ModelCall] = []
        self._calls_token = collected.set(self._calls)
        self._layers: list[Layer] = []
        self._started_ns = time.time_ns()

    def layer(self, name: LayerName, outcome: Outcome, started_ns: int, ended_ns: int) -> None:
        """Note how a layer ended; what becomes of it is decided at the end."""
        self._layers.append((name, outcome, started_ns, ended_ns))

    def end(self, ending: Ending) -> None:
        """Count the evaluation, and keep its trace if it deserves one."""
        ended_ns = time.time_ns()
        current.reset(self._token)
        collected.reset(self._calls_token)
        elapsed_ms = (ended_ns - self._started_ns) / 1e6
        ratio = self._ratio(ending, elapsed_ms)
        kept = ratio >= 1 or random.random() < ratio
        self._count(ending, elapsed_ms, kept=kept)
        if kept:
            self._place.keep()
            step = evaluation_step(
                self._item,
                ending,
                self._layers,
                self._calls,
                span=(self._started_ns, ended_ns),
                ratio=ratio,
                content=self._owner.telemetry.settings.content,
                redact=self._owner.telemetry.redact,
            )
            emit(self._owner.telemetry, self._place, step)

    def _ratio(self, ending: Ending, elapsed_ms: float) -> float:
        """The chance with which an evaluation like this is kept: 1 for all that matters."""
        settings = self._owner.telemetry.settings
        verdict, plan = ending.verdict, ending.plan
        fresh = verdict is not None and plan is not None and (plan.escalate or verdict.degraded)
        if fresh or ending.evaluation_id is None or elapsed_ms >= settings.slow_ms or is_wanted(self._place):
            return 1.0
        return settings.trace_ratio

    def _count(self, ending: Ending, elapsed_ms: float, *, kept: bool) -> None:
        owner, metrics = self._owner, self._owner.metrics
        span = self._place.ref() if kept else None
        for name, outcome, _, _ in self._layers:
            owner.layers[name].record(outcome.elapsed_ms, span)
        system = bounded(self._item.system, owner.systems)
        metrics.evaluation_latency.at(system).record(elapsed_ms, span)
        verdict, plan = ending.verdict, ending.plan
        if verdict is None or plan is None:
            metrics.evaluations.add(system, REPLAYED if ending.evaluation_id else GIVEN_UP)
            return
        metrics.evaluations.add(system, verdict.disposition)
        if verdict.degraded:
            metrics.evaluations_degraded.add(system)
            for layer, outcome in ending.outcomes.items():
                if (cause := _degraded_by(outcome)) is not None:
                    metrics.degraded.add(layer, cause)
        if plan.escalate:
            self._count_escalation(system, plan, verdict)
            self._count_findings(ending.outcomes, verdict)

    def _count_escalation(self, system: str, plan: Plan, verdict: Verdict) -> None:
        metrics = self._owner.metrics
        metrics.evaluations_escalated.add(system)
        for reason in plan.reasons:
            metrics.escalations.add(system, bounded(reason, self._owner.reasons))
        if AUDIT_REASON in plan.reasons:
            metrics.audited.add(system, verdict.disposition)
            if plan.inclusion_probability > 0:
                metrics.audit_estimate.add(system, verdict.disposition, n=1 / plan.inclusion_probability)

    def _count_findings(self, outcomes: Mapping[LayerName, Outcome], verdict: Verdict) -> None:
        metrics = self._owner.metrics
        for outcome in outcomes.values():
            match outcome:
                case Scored(finding=JudgeVerdict() as judged):
                    _count_judge(metrics, judged)
                case (
                    Scored(finding=DisagreementResult(errors_by_provider=errors))
                    | Failed(finding=DisagreementResult(errors_by_provider=errors))
                ):
                    for provider, error in errors.items():
                        known = bounded(provider, self._owner.providers)
                        metrics.provider_errors.add(known, bounded(error.kind, CAUSES))
        if verdict.assurance is not None:
            metrics.rungs.add("answer", verdict.assurance)


def _count_judge(metrics: Metrics, verdict: JudgeVerdict) -> None:
    metrics.judge_outcome.add(verdict.source)
    for attempt in verdict.attempts:
        metrics.judge_attempts.add(attempt.source, attempt.outcome, bounded(attempt.error_type or "none", CAUSES))
    for claim in verdict.claims:
        metrics.rungs.add("claim", claim.rung)


def _degraded_by(outcome: Outcome) -> str | None:
    """The cause, if this layer should have spoken and did not."""
    match outcome:
        case Scored(finding=JudgeVerdict(source=InstrumentPath.HEURISTICS_FALLBACK)):
            return InstrumentPath.HEURISTICS_FALLBACK.value
        case Scored():
            return None
        case Skipped(reason=reason):
            return reason.value if is_degraded(outcome) else None
        case Failed(cause=cause):
            return bounded(cause.kind, CAUSES)
