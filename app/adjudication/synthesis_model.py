"""The words of synthesis: clusters that code counts, and themes and hypotheses that a model may propose."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StringConstraints, model_validator

from app.adjudication.model import Digest, Id, Statement
from layers.model import JsonObject, PromptRef, Value

MAX_PIECES = 40
MAX_THEMES = 10
MAX_PROPOSALS = 10
MAX_CALLS = 2

Mode: TypeAlias = Literal["deterministic", "llm", "hybrid"]
Title: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"\S")]
Summary: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=1_000, pattern=r"\S")]
PieceIds: TypeAlias = Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_PIECES)]


class SynthesisRequest(Value):
    """What to look for patterns in: the failures of one run, or the evidence of some hypotheses."""

    run_id: Id | None = None
    hypothesis_ids: tuple[Id, ...] = Field(default=(), max_length=200)
    mode: Mode = "hybrid"

    @model_validator(mode="after")
    def _one_subject(self) -> SynthesisRequest:
        if (self.run_id is None) == (not self.hypothesis_ids):
            raise ValueError("give a run_id or hypothesis_ids, and not both")
        return self


class Cluster(Value):
    """Things that have something in common: `by` says what (`confusion`, `failure`, `slice`, `qualification`,
    `source`), `of` its value. `examples` are some of them."""

    by: str
    of: JsonObject
    n: int
    examples: tuple[str, ...]


class Piece(Value):
    """A numbered observation; `ref` is the example or the evidence that it shows."""

    id: str
    ref: str
    sha256: Digest


class Theme(Value):
    """What several observations share, as a model put it."""

    title: Title
    summary: Summary
    evidence_ids: PieceIds


class Proposal(Value):
    """A hypothesis that a model proposed. It is stored without support, or is one that was there (`existing`)."""

    text: Statement
    evidence_ids: PieceIds
    hypothesis_id: Id
    existing: bool = False
    mark: Literal["draft_ai"] = "draft_ai"


class Draft(Value):
    """A hypothesis as a model wrote it down."""

    text: Statement
    evidence_ids: PieceIds


class Written(Value):
    """A model's whole answer, read."""

    themes: tuple[Theme, ...] = Field(max_length=MAX_THEMES)
    hypotheses: tuple[Draft, ...] = Field(max_length=MAX_PROPOSALS)


class ModelCall(Value):
    """One call. `outcome`: `answered`, `void` or `failed`."""

    provider: str
    model: str
    outcome: str
    error_type: str | None = None
    reply_sha256: str | None = None
    cached: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None


class SynthesisRecord(Value):
    """What was found, once per `key`: the hash of the input, the mode and the routing.

    `fallback` says why there is nothing of a model where one was wanted; it is kept for the same input.
    """

    synthesis_id: Id
    key: Digest
    mode: Mode
    run_id: Id | None
    hypothesis_ids: tuple[Id, ...]
    clusters: tuple[Cluster, ...]
    pieces: tuple[Piece, ...]
    n_left_out: int
    themes: tuple[Theme, ...]
    proposals: tuple[Proposal, ...]
    calls: tuple[ModelCall, ...] = Field(max_length=MAX_CALLS)
    fallback: str | None
    model: str | None
    provider: str | None
    prompt: PromptRef
    schema_version: str
    input_sha256: Digest
    created_at: str


class SynthesisView(SynthesisRecord):
    """A synthesis; `reused` = it was there already."""

    reused: bool = False
