"""The judge as a system under test: recorded predictions go to it unconditionally, and its verdicts are scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from layers import heuristics
from layers.errors import CircuitOpen, DependencyError, DependencyRejected, DependencyUnavailable
from layers.evidence import build_map
from layers.model import (
    EvalExample,
    EvalPrediction,
    JudgeAttempt,
    JudgeVerdict,
    LayerName,
    Outcome,
    Scored,
)
from layers.ports import Layer, LayerInput, Skip
from layers.profile import SystemProfile
from layers.recorded import recorded_prediction

NAME = "judge"


@dataclass(frozen=True)
class JudgeSystem:
    """Asks `judge` about the prediction that an example carries, read with `profile`.

    The prediction it gives back has the judge's label; `metadata` says which judge answered (`instrument_path`), on
    which rung its claims stand, and what it was asked about. A chain that fell back is a failure, never a verdict.
    """

    judge: Layer
    profile: SystemProfile

    async def predict(self, example: EvalExample) -> EvalPrediction:
        """The verdict as a prediction. Raises `DependencyError` when no judge gave one, or there is none to judge."""
        recorded = recorded_prediction(example, NAME, "the example carries no `prediction` to judge")
        verdict = await self._ask(recorded, example)
        if verdict.verdict_label is None:
            raise _no_verdict(verdict.attempts)
        return EvalPrediction(
            id=example.id or recorded.id,
            raw_output=verdict.model_dump(mode="json"),
            label=verdict.verdict_label,
            confidence=verdict.confidence if verdict.confidence is not None else 0.0,
            metadata={
                "instrument_path": verdict.source.value,
                "assurance": verdict.assurance,
                "judged_label": recorded.label,
                "agrees": verdict.agrees,
            },
        )

    async def _ask(self, recorded: EvalPrediction, example: EvalExample) -> JudgeVerdict:
        found = heuristics.check(recorded, self.profile)
        earlier: dict[LayerName, Outcome] = {
            LayerName.HEURISTICS: Scored(finding=found, elapsed_ms=0.0, version=heuristics.VERSION)
        }
        asked = example.input or None
        numbered = build_map(recorded, profile=self.profile, input=asked, outcomes=earlier)
        item = LayerInput(recorded, self.profile, asked, numbered.items, earlier, incomplete=numbered.incomplete)
        try:
            verdict = await self.judge(item)
        except Skip:
            raise DependencyRejected(NAME, "not_configured", "no judge is configured that this system allows") from None
        if not isinstance(verdict, JudgeVerdict):
            raise TypeError(f"the judge's finding is a {type(verdict).__name__}")
        return verdict


def _no_verdict(attempts: tuple[JudgeAttempt, ...]) -> DependencyError:
    """Why nobody gave a verdict: the circuits when nothing else was tried, else the last failure."""
    tried = [attempt for attempt in attempts if attempt.outcome == "failed"]
    detail: dict[str, Any] = {"attempts": [attempt.model_dump(mode="json") for attempt in attempts]}
    if not tried:
        return CircuitOpen(NAME)
    last = tried[-1]
    kind = last.error_type or "no_verdict"
    message = f"no judge gave a verdict; the last one asked, {last.source.value}, ended with {kind}"
    if kind in _OUTAGES:
        return DependencyUnavailable(NAME, kind, message, detail=detail)
    return DependencyRejected(NAME, kind, message, detail=detail)


_OUTAGES = frozenset({"timeout", "refused", "rate_limited", "server_error", "disconnected"})
