"""Calls to language models: counted, and shown as spans by the GenAI semantic conventions."""

from __future__ import annotations

import random
import re
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from opentelemetry.trace import SpanKind

from app.telemetry.labels import CAUSES, bounded
from app.telemetry.metrics import SOURCES, Metrics
from app.telemetry.place import Place, current
from app.telemetry.redact import Redactor
from app.telemetry.setup import Telemetry
from app.telemetry.traces import SAMPLING_RATIO, Step, emit
from layers.model import JudgeAttempt
from layers.structured_call import CallRecord

ATTEMPT_SPANS = {
    "ollama": "ollama_attempt",
    "gemini_flash": "flash_attempt",
    "openai_compatible": "openai_attempt",
    "heuristics_fallback": "heuristics_fallback",
}
PROVIDERS = {"ollama": "ollama", "gemini_flash": "gcp.gemini", "openai_compatible": "openai"}
JUDGE = "judge"
"""The prompt whose calls are the attempts of the judge chain."""

_SETTINGS = re.compile(r"(:[a-z_]+=[^:]*)+$")


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call and when it ended, in nanoseconds since 1970."""

    record: CallRecord
    ended_ns: int

    @property
    def started_ns(self) -> int:
        return self.ended_ns - int(self.record.elapsed_ms * 1e6)


collected: ContextVar[list[ModelCall] | None] = ContextVar("model_calls_of_evaluation", default=None)
"""Where the calls of the evaluation under way are kept until it is known whether its trace is."""


class ModelCallTelemetry:
    """What `StructuredCall` is given as `record`. A call outside of an evaluation becomes a span at once."""

    def __init__(self, telemetry: Telemetry, metrics: Metrics) -> None:
        self._telemetry = telemetry
        self._metrics = metrics

    def __call__(self, record: CallRecord) -> None:
        """Count the call and keep it, or its span."""
        call = ModelCall(record, time.time_ns())
        source, outcome = bounded(record.source, SOURCES), _outcome(record)
        self._metrics.model_calls.add(record.prompt, source, outcome, "true" if record.cached else "false")
        if not record.cached:
            for direction, tokens in (("input", record.input_tokens), ("output", record.output_tokens)):
                if tokens is not None:
                    self._metrics.judge_tokens.add(record.prompt, source, direction, n=tokens)
        if (calls := collected.get()) is not None:
            calls.append(call)
        else:
            self._emit(call)

    def _emit(self, call: ModelCall) -> None:
        ratio = 1.0 if call.record.outcome != "answered" else self._telemetry.settings.trace_ratio
        if ratio < 1 and random.random() >= ratio:
            return
        place = Place(current.get())
        place.keep()
        emit(self._telemetry, place, call_step(call, self._telemetry.redact, {SAMPLING_RATIO: ratio}))


def call_step(call: ModelCall, redact: Redactor, more: dict[str, Any] | None = None) -> Step:
    """The span of a call to a model."""
    record = call.record
    model = model_of(record.model)
    values: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDERS.get(record.source, record.source),
        "gen_ai.request.model": model,
        "gen_ai.response.model": record.response_model,
        "gen_ai.response.finish_reasons": [record.finish_reason] if record.finish_reason else None,
        "gen_ai.output.type": "json",
        "gen_ai.usage.input_tokens": None if record.cached else record.input_tokens,
        "gen_ai.usage.output_tokens": None if record.cached else record.output_tokens,
        "arbiter.prompt.name": record.prompt,
        "arbiter.prompt.version": record.prompt_version,
        "arbiter.cached": record.cached,
        "outcome": "answered" if record.outcome == "answered" else _ended(record),
        **(more or {}),
    }
    error = None if record.outcome == "answered" else record.outcome
    if error is not None:
        values |= failure(record.error, record.message or error, redact)
    name = ATTEMPT_SPANS.get(record.source, "model_attempt") if record.prompt == JUDGE else f"chat {model}"
    return Step(name, call.started_ns, call.ended_ns, values, error, SpanKind.CLIENT)


def attempt_steps(
    attempts: tuple[JudgeAttempt, ...], calls: list[ModelCall], started_ns: int, redact: Redactor
) -> tuple[Step, ...]:
    """The attempts of a judge chain: those that asked as their calls, those that were passed over by their reason.

    `attempts` is empty where the layer came to no finding; then the calls are all that is known.
    """
    waiting = iter([call for call in calls if call.record.prompt == JUDGE])
    steps: list[Step] = []
    for attempt in attempts:
        call = None if attempt.error_type in _NEVER_ASKED else next(waiting, None)
        steps.append(_passed_over(attempt, started_ns, redact) if call is None else call_step(call, redact))
        started_ns = steps[-1].ended_ns
    return (*steps, *(call_step(call, redact) for call in waiting))


_NEVER_ASKED = frozenset({"external_models_forbidden", "out_of_time"})


def _passed_over(attempt: JudgeAttempt, at_ns: int, redact: Redactor) -> Step:
    values = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": PROVIDERS.get(attempt.source.value)}
    reason = attempt.error_type or "skipped"
    name = ATTEMPT_SPANS[attempt.source.value]
    return Step(
        name, at_ns, at_ns, {**values, "outcome": attempt.outcome, **failure("Skipped", reason, redact)}, reason
    )


def failure(exception: str | None, message: str, redact: Redactor) -> dict[str, Any]:
    """The attributes that a table of failures shows as columns. The message may quote a remote, so it is redacted."""
    return {"exception.type": exception, "exception.message": redact(message)}


def model_of(identity: str) -> str:
    """The model's name in an answerer's identity: without the source before it and the settings behind it."""
    name = _SETTINGS.sub("", identity)
    source, _, rest = name.partition(":")
    if source == "openai":  # openai:BASE_URL:MODEL
        return re.sub(r"^[a-z]+://[^/]*?(?::\d+)?(?:/[^:]*)?:", "", rest) or rest
    return rest or name


def _outcome(record: CallRecord) -> str:
    return "answered" if record.outcome == "answered" else bounded(record.outcome, CAUSES)


def _ended(record: CallRecord) -> str:
    return "skipped" if record.outcome == "circuit_open" else "failed"
