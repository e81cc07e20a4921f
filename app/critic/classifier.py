"""Classifiers that can be asked again: a model with a prompt, or a system whose adapter accepts a note."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.critic.model import Axis, Classification, Classifier, Note, is_unreadable, salvage
from app.critic.questions import classify_question, reclassify_question
from app.runs.pairing import axis_label
from layers.errors import DependencyError
from layers.model import EvalExample, EvalPrediction, JsonObject
from layers.ports import Answerer
from layers.prompting import Prompt, quoted
from layers.structured_call import Parameters, StructuredCall


@dataclass(frozen=True)
class ModelClassifier:
    """A model that labels a row's input by `prompt`. `behind` is put after the prompt when it is asked again."""

    model: Answerer
    prompt: Prompt
    behind: Prompt
    axes: Mapping[str, Axis]
    calls: StructuredCall
    parameters: Parameters = field(default_factory=Parameters)
    extra: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Which instrument answers."""
        return self.model.source.value

    @property
    def prompt_text(self) -> str:
        """The text that every question begins with."""
        return self.prompt.text

    async def classify(
        self, case: JsonObject, note: Note | None = None, *, deadline: float | None = None
    ) -> Classification:
        """A label on each axis. Raises `DependencyError` when the model is out of reach."""
        question = classify_question(self.prompt, self.axes, case, self.parameters, extra=self.extra)
        if note is not None:
            question = reclassify_question(question, self.behind, note)
        try:
            return (await self.calls.ask(self.model, question, deadline=deadline)).value
        except DependencyError as exc:
            if is_unreadable(exc):
                return salvage(dict(self.axes), exc.kind)
            raise


class TakesNotes(Protocol):
    """What a system under test must offer beside `predict` to be put before a critic."""

    @property
    def prompt_text(self) -> str: ...
    async def predict(self, example: EvalExample) -> EvalPrediction: ...
    async def predict_again(self, example: EvalExample, note: str) -> EvalPrediction: ...


@dataclass(frozen=True)
class NotedSystem:
    """A system as a classifier: its label is the primary axis's, other axes are read from its prediction."""

    system: TakesNotes
    name: str
    axes: Mapping[str, Axis]
    primary: str

    @property
    def source(self) -> str:
        """Which instrument answers."""
        return self.name

    @property
    def prompt_text(self) -> str:
        """The prompt that the system works by, as it says itself."""
        return self.system.prompt_text

    async def classify(
        self, case: JsonObject, note: Note | None = None, *, deadline: float | None = None
    ) -> Classification:
        """A label on each axis. The system's adapter has its own time-outs; `deadline` is not passed on."""
        example = EvalExample(id="row", input=case, expected_label="unknown")  # what is right is nobody's business here
        try:
            if note is None:
                prediction = await self.system.predict(example)
            else:
                prediction = await self.system.predict_again(example, quoted(note.model_dump()))
        except DependencyError as exc:
            if is_unreadable(exc):
                return salvage(dict(self.axes), exc.kind)
            raise
        return self._read(prediction)

    def _read(self, prediction: EvalPrediction) -> Classification:
        value = prediction.model_dump()
        said = {name: axis_label(value, name) for name in self.axes} | {self.primary: prediction.label}
        lost = tuple(name for name, label in said.items() if label not in self.axes[name].labels)
        labels: dict[str, Any] = {
            name: self.axes[name].sentinel if name in lost else label for name, label in said.items()
        }
        reason = "not_a_label" if lost else None
        return Classification(labels=labels, salvaged=lost, reason=reason, confidence=prediction.confidence)


@dataclass(frozen=True)
class ClassifierSystem:
    """The classifier alone as a system under test: the arm that a critic is measured against."""

    classifier: Classifier
    primary: str

    async def predict(self, example: EvalExample) -> EvalPrediction:
        """Its labels, with the trail that a comparison reads. Raises `DependencyError`."""
        answer = await self.classifier.classify(example.input)
        return prediction_of(example, self.classifier, self.primary, answer, answer.labels, [label_event(answer)])


def label_event(answer: Classification, pass_: int = 1) -> JsonObject:
    """How an answer stands in the audit trail."""
    return {"event": "label", "pass": pass_, **answer.model_dump(mode="json")}


def prediction_of(
    example: EvalExample,
    classifier: Classifier,
    primary: str,
    answer: Classification,
    labels: Mapping[str, str],
    audit: list[JsonObject],
    state: str | None = None,
) -> EvalPrediction:
    """A row's labels as a prediction: the primary axis's is its label, the others are in `metadata.labels`."""
    metadata: JsonObject = {"labels": dict(labels), "instrument_path": classifier.source}
    if state is not None:
        metadata |= {"first_labels": answer.labels, "state": state}
    return EvalPrediction(
        id=example.id or "0",
        raw_output={"labels": dict(labels), "state": state, "audit": audit},
        label=labels[primary],
        confidence=answer.confidence if answer.confidence is not None else 0.0,
        metadata=metadata,
    )
