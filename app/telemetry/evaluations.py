"""What telemetry makes of an evaluation: metrics always; spans for what was escalated, failed or slow, and a share."""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from typing import Any

from app.evaluation.observe import Watch
from app.telemetry.metrics import LAYER_SPAN_NAMES, Metrics, bounded
from app.telemetry.setup import Telemetry
from app.telemetry.traces import Root, Step, current, emit
from layers.model import (
    Failed,
    HeuristicResult,
    JudgeAttempt,
    JudgeVerdict,
    LayerName,
    NarrativeGroundingResult,
    Outcome,
    Scored,
    Skipped,
    is_degraded,
)

ATTEMPT_SPANS = {
    "ollama": "ollama_attempt",
    "gemini_flash": "flash_attempt",
    "openai_compatible": "openai_attempt",
    "heuristics_fallback": "heuristics_fallback",
}
PROVIDERS = {"ollama": "ollama", "gemini_flash": "gcp.gemini", "openai_compatible": "openai"}


class EvaluationTelemetry:
    """The observer that the evaluation service is given. `systems` are the names that may become metric labels."""

    def __init__(self, telemetry: Telemetry, metrics: Metrics, systems: Collection[str]) -> None:
        self.telemetry = telemetry
        self.metrics = metrics
        self.systems = frozenset(systems)

    def begin(self, system: str, prediction_id: str) -> Watch:
        """Watch one evaluation; its spans hang beneath the request at hand, if there is one."""
        root = current.get()
        if root is None:
            return _Watch(self, system, prediction_id, Root(), inside_request=False)
        return _Watch(self, system, prediction_id, root, inside_request=True)


class _Watch:
    def __init__(
        self, owner: EvaluationTelemetry, system: str, prediction_id: str, root: Root, *, inside_request: bool
    ) -> None:
        self._owner = owner
        self._system = system
        self._prediction_id = prediction_id
        self._root = root
        self._inside_request = inside_request
        self._token = None if inside_request else current.set(root)
        self._started_ns = time.time_ns()
        self._layers: list[tuple[LayerName, Outcome, int, int]] = []

    def layer(self, name: LayerName, outcome: Outcome, started_ns: int, ended_ns: int) -> None:
        """Note how a layer ended; metrics now, spans perhaps later."""
        self._layers.append((name, outcome, started_ns, ended_ns))
        metrics = self._owner.metrics
        metrics.layer_latency.record(outcome.elapsed_ms, {"layer": LAYER_SPAN_NAMES[name]})
        if isinstance(outcome, Scored) and isinstance(outcome.finding, JudgeVerdict):
            _count_judge(metrics, outcome.finding)
        if is_degraded(outcome):
            metrics.degraded.add(1, {"layer": name.value, "cause": _cause(outcome) or "unknown"})

    def end(self, *, evaluation_id: str | None, disposition: str | None, escalated: bool, degraded: bool) -> None:
        """Count the evaluation, and keep its trace if it deserves one."""
        ended_ns = time.time_ns()
        if self._token is not None:
            current.reset(self._token)
        metrics, settings = self._owner.metrics, self._owner.telemetry.settings
        elapsed_ms = (ended_ns - self._started_ns) / 1e6
        system = bounded(self._system, self._owner.systems)
        metrics.evaluations.add(1, {"system": system, "disposition": disposition or "none"})
        metrics.evaluation_latency.record(elapsed_ms, {"system": system})
        matters = escalated or degraded or evaluation_id is None or elapsed_ms >= settings.slow_ms
        ratio = 1.0 if matters else settings.trace_ratio
        if not (matters or self._root.worth_keeping or random.random() < ratio):
            return
        values = {
            "prediction_id": self._prediction_id,
            "evaluation_id": evaluation_id,
            "system": self._system,
            "disposition": disposition,
            "escalated": escalated,
            "degraded": degraded,
            "arbiter.sampling.ratio": ratio,
        }
        self._keep(ended_ns, values, failed=evaluation_id is None)

    def _keep(self, ended_ns: int, values: dict[str, Any], *, failed: bool) -> None:
        layers = tuple(_layer_step(*entry) for entry in self._layers)
        flags = [flag for entry in self._layers for flag in _flags(entry[1])]
        values |= {"flags": flags, "instrument_path": _instrument_path(self._layers)}
        error = "given_up" if failed else None
        step = Step("evaluate_item", self._started_ns, ended_ns, values, error, steps=layers)
        if self._inside_request:
            self._root.steps.append(step)
            self._root.worth_keeping = True
        else:
            emit(self._owner.telemetry, self._root, step)


def _layer_step(name: LayerName, outcome: Outcome, started_ns: int, ended_ns: int) -> Step:
    values: dict[str, Any] = {"layer": name.value, "status": outcome.status, "version": outcome.version}
    steps: tuple[Step, ...] = ()
    error = None
    match outcome:
        case Scored(finding=finding):
            if isinstance(finding, JudgeVerdict):
                values |= {"instrument_path": finding.source.value, "agrees": finding.agrees, "cached": finding.cached}
                steps = tuple(_attempt_steps(finding.attempts, started_ns))
        case Skipped(reason=reason):
            values["reason"] = reason.value
        case Failed(cause=cause):
            error = cause.kind
            values |= {"exception.type": cause.kind, "exception.message": cause.message}
            values["dependency"] = cause.dependency
    return Step(LAYER_SPAN_NAMES[name], started_ns, ended_ns, values, error, steps=steps)


def _attempt_steps(attempts: tuple[JudgeAttempt, ...], started_ns: int) -> list[Step]:
    """Attempts follow one another, so each begins where the one before ended."""
    steps = []
    for attempt in attempts:
        ended_ns = started_ns + int(attempt.elapsed_ms * 1e6)
        values = {
            "outcome": attempt.outcome,
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDERS.get(attempt.source.value),
            "gen_ai.usage.input_tokens": attempt.input_tokens,
            "gen_ai.usage.output_tokens": attempt.output_tokens,
        }
        name = ATTEMPT_SPANS[attempt.source.value]
        steps.append(Step(name, started_ns, ended_ns, values, attempt.error_type))
        started_ns = ended_ns
    return steps


def _count_judge(metrics: Metrics, verdict: JudgeVerdict) -> None:
    metrics.judge_outcome.add(1, {"source": verdict.source.value})
    for attempt in verdict.attempts:
        metrics.judge_attempts.add(
            1,
            {"source": attempt.source.value, "outcome": attempt.outcome, "error_type": attempt.error_type or "none"},
        )
        for direction, tokens in (("input", attempt.input_tokens), ("output", attempt.output_tokens)):
            if tokens is not None:
                metrics.judge_tokens.add(tokens, {"source": attempt.source.value, "direction": direction})


def _cause(outcome: Outcome) -> str | None:
    match outcome:
        case Scored():
            return None
        case Skipped(reason=reason):
            return reason.value
        case Failed(cause=cause):
            return cause.kind


def _flags(outcome: Outcome) -> list[str]:
    if not isinstance(outcome, Scored):
        return []
    match outcome.finding:
        case HeuristicResult(flags=flags):
            return [f"heuristics:{flag.rule}" for flag in flags]
        case NarrativeGroundingResult(ng_flagged=True):
            return ["narrative_grounding"]
        case _:
            return []


def _instrument_path(layers: list[tuple[LayerName, Outcome, int, int]]) -> str | None:
    for _, outcome, _, _ in layers:
        if isinstance(outcome, Scored) and isinstance(outcome.finding, JudgeVerdict):
            return outcome.finding.source.value
    return None
