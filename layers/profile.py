"""What is particular to one system, as data, so that no layer names a system."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field, model_validator

from layers.model import Label, UnitInterval, Value

Comparison: TypeAlias = Literal["eq", "ne", "lt", "le", "gt", "ge", "in", "not_in", "not_finite"]
"""`not_finite` holds for a number that is NaN or infinite, spelled as a string too, and for what is no number."""

Operand: TypeAlias = str | int | float | bool | tuple[str | int | float | bool, ...] | None


class Condition(Value):
    """One comparison on a field of `raw_output`, named by its JSON Pointer. A missing field never holds."""

    pointer: str = Field(pattern=r"^(/[^/]*)+$")
    op: Comparison
    value: Operand = None


class ContradictionRule(Value):
    """A payload that contradicts itself: all conditions hold at once. The flag points at the first one's field."""

    name: str
    reason: str
    severity: UnitInterval
    when: tuple[Condition, ...] = Field(min_length=1)


class Thresholds(Value):
    """Where confidence becomes suspicious. Floors are inclusive of what lies below them: a value < floor flags."""

    low_confidence: UnitInterval = 0.4
    saturation: UnitInterval = 0.98
    elevated_floor: UnitInterval = 0.6
    narrative_confidence: UnitInterval = 0.8
    """A confidence at or above this without a narrative is flagged."""


class BinaryCollapse(Value):
    """How labels become two: exactly those in `keep` become `negative`, everything else `positive`."""

    keep: frozenset[Label]
    negative: Label
    positive: Label


class SystemProfile(Value):
    """How to read one system's predictions.

    `labels` runs from harmless to severe; empty = any label. `confidence_means` says whether the `confidence` field is
    the system's certainty in its label (`certainty`), something else that must not be read as such (`score`), or
    nothing (`none`). Pointers are JSON Pointers into `raw_output`; None = the system has no such field.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    labels: tuple[Label, ...] = ()
    elevated: frozenset[Label] = frozenset()
    not_verdicts: frozenset[str] = frozenset()
    """Labels that say that nothing was judged; a prediction with one is refused."""
    confidence_means: Literal["certainty", "score", "none"] = "certainty"
    thresholds: Thresholds = Thresholds()
    contradictions: tuple[ContradictionRule, ...] = ()
    label_pointer: str | None = None
    confidence_pointer: str | None = None
    narrative_pointer: str | None = None
    references_pointer: str | None = None
    source_pointer: str | None = None
    fallback_sources: frozenset[str] = frozenset()
    """Values of the source field that mean that a rule and not a model answered."""
    cached_sources: frozenset[str] = frozenset()
    """Values of the source field that mean that the answer was copied from the nearest earlier one."""
    binary: BinaryCollapse | None = None
    fold_case: bool = False
    providers: tuple[str, ...] = ()
    """Names the `driver` option may take; disagreement asks each. Empty = repeats of the one provider."""
    fields: tuple[str, ...] = ()
    """Keys of an example's `input` that the real adapter needs (for a clear refusal of foreign datasets)."""
    replay_has_side_effects: bool = False
    external_models: bool = True

    @model_validator(mode="after")
    def _labels_are_consistent(self) -> SystemProfile:
        if self.labels and not self.elevated <= set(self.labels):
            raise ValueError(f"elevated labels {sorted(self.elevated - set(self.labels))} are not among the labels")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels repeat")
        return self

    def fold(self, label: str) -> str:
        """The label as it is compared: unchanged, unless the profile folds case."""
        return label.casefold() if self.fold_case else label

    def collapse(self, label: str) -> str:
        """The binary label of `label`; the label itself when the profile has no binary collapse."""
        if self.binary is None:
            return label
        return self.binary.negative if label in self.binary.keep else self.binary.positive
