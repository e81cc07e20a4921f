"""The judge: a chain of models asked for a second opinion, whose claims code checks before they count."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from layers.claim_independence import under_review
from layers.errors import CircuitOpen, DependencyError, Withdrawn
from layers.judge_question import judge_question
from layers.model import (
    InstrumentPath,
    JsonObject,
    JudgeAttempt,
    JudgeVerdict,
    LayerName,
    SkipReason,
    Value,
)
from layers.pointers import Verification, verify_claims
from layers.ports import Answerer, Clock, LayerInput, Skip
from layers.prompting import Prompt, RenderedPrompt
from layers.reply import ProposedVerdict
from layers.structured_call import Answer, Parameters, Question, StructuredCall

VERSION = "1"

FORBIDDEN = "external_models_forbidden"
"""Why a judge was passed over: the profile keeps its data on the operator's machines."""
OUT_OF_TIME = "out_of_time"
"""Why a judge was passed over: those before it used up the layer's time."""

_LEAST_SECONDS = 0.05
"""With less than this left, no judge is asked any more."""


@dataclass(frozen=True)
class JudgeLayer:
    """Ask each judge in turn until one gives a verdict.

    Where every one of them failed, was sick or was out of time, the finding's source is `heuristics_fallback` with no
    label: nobody looked, and the answer is degraded. No judge at all, or none that the profile allows, is a skip.
    `timeout` (seconds) is shared by the chain; keep it below the layer's, so that falling back is not cut off.
    """

    judges: tuple[Answerer, ...]
    prompt: Prompt
    calls: StructuredCall
    parameters: Parameters = field(default_factory=Parameters)
    max_pointers: int = 8
    timeout: float = 44.0
    clock: Clock = time.monotonic

    async def __call__(self, item: LayerInput) -> JudgeVerdict:
        if not any(_allowed(judge, item) for judge in self.judges):
            raise Skip(SkipReason.NOT_CONFIGURED)
        deadline = self.clock() + self.timeout
        attempts: list[JudgeAttempt] = []
        for judge in self.judges:
            if (verdict := await self._try(judge, item, deadline, attempts)) is not None:
                return verdict.model_copy(update={"attempts": tuple(attempts)})
        return JudgeVerdict(
            source=InstrumentPath.HEURISTICS_FALLBACK,
            verdict_label=None,
            agrees=None,
            confidence=None,
            reasoning=None,
            attempts=tuple(attempts),
            prompt=self.prompt.ref,
        )

    async def _try(
        self, judge: Answerer, item: LayerInput, deadline: float, attempts: list[JudgeAttempt]
    ) -> JudgeVerdict | None:
        """Ask one judge and note the attempt; None when it gave no verdict."""
        if not _allowed(judge, item):
            attempts.append(_skipped(judge, FORBIDDEN))
            return None
        start = self.clock()
        if deadline - start < _LEAST_SECONDS:
            attempts.append(_skipped(judge, OUT_OF_TIME))
            return None
        question = judge_question(self.prompt, item, self.parameters, max_pointers=self.max_pointers)
        try:
            answer = await self._ask(judge, question, item, deadline)
        except DependencyError as exc:
            attempts.append(_failed(judge, exc, (self.clock() - start) * 1000))
            _note_failure(judge, item, exc)
            return None
        attempts.append(_answered(judge, answer))
        return self._verdict(judge, item, answer)

    async def _ask(
        self, judge: Answerer, question: Question[ProposedVerdict], item: LayerInput, deadline: float
    ) -> Answer[ProposedVerdict]:
        """The answer. What was asked is on record whatever came back, if only the layer's deadline."""
        asked: dict[str, RenderedPrompt] = {}
        try:
            answer = await self.calls.ask(
                judge, question, deadline=deadline, on_asked=lambda prompt, key: asked.setdefault(key, prompt)
            )
            asked[answer.key] = answer.prompt  # also where it was kept from before
            return answer
        except (CircuitOpen, Withdrawn):
            asked.clear()  # it never went out
            raise
        finally:
            _note_prompts(judge, item, asked)

    def _verdict(self, judge: Answerer, item: LayerInput, answer: Answer[ProposedVerdict]) -> JudgeVerdict:
        proposed = answer.value
        verification = _verify(proposed, item, self.max_pointers)
        _note_answer(judge, item, answer, verification)
        profile, label = item.profile, item.prediction.label
        return JudgeVerdict(
            source=judge.source,
            verdict_label=proposed.label,
            agrees=profile.fold(proposed.label) == profile.fold(label),
            confidence=proposed.confidence,
            reasoning=proposed.reasoning,
            claims=verification.claims,
            cached=answer.cached,
            repaired=proposed.repaired,
            prompt=answer.prompt.prompt.ref,
        )


def _allowed(judge: Answerer, item: LayerInput) -> bool:
    return item.profile.external_models or not judge.external


def _verify(proposed: ProposedVerdict, item: LayerInput, max_pointers: int) -> Verification:
    claims = [{"text": claim.text, "evidence_ids": list(claim.evidence_ids)} for claim in proposed.claims]
    own = under_review(item.prediction, item.profile, item.evidence)
    return verify_claims(
        claims,
        item.evidence,
        labels=item.profile.labels,
        incomplete=item.incomplete,
        max_pointers=max_pointers,
        reviewed=own.verdict,
        narrative=own.narrative,
    )


def _skipped(judge: Answerer, why: str) -> JudgeAttempt:
    return JudgeAttempt(source=judge.source, outcome="skipped", error_type=why, elapsed_ms=0.0)


def _failed(judge: Answerer, exc: DependencyError, elapsed_ms: float) -> JudgeAttempt:
    return JudgeAttempt(
        source=judge.source,
        outcome="skipped" if isinstance(exc, CircuitOpen) else "failed",
        error_type=exc.kind,
        elapsed_ms=elapsed_ms,
        input_tokens=exc.detail.get("input_tokens"),
        output_tokens=exc.detail.get("output_tokens"),
    )


def _answered(judge: Answerer, answer: Answer[ProposedVerdict]) -> JudgeAttempt:
    """A kept answer spent no tokens, so it counts none."""
    return JudgeAttempt(
        source=judge.source,
        outcome="answered",
        elapsed_ms=answer.elapsed_ms,
        input_tokens=None if answer.cached else answer.reply.input_tokens,
        output_tokens=None if answer.cached else answer.reply.output_tokens,
    )


# --- provenance ------------------------------------------------------------------------------------------------------


def _note_prompts(judge: Answerer, item: LayerInput, asked: Mapping[str, RenderedPrompt]) -> None:
    """What a judge was asked, by the question's key, whether or not it gave an answer."""
    for key, prompt in asked.items():
        ref: JsonObject = prompt.prompt.ref.model_dump()
        item.trace.note("prompt", {**_common(judge), **ref, "text": prompt.text, "question": key})


def _note_answer(
    judge: Answerer, item: LayerInput, answer: Answer[ProposedVerdict], verification: Verification
) -> None:
    common, reply = _common(judge), answer.reply
    item.trace.note(
        "model_output",
        {
            **common,
            "model": reply.model,
            "text": reply.text,
            "finish_reason": reply.finish_reason,
            "input_tokens": reply.input_tokens,
            "output_tokens": reply.output_tokens,
            "cached": answer.cached,
        },
    )
    item.trace.note("verification", {**common, **verification.as_json()})


def _note_failure(judge: Answerer, item: LayerInput, exc: DependencyError) -> None:
    """What a judge wrote that could not be read is kept as well; other failures brought no output."""
    if isinstance(text := exc.detail.get("reply"), str):
        item.trace.note("model_output", {**_common(judge), "failure": exc.kind, "text": text})


def _common(judge: Answerer) -> JsonObject:
    return {"layer": LayerName.JUDGE.value, "source": judge.source.value, "model_identity": judge.identity}


# --- figures ---------------------------------------------------------------------------------------------------------


class JudgeMetrics(Value):
    """How often a judge really answered. `pct_scored_by_judge` is 0..100, None when nothing was judged yet."""

    total: int
    scored_by_judge: int
    pct_scored_by_judge: float | None
    by_source: dict[InstrumentPath, int]


def judge_metrics(counts: Mapping[InstrumentPath, int]) -> JudgeMetrics:
    """The figures, from how many verdicts came from each source; a source that is not named has none."""
    by_source = {source: counts.get(source, 0) for source in InstrumentPath}
    total = sum(by_source.values())
    scored = total - by_source[InstrumentPath.HEURISTICS_FALLBACK]
    return JudgeMetrics(
        total=total,
        scored_by_judge=scored,
        pct_scored_by_judge=100 * scored / total if total else None,
        by_source=by_source,
    )
