"""The words of adjudication: what is stated, what is shown, who said how they relate, and what came of asking."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Generic, Literal, TypeAlias, TypeVar

from pydantic import Field, StringConstraints

from layers.adjudication import Attempt, Escalation, Outcome, Prefilter
from layers.adjudication_rules import Effect, Interpretation, Link, Percent, Relation, Standing, Thresholds
from layers.model import Identifier, JsonObject, PromptRef, Value

T = TypeVar("T")

MAX_NAMED = 100
"""Pieces of evidence that may be named when a hypothesis is created."""

Id: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
Digest: TypeAlias = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Statement: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=2_000, pattern=r"\S")]
Passage: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=16_000, pattern=r"\S")]
Name: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"\S")]
Objective: TypeAlias = Annotated[str, StringConstraints(max_length=2_000)]
Declared: TypeAlias = Literal[Relation.SUPPORTS, Relation.CONTRADICTS, Relation.NEUTRAL]


class Speaker(Value):
    """Who says something."""

    kind: Literal["person", "system"]
    name: Name


class Origin(StrEnum):
    """Where a hypothesis comes from. `draft_ai`: a model proposed it, and nobody has stood in for it."""

    STATED = "stated"
    DRAFT_AI = "draft_ai"


# --- what callers send ------------------------------------------------------------------------------------------------


class NamedEvidence(Value):
    """Evidence named with a hypothesis, and how its author says it relates to it."""

    evidence_id: Id
    relation: Declared = Relation.SUPPORTS


class NewHypothesis(Value):
    """A statement to be tested. `importance` is 0..100; `by` is needed where evidence is named."""

    text: Statement
    importance: Percent = 50
    by: Speaker | None = None
    evidence: tuple[NamedEvidence, ...] = Field(default=(), max_length=MAX_NAMED)


class NewEvidence(Value):
    """A piece of evidence. `source` says where it comes from: two pieces of one source are one source."""

    text: Passage
    source: Identifier
    metadata: JsonObject = Field(default_factory=dict)


class NewAssertion(Value):
    """What somebody declares about a pair."""

    evidence_id: Id
    relation: Declared
    by: Speaker
    note: str | None = Field(default=None, max_length=2_000)


class AdjudicationRequest(Value):
    """Every hypothesis with every piece of evidence. What the caller expects or looks for is untrusted context."""

    hypothesis_ids: tuple[Id, ...] = Field(min_length=1, max_length=1_000)
    evidence_ids: tuple[Id, ...] = Field(min_length=1, max_length=10_000)
    suggested_relation: Declared | None = None
    objective: Objective | None = None

    @property
    def context(self) -> JsonObject:
        """What the model is told beside the pair."""
        said = {"suggested_relation": self.suggested_relation, "objective": self.objective}
        return {name: value for name, value in said.items() if value is not None}


# --- what is stored ---------------------------------------------------------------------------------------------------


class Hypothesis(Value):
    """A statement, as it was first stored. `sha256` is over what a reused adjudication depends on."""

    hypothesis_id: Id
    text: Statement
    importance: Percent
    origin: Origin
    by: Speaker | None
    sha256: Digest
    created_at: str


class Evidence(Value):
    """A piece of evidence, stored before anybody interprets it."""

    evidence_id: Id
    text: Passage
    source: Identifier
    metadata: JsonObject
    sha256: Digest
    created_at: str


class Assertion(Value):
    """A declared relation and who declared it. It stands beside the score and never weighs in it."""

    assertion_id: Id
    hypothesis_id: Id
    evidence_id: Id
    relation: Declared
    by: Speaker
    note: str | None
    created_at: str


class StoredRun(Value):
    """What a run was asked."""

    run_id: Id
    request: AdjudicationRequest
    configuration: JsonObject
    created_at: str


class AdjudicationRecord(Value):
    """What came of one pair in one run.

    `turn` is its place among the records of its hypothesis; `changed` whether it changed a link. A reused one names
    the record it stands for, and its attempts are that record's. `interpretation` is the answer that was decided on.
    """

    record_id: Id
    run_id: Id
    hypothesis_id: Id
    evidence_id: Id
    turn: int = Field(ge=0)
    key: Digest
    outcome: Outcome
    relation: Relation
    effect: Effect
    reason: str
    changed: bool
    interpretation: Interpretation | None
    attempts: tuple[Attempt, ...]
    prefilter: Prefilter
    similarity: float | None
    escalation: Escalation
    fallback: str | None
    reused_from: Id | None
    model: str
    provider: str
    prompt: PromptRef
    schema_version: str
    thresholds: Thresholds
    hypothesis_sha256: Digest
    evidence_sha256: Digest
    configuration_sha256: Digest
    input_sha256: Digest
    context_ids: tuple[Id, ...]
    context: JsonObject
    created_at: str


class Transition(Value):
    """How a hypothesis came to stand otherwise, and the records that caused it."""

    hypothesis_id: Id
    turn: int = Field(ge=1)
    caused_by: tuple[Id, ...] = Field(min_length=1)
    before: Standing
    after: Standing
    created_at: str


# --- what is shown ----------------------------------------------------------------------------------------------------


class HypothesisView(Hypothesis):
    """A hypothesis as it stands. `links` and `assertions` are there when it is asked for alone."""

    standing: Standing
    existing: bool = False
    links: dict[str, Link] | None = Field(default=None, description="Accepted relations by evidence id")
    assertions: tuple[Assertion, ...] | None = None


class RunView(StoredRun):
    """A run and how far it is. `stopped`: it was imported before it had ended, and nobody goes on with it."""

    status: Literal["accepted", "done", "stopped"]
    n_pairs: int
    n_done: int
    outcomes: dict[Outcome, int]
    finished_at: str | None


class Page(Value, Generic[T]):
    """One page of a list; `next_cursor` is null on the last."""

    items: tuple[T, ...]
    next_cursor: str | None = None


class RecordFilters(Value):
    """What records can be narrowed to."""

    run_id: str | None = None
    hypothesis_id: str | None = None
    evidence_id: str | None = None
    outcome: Outcome | None = None
