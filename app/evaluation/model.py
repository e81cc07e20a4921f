"""What `/evaluate` takes and answers; field names and meanings are public."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from layers.model import (
    Cause,
    ConsistencyResult,
    DisagreementResult,
    Disposition,
    HeuristicResult,
    Identifier,
    InstrumentPath,
    JsonObject,
    JudgeVerdict,
    Label,
    LayerName,
    NarrativeGroundingResult,
    Rung,
    SkipReason,
    UnitInterval,
    Value,
)

SystemName = Annotated[str, Field(min_length=1, max_length=64)]


class EvaluateRequest(Value):
    """One prediction to look at.

    `label` and `confidence` may be left out for a system whose payload the service can read. `input` is what the system
    was asked; without it the layers that ask again have nothing to ask.
    """

    id: Identifier
    system: SystemName
    raw_output: JsonObject
    label: Label | None = None
    confidence: UnitInterval | None = None
    metadata: JsonObject = Field(default_factory=dict)
    input: JsonObject | None = None


class LayerReport(BaseModel):
    """How one layer ended. `reason` is set when it was skipped, `cause` when it failed, and where the judge layer
    ended with the fallback: then it says which judges gave no answer, and why."""

    model_config = ConfigDict(frozen=True)

    status: Literal["scored", "skipped", "failed"]
    reason: SkipReason | None = None
    cause: Cause | None = None
    elapsed_ms: float
    version: str


class Compliance(BaseModel):
    """The design's ten principles by number: those this evaluation held to, gave no occasion for, or violated."""

    model_config = ConfigDict(frozen=True)

    held: tuple[int, ...]
    not_applicable: tuple[int, ...]
    violated: tuple[int, ...]


class OnlineScoringResult(BaseModel):
    """What the service concluded about one prediction.

    A `*_result` is null when that layer has no finding; `layers` says why. `decision` names the row of the decision
    table that gave the disposition. `suspicion_score` is null when no check that sets it could run.
    `parent_id` names the answered evaluation that this one re-examines for the audit sample. `compliance` is null where
    no provenance is kept. `erased` = what layers found, and the label, were erased afterwards.
    """

    model_config = ConfigDict(frozen=True)

    evaluation_id: str
    prediction_id: str
    system: str
    label: str
    disposition: Disposition
    decision: str
    degraded: bool
    suspicion_score: UnitInterval | None
    escalated: bool
    escalation_reasons: tuple[str, ...]
    inclusion_probability: UnitInterval
    heuristic_result: HeuristicResult | None
    narrative_grounding_result: NarrativeGroundingResult | None
    disagreement_result: DisagreementResult | None
    consistency_result: ConsistencyResult | None
    judge_verdict: JudgeVerdict | None
    layers: dict[LayerName, LayerReport]
    instrument_path: InstrumentPath | None
    assurance: Rung | None
    compliance: Compliance | None = None
    erased: bool = False
    provenance_root: str | None = None
    log_index: int | None = None
    parent_id: str | None = None
    revision: int = Field(ge=1)
    replayed: bool
    created_at: str


class WorkError(BaseModel):
    """Why accepted work came to nothing."""

    model_config = ConfigDict(frozen=True)

    kind: str
    message: str


class Accepted(BaseModel):
    """Work that was accepted and has no result to show: not yet (`accepted`), or never (`failed`)."""

    model_config = ConfigDict(frozen=True)

    evaluation_id: str
    status: Literal["accepted", "done", "failed"]
    batch_id: str | None = None
    error: WorkError | None = None
    created_at: str


class BatchStatus(BaseModel):
    """How far an accepted batch is. `evaluation_ids` are in the order of the batch's lines."""

    model_config = ConfigDict(frozen=True)

    batch_id: str
    status: Literal["accepted", "done"]
    n_total: int
    n_done: int
    n_failed: int
    evaluation_ids: tuple[str, ...]
    created_at: str
