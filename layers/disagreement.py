"""Whether the system's providers, asked again at the same time, give the same label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import anyio

from layers.errors import CircuitOpen, DependencyError
from layers.model import DisagreementResult, EvalExample, EvalPrediction, JsonObject, ProviderError, SkipReason
from layers.ports import Fruitless, LayerInput, Skip, SystemUnderTest
from layers.profile import SystemProfile

VERSION = "1"

Answer = EvalPrediction | DependencyError
"""What one provider gave: a prediction, or the reason why there is none."""


@dataclass(frozen=True)
class Disagreement:
    """The layer. Each provider is asked in a task of its own, within `provider_timeout` seconds (less than the layer's
    own deadline), so that a slow or failing one costs its own answer only.

    `providers_of` gives a system's providers by name (its drivers, or `repeat-1`, `repeat-2`, ...); empty = the system
    can't be asked. `allow_side_effects` admits systems whose answers change something elsewhere.
    Raises `Skip`, `CircuitOpen` when the circuit of every provider is open, and `Fruitless` when none gave a label.
    """

    providers_of: Callable[[SystemProfile], Mapping[str, SystemUnderTest]]
    provider_timeout: float = 26.0
    allow_side_effects: bool = False

    async def __call__(self, item: LayerInput) -> DisagreementResult:
        if item.profile.replay_has_side_effects and not self.allow_side_effects:
            raise Skip(SkipReason.SIDE_EFFECTS)
        providers = self.providers_of(item.profile)
        if not providers:
            raise Skip(SkipReason.NOT_CONFIGURED)
        if not item.input:
            raise Skip(SkipReason.NO_INPUT)
        example = EvalExample(id=item.prediction.id, input=item.input, expected_label=item.prediction.label)
        answers = await self._ask_all(providers, example)
        _raise_if_all_open(answers)
        item.trace.note("model_output", _as_json(answers))
        found = compare(answers, item.profile)
        if not found.labels_by_provider:
            raise _fruitless(answers, found)
        return found

    async def _ask_all(self, providers: Mapping[str, SystemUnderTest], example: EvalExample) -> dict[str, Answer]:
        """The answer of each provider, in their order."""
        found: dict[str, Answer] = {}

        async def ask(name: str, provider: SystemUnderTest) -> None:
            found[name] = await self._ask(name, provider, example)

        async with anyio.create_task_group() as group:
            for name, provider in providers.items():
                group.start_soon(ask, name, provider)
        return {name: found[name] for name in providers}

    async def _ask(self, name: str, provider: SystemUnderTest, example: EvalExample) -> Answer:
        """Never raises but for cancellation from outside: a provider's failure is its own."""
        with anyio.move_on_after(self.provider_timeout):
            try:
                return await provider.predict(example)
            except DependencyError as exc:
                return exc
            except Exception as exc:
                return DependencyError(name, "internal", f"{type(exc).__name__} while it was asked")
        return DependencyError(name, "timeout", f"no answer within {self.provider_timeout:g} s")


def _raise_if_all_open(answers: Mapping[str, Answer]) -> None:
    refused = [answer for answer in answers.values() if isinstance(answer, CircuitOpen)]
    if len(refused) == len(answers):
        raise min(refused, key=lambda each: each.retry_after or 0.0)


def _fruitless(answers: Mapping[str, Answer], found: DisagreementResult) -> Fruitless:
    """Nobody gave a label, for the commonest reason (the first of those as common) but an open circuit."""
    errors = {name: answer for name, answer in answers.items() if isinstance(answer, DependencyError)}
    tried = [error for error in errors.values() if not isinstance(error, CircuitOpen)]
    (kind, _), *_ = Counter(error.kind for error in tried).most_common()
    first = next(error for error in tried if error.kind == kind)
    said = ", ".join(f"{name} {error.kind}" for name, error in errors.items())
    return Fruitless(first.dependency, kind, f"no provider gave a label: {said}"[:_SHOWN], found)


_SHOWN = 500


def compare(answers: Mapping[str, Answer], profile: SystemProfile) -> DisagreementResult:
    """What the answers say of each other.

    `agreed` is False as soon as two labels differ (an absent third one can't change that), True when every one of at
    least two providers answered with the same label, and None (unknown) otherwise. The spread is the largest
    confidence less the smallest, None for fewer than two; a confidence that the provider did not give is left out.
    """
    predictions = {name: answer for name, answer in answers.items() if isinstance(answer, EvalPrediction)}
    confidences = {
        name: prediction.confidence
        for name, prediction in predictions.items()
        if profile.confidence_means != "none" and prediction.metadata.get("confidence_missing") is not True
    }
    return DisagreementResult(
        labels_by_provider={name: prediction.label for name, prediction in predictions.items()},
        confidence_by_provider=confidences,
        errors_by_provider={
            name: ProviderError(kind=answer.kind, message=answer.message)
            for name, answer in answers.items()
            if isinstance(answer, DependencyError)
        },
        agreed=_agreed([profile.fold(prediction.label) for prediction in predictions.values()], len(answers)),
        confidence_spread=max(confidences.values()) - min(confidences.values()) if len(confidences) > 1 else None,
    )


def _agreed(labels: list[str], asked: int) -> bool | None:
    if len(set(labels)) > 1:
        return False
    return True if len(labels) == asked > 1 else None


def _as_json(answers: Mapping[str, Answer]) -> JsonObject:
    said = {
        name: {"label": answer.label, "confidence": answer.confidence, "raw_output": answer.raw_output}
        if isinstance(answer, EvalPrediction)
        else {"error": {"kind": answer.kind, "message": answer.message}}
        for name, answer in answers.items()
    }
    return {"layer": "disagreement", "answers": said}
