"""The words of the critic's pipeline: a classifier's axes, what is stored as its plan, what one answer holds."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, model_validator

from layers.critic import Restraint, Signal
from layers.errors import DependencyError
from layers.json_pointer import resolve
from layers.model import Identifier, JsonObject, Label, PromptRef, UnitInterval, Value

Name = Annotated[str, Field(min_length=1, max_length=128)]

UNREADABLE = frozenset({"truncated", "empty_output", "blocked", "not_a_label"})
"""Kinds that say: the model is there, and what it wrote is no answer."""


class Axis(Value):
    """One thing to decide about a row. `sentinel` stands in where the classifier's answer can't be read."""

    labels: tuple[Label, ...] = Field(min_length=1, max_length=200)
    sentinel: Label

    @model_validator(mode="after")
    def _differ(self) -> Axis:
        if len({label.casefold() for label in self.labels}) != len(self.labels):
            raise ValueError("labels repeat")
        return self


class SignalSpec(Value):
    """Something that triage can note about a row: true or false, one of `values`, or a number."""

    description: str = Field(min_length=1, max_length=2_000)
    kind: Literal["boolean", "number", "choice"] = "boolean"
    values: tuple[Name, ...] = ()

    @model_validator(mode="after")
    def _has_values(self) -> SignalSpec:
        if (self.kind == "choice") != bool(self.values):
            raise ValueError('exactly a signal of kind "choice" has values')
        return self


class Cluster(Value):
    """Rows that are accounted for by name: those listed, or those with `value` at a JSON Pointer into the example."""

    name: Name
    axis: Label
    ids: tuple[Identifier, ...] = ()
    pointer: str | None = Field(default=None, pattern=r"^(/[^/]*)+$")
    value: Signal | None = None

    @model_validator(mode="after")
    def _says_which(self) -> Cluster:
        if bool(self.ids) == (self.pointer is not None) or (self.pointer is None) != (self.value is None):
            raise ValueError("a cluster has either ids, or a pointer with a value")
        return self

    def holds(self, example: JsonObject) -> bool:
        """Whether the example (its JSON) belongs to it."""
        if self.pointer is None:
            return example.get("id") in self.ids
        found = resolve(example, self.pointer)
        return type(found) is type(self.value) and found == self.value


class CriticRules(Restraint):
    """Where a challenge is possible, and in which share of the rows one is expected."""

    expected_challenge_rate: UnitInterval


class Adopt(Value):
    """By what the outcome is decided.

    `alpha`: share of false alarms put up with. `red_flag`: how many times the expected challenge rate is too much.
    `max_unreviewed`: share of rows that may have failed, been salvaged or not been reviewed. `control`: whether a
    second dataset must have shown no harm.
    """

    alpha: float = Field(default=0.05, gt=0, le=0.5)
    red_flag: float = Field(default=2.0, gt=1, le=100)
    max_unreviewed: UnitInterval = 0.05
    control: bool = True


class Plan(Value):
    """All that decides what a classifier and its critic do, as it is stored with a run."""

    name: str
    classifier: JsonObject
    rubric_sha256: str
    rules: tuple[str, ...]
    axes: dict[Label, Axis]
    primary: Label
    signals: dict[Name, SignalSpec]
    critic: CriticRules
    prompts: dict[str, PromptRef]
    models: dict[str, str]
    clusters: tuple[Cluster, ...] = ()
    adopt: Adopt = Adopt()

    def expected_of(self, example: JsonObject) -> dict[str, str]:
        """The right label on each axis that has one; the primary axis's is the example's own."""
        given: dict[str, Any] = example.get("expected_labels") or {}
        expected = {axis: given[axis] for axis in self.axes if axis in given}
        return {self.primary: example["expected_label"], **expected}

    def clusters_of(self, example: JsonObject) -> tuple[str, ...]:
        """Names of the clusters that the example belongs to."""
        return tuple(cluster.name for cluster in self.clusters if cluster.holds(example))


class Note(Value):
    """What a classifier is told when it is asked once more. It names no label."""

    axis: str
    rule: str
    rule_text: str
    gap: str
    labels: dict[str, str]


class Classification(Value):
    """One answer: a label on each axis, the sentinel on those that are `salvaged` for `reason`."""

    labels: dict[str, str]
    salvaged: tuple[str, ...] = ()
    reason: str | None = None
    confidence: UnitInterval | None = None


class Classifier(Protocol):
    """A classifier that can be asked again. It sees a row's input and nothing else: no label, no signal, no history.

    `prompt_text` is the prompt that it really works by; the rubric is cut from it. Raises `DependencyError`.
    """

    @property
    def source(self) -> str: ...
    @property
    def prompt_text(self) -> str: ...
    async def classify(
        self, case: JsonObject, note: Note | None = None, *, deadline: float | None = None
    ) -> Classification: ...


def salvage(axes: dict[Label, Axis], reason: str) -> Classification:
    """Sentinels on every axis: nothing of the answer could be read."""
    return Classification(
        labels={name: axis.sentinel for name, axis in axes.items()}, salvaged=tuple(axes), reason=reason
    )


def is_unreadable(exc: DependencyError) -> bool:
    """Whether a model answered with what is no answer, rather than being out of reach."""
    return exc.kind in UNREADABLE
