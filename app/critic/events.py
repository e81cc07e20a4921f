"""The events of an audit trail, as they stand on its lines."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from app.critic.model import Plan
from layers.critic import Discard, Signal, State
from layers.model import Value

SCHEMA_VERSION: Literal[1] = 1


class Header(Value):
    """The first line: which run this is, and the whole plan it worked by."""

    event: Literal["run"] = "run"
    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    dataset_id: str
    system: str
    pipeline: Literal["offline", "critic"]
    n_total: int
    created_at: str
    plan: Plan


class _Event(Value):
    """Which attempt at which question it belongs to, and its place there."""

    example_id: str
    repeat: int = 0
    attempt: int
    seq: int


class RowEvent(_Event):
    """A row begins. What is right comes from the dataset, and is added when the trail is written."""

    event: Literal["row"]
    expected: dict[str, str]
    clusters: tuple[str, ...] = ()


class TriageEvent(_Event):
    """What was noted; `void` = why nothing was."""

    event: Literal["triage"]
    signals: dict[str, Signal]
    void: str | None = None


class LabelEvent(_Event):
    """One answer of the classifier, the second one after a bounce; without labels it gave none."""

    event: Literal["label"]
    pass_: Literal[1, 2] = Field(alias="pass")
    labels: dict[str, str]
    salvaged: tuple[str, ...] = ()
    reason: str | None = None
    confidence: float | None = None


class ReviewEvent(_Event):
    """What the critic said, and of its first word what the gate made of it."""

    event: Literal["review"]
    pass_: Literal[1, 2] = Field(alias="pass")
    decision: Literal["accept", "challenge", "void"]
    axis: str | None = None
    rule: str | None = None
    gap: str | None = None
    void: str | None = None
    challenge: bool | None = None
    admitted: bool | None = None
    discarded: Discard | None = None


class BounceEvent(_Event):
    """The classifier is asked once more."""

    event: Literal["bounce"]
    axis: str
    rule: str


class VerdictEvent(_Event):
    """How the row ended."""

    event: Literal["verdict"]
    state: State
    labels: dict[str, str]
    moved: str | None = None
    calls: int


class FailedEvent(_Event):
    """The row could not be classified in this attempt."""

    event: Literal["failed"]
    kind: str


Event: TypeAlias = Annotated[
    RowEvent | TriageEvent | LabelEvent | ReviewEvent | BounceEvent | VerdictEvent | FailedEvent,
    Field(discriminator="event"),
]
