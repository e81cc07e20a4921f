"""Adjudication of one pair: does this evidence support this hypothesis? A model interprets, code decides."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from layers.adjudication_question import SCHEMA_VERSION, Pair, question
from layers.adjudication_rules import (
    Decision,
    Interpretation,
    Thresholds,
    decide,
)
from layers.canonical import canonical_bytes, sha256_of
from layers.errors import CircuitOpen, ConfigurationError, DependencyError, NotAVerdict, VerdictNotOffered
from layers.model import JsonObject, Value
from layers.ports import Answerer, Clock, Embedder, Task
from layers.prompting import Prompt
from layers.structured_call import Answer, Parameters, StructuredCall

VERSION = "1"
_LEAST_SECONDS = 0.05


class Role(StrEnum):
    """What a model is used for."""

    ADJUDICATION = "adjudication"
    ESCALATION = "escalation"


class Prefilter(StrEnum):
    """What the embedder had to say."""

    OFF = "off"
    PASSED = "passed"
    BELOW = "below"
    FAILED = "failed"


class Escalation(StrEnum):
    """Why a second model was asked or not, and what came of it."""

    OFF = "off"
    NOT_NEEDED = "not_needed"
    NOT_IMPORTANT = "not_important"
    ACCEPTED = "accepted"
    WEAK = "weak"
    FAILED = "failed"


class Outcome(StrEnum):
    """How an adjudication ended. `failed` is tried again in a later run; the others are finished."""

    INTERPRETED = "interpreted"
    LOW_RELEVANCE = "low_relevance"
    FAILED = "failed"


class Attempt(Value):
    """One model asked. `outcome`: `answered`, `void` (a reply that is none), `failed` or `skipped` (not asked)."""

    role: Role
    provider: str
    model: str
    outcome: str
    error_type: str | None = None
    interpretation: Interpretation | None = None
    reply_sha256: str | None = None
    question_sha256: str | None = None
    cached: bool = False
    elapsed_ms: float = 0.0
    input_tokens: int | None = None
    output_tokens: int | None = None


class Adjudicated(Value):
    """What came of one pair. `interpretation` is the answer that was decided on, None without one."""

    outcome: Outcome
    decision: Decision
    interpretation: Interpretation | None = None
    attempts: tuple[Attempt, ...] = ()
    prefilter: Prefilter = Prefilter.OFF
    similarity: float | None = None
    escalation: Escalation = Escalation.NOT_NEEDED
    fallback: str | None = None


@dataclass
class RunMemory:
    """What one run remembers: who failed it (the latch), and vectors. Apart from breakers, and gone with the run."""

    tripped: dict[str, str] = field(default_factory=dict)
    vectors: dict[tuple[str, str], Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Adjudicator:
    """Asks about pairs. `escalation` and `embedder` None = switched off. `timeout` (seconds) is one pair's."""

    model: Answerer
    prompt: Prompt
    calls: StructuredCall
    escalation: Answerer | None = None
    embedder: Embedder | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)
    parameters: Parameters = field(default_factory=Parameters)
    timeout: float = 60.0
    clock: Clock = time.monotonic

    def configuration(self) -> JsonObject:
        """All that an adjudication depends on beside its hypothesis and its evidence."""
        return {
            "version": VERSION,
            "schema_version": SCHEMA_VERSION,
            "model": self.model.identity,
            "escalation": None if self.escalation is None else self.escalation.identity,
            "embedder": None if self.embedder is None else self.embedder.name,
            "prompt": self.prompt.ref.model_dump(),
            "thresholds": self.thresholds.model_dump(),
            "parameters": {"temperature": self.parameters.temperature, "seed": self.parameters.seed},
        }

    async def adjudicate(self, pair: Pair, memory: RunMemory) -> Adjudicated:
        """Prefilter, fast model, escalation, decision. Dependencies' failures are outcomes, never raised."""
        prefilter, similarity = await self._prefilter(pair, memory)
        if prefilter is Prefilter.BELOW:
            decision = decide("low_relevance", self.thresholds)
            return Adjudicated(
                outcome=Outcome.LOW_RELEVANCE, decision=decision, prefilter=prefilter, similarity=similarity
            )
        asked = await self._ask_models(pair, memory, self.clock() + self.timeout)
        return asked.model_copy(update={"prefilter": prefilter, "similarity": similarity})

    # --- prefilter ----------------------------------------------------------------------------------------------------

    async def _prefilter(self, pair: Pair, memory: RunMemory) -> tuple[Prefilter, float | None]:
        if self.embedder is None:
            return Prefilter.OFF, None
        try:
            one = await self._vector(self.embedder, pair.hypothesis, "query", memory)
            other = await self._vector(self.embedder, pair.evidence, "document", memory)
        except (DependencyError, ConfigurationError) as exc:
            memory.tripped.setdefault(self.embedder.name, getattr(exc, "kind", "configuration"))
            return Prefilter.FAILED, None
        similarity = cosine(one, other)
        if similarity is None:
            return Prefilter.FAILED, None
        below = similarity < self.thresholds.prefilter_similarity
        return (Prefilter.BELOW if below else Prefilter.PASSED), similarity

    async def _vector(self, embedder: Embedder, text: str, task: Task, memory: RunMemory) -> Sequence[float]:
        if (known := memory.vectors.get((text, task))) is not None:
            return known
        if (kind := memory.tripped.get(embedder.name)) is not None:
            raise DependencyError("embedder", kind)
        vector = memory.vectors[text, task] = await embedder.embed(text, task)
        return vector

    # --- models -------------------------------------------------------------------------------------------------------

    async def _ask_models(self, pair: Pair, memory: RunMemory, deadline: float) -> Adjudicated:
        fast = await self._attempt(Role.ADJUDICATION, self.model, pair, memory, deadline)
        if fast.interpretation is None:
            return self._without_answer(fast)
        if fast.interpretation.confidence >= self.thresholds.sure:
            return self._decided(fast.interpretation, (fast,), Escalation.NOT_NEEDED)
        if self.escalation is None:
            return self._decided(fast.interpretation, (fast,), Escalation.OFF)
        if pair.importance < self.thresholds.escalate_min_importance:
            return self._decided(fast.interpretation, (fast,), Escalation.NOT_IMPORTANT)
        second = await self._attempt(Role.ESCALATION, self.escalation, pair, memory, deadline)
        if second.interpretation is None:
            # The fast answer stands: it was under the bar, so it decides nothing.
            return self._decided(fast.interpretation, (fast, second), Escalation.FAILED, second.error_type)
        weak = second.interpretation.confidence < self.thresholds.sure
        state = Escalation.WEAK if weak else Escalation.ACCEPTED
        return self._decided(second.interpretation, (fast, second), state)

    def _without_answer(self, fast: Attempt) -> Adjudicated:
        reason = fast.error_type or "void"
        return Adjudicated(
            outcome=Outcome.INTERPRETED if fast.outcome == "void" else Outcome.FAILED,
            decision=decide(reason, self.thresholds),
            attempts=(fast,),
            fallback=reason,
        )

    def _decided(
        self,
        answer: Interpretation,
        attempts: tuple[Attempt, ...],
        escalation: Escalation,
        fallback: str | None = None,
    ) -> Adjudicated:
        return Adjudicated(
            outcome=Outcome.INTERPRETED,
            decision=decide(answer, self.thresholds),
            interpretation=answer,
            attempts=attempts,
            escalation=escalation,
            fallback=fallback,
        )

    async def _attempt(self, role: Role, model: Answerer, pair: Pair, memory: RunMemory, deadline: float) -> Attempt:
        base: dict[str, Any] = {"role": role, "provider": model.source.value, "model": model.identity}
        if (kind := memory.tripped.get(model.identity)) is not None:
            return Attempt(**base, outcome="skipped", error_type=kind)
        start = self.clock()
        if deadline - start < _LEAST_SECONDS:
            return Attempt(**base, outcome="skipped", error_type="out_of_time")
        try:
            answer = await self.calls.ask(model, question(self.prompt, pair, self.parameters), deadline=deadline)
        except (DependencyError, ConfigurationError) as exc:
            return _failed(base, exc, model, memory, (self.clock() - start) * 1000)
        return _answered(base, answer)


def _failed(
    base: dict[str, Any], exc: DependencyError | ConfigurationError, model: Answerer, memory: RunMemory, elapsed: float
) -> Attempt:
    kind = getattr(exc, "kind", "configuration")
    if isinstance(exc, NotAVerdict | VerdictNotOffered):  # the model's doing: it is alive, and said nothing usable
        return Attempt(**base, outcome="void", error_type=kind, elapsed_ms=elapsed)
    memory.tripped.setdefault(model.identity, kind)
    outcome = "skipped" if isinstance(exc, CircuitOpen) else "failed"
    return Attempt(**base, outcome=outcome, error_type=kind, elapsed_ms=elapsed)


def _answered(base: dict[str, Any], answer: Answer[Interpretation | str]) -> Attempt:
    void = isinstance(answer.value, str)
    return Attempt(
        **base,
        outcome="void" if void else "answered",
        error_type=answer.value if isinstance(answer.value, str) else None,
        interpretation=None if isinstance(answer.value, str) else answer.value,
        reply_sha256=sha256_of(answer.reply.text.encode("utf-8", "surrogatepass")),
        question_sha256=answer.prompt.key,
        cached=answer.cached,
        elapsed_ms=answer.elapsed_ms,
        input_tokens=None if answer.cached else answer.reply.input_tokens,
        output_tokens=None if answer.cached else answer.reply.output_tokens,
    )


def cosine(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Cosine similarity in -1..1; None where there is none (a zero vector, other lengths, numbers that are none)."""
    if len(one) != len(other):
        return None
    length = math.hypot(*one) * math.hypot(*other)
    value = sum(a * b for a, b in zip(one, other, strict=True)) / length if length else math.nan
    return max(-1.0, min(1.0, value)) if math.isfinite(value) else None


def configuration_hash(adjudicator: Adjudicator) -> str:
    """The hash of all that an adjudication depends on beside its pair."""
    return sha256_of(canonical_bytes(adjudicator.configuration()))
