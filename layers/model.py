"""The vocabulary: what is judged, what a layer concludes, and how a layer can end."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

JsonObject: TypeAlias = dict[str, Any]
"""A decoded JSON object. The service's parser has already refused NaN, duplicate keys, lone surrogates and NUL."""

Identifier: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=512)]
Label: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Axis: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=128)]
UnitInterval: TypeAlias = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Value(BaseModel):
    """An immutable value that refuses fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EvalPrediction(Value):
    """What a system under test decided about one item.

    `raw_output` is the system's own payload, untouched; `confidence` is in 0..1 and means what the system profile says.
    """

    id: Identifier
    raw_output: JsonObject
    label: Label
    confidence: UnitInterval
    metadata: JsonObject = Field(default_factory=dict)


class EvalExample(Value):
    """One labelled item: what to ask the system, and what the right answer is.

    `id` defaults to the example's position in its dataset. `prediction` is what a recorded dataset already carries.
    `group` names the cluster that intervals must respect (the customer, the day).
    """

    id: Identifier | None = None
    input: JsonObject = Field(default_factory=dict)
    expected_label: Label
    expected_labels: dict[Axis, Label] | None = Field(default=None, max_length=64)
    prediction: EvalPrediction | None = None
    group: str | None = Field(default=None, max_length=512)
    metadata: JsonObject = Field(default_factory=dict)


class EvalDataset(Value):
    """Labelled examples in the order in which they were given."""

    examples: tuple[EvalExample, ...]


# --- findings -------------------------------------------------------------------------------------------------------


class Flag(Value):
    """One reason to look closer. `severity` is in 0..1; `pointer` is the JSON Pointer of the field looked at."""

    rule: str
    reason: str
    severity: UnitInterval
    pointer: str


class HeuristicResult(Value):
    """What the free checks saw. `suspicion_score` is the largest severity, 0 without flags."""

    flagged: bool
    flags: tuple[Flag, ...] = ()
    suspicion_score: UnitInterval = 0.0


class AnchorStatus(StrEnum):
    """What is known of a claim-bearing token in a narrative."""

    BY_REFERENCE = "grounded_by_reference"
    BY_RETRIEVAL = "grounded_by_retrieval"
    UNGROUNDED = "ungrounded"
    UNKNOWN = "unknown"


class Anchor(Value):
    """A token that can be checked: a citation, a regulatory keyword, an amount, a date, a name."""

    text: str
    kind: str
    status: AnchorStatus
    evidence_ids: tuple[str, ...] = ()


class NarrativeGroundingResult(Value):
    """Whether what a narrative cites stands in its references (stage 2) or in the policy corpus (stage 3)."""

    ng_flagged: bool
    stage: Literal[1, 2, 3]
    anchors: tuple[Anchor, ...] = ()


class ProviderError(Value):
    """Why one provider gave no label."""

    kind: str
    message: str


class DisagreementResult(Value):
    """What each provider said of the same input. `agreed` is None (unknown) as soon as one of them failed."""

    labels_by_provider: dict[str, str]
    confidence_by_provider: dict[str, float]
    errors_by_provider: dict[str, ProviderError]
    agreed: bool | None
    confidence_spread: float | None


class Neighbor(Value):
    """An earlier verdict near this item. `similarity` is the index's score; `stale` = another policy epoch."""

    id: str
    label: str
    similarity: float
    stale: bool


class ConsistencyResult(Value):
    """How near neighbours were labelled. `consistent` is None when there was nothing to compare with, or a tie."""

    consistent: bool | None
    majority_label: str | None
    neighbors: tuple[Neighbor, ...] = ()
    embedder: str
    threshold: float


class Rung(StrEnum):
    """How much of a claim was checked, lowest first (principle 7)."""

    UNGROUNDED = "UNGROUNDED"
    POINTER_LINKED = "POINTER-LINKED"
    ANCHOR_WARRANTED = "ANCHOR-WARRANTED"
    EVIDENCE_WARRANTED = "EVIDENCE-WARRANTED"
    ENTAILMENT_VERIFIED = "ENTAILMENT-VERIFIED"


RUNGS: tuple[Rung, ...] = tuple(Rung)
"""The ladder, lowest first."""


class InstrumentPath(StrEnum):
    """Which judge really answered; figures from different paths are never averaged silently."""

    OLLAMA = "ollama"
    GEMINI_FLASH = "gemini_flash"
    OPENAI_COMPATIBLE = "openai_compatible"
    HEURISTICS_FALLBACK = "heuristics_fallback"


class Claim(Value):
    """A model's statement and the evidence it points to; `rung` and `problems` are set by code alone."""

    text: str
    evidence_ids: tuple[str, ...]
    rung: Rung
    problems: tuple[str, ...] = ()


class JudgeAttempt(Value):
    """One judge asked. `outcome` is `answered`, `failed` or `skipped`; token counts are null when not reported."""

    source: InstrumentPath
    outcome: Literal["answered", "failed", "skipped"]
    error_type: str | None = None
    elapsed_ms: float
    input_tokens: int | None = None
    output_tokens: int | None = None


class PromptRef(Value):
    """The prompt that was in force, by name, version and hash of its text."""

    name: str
    version: str
    sha256: str


class JudgeVerdict(Value):
    """What the judge chain concluded. The fallback has no label: it never pretends that a model looked."""

    source: InstrumentPath
    verdict_label: str | None
    agrees: bool | None
    confidence: UnitInterval | None
    reasoning: str | None
    claims: tuple[Claim, ...] = ()
    attempts: tuple[JudgeAttempt, ...] = ()
    cached: bool = False
    repaired: bool = False
    prompt: PromptRef | None = None

    @property
    def assurance(self) -> Rung | None:
        """The rung of the lowest claim, `UNGROUNDED` without claims; None where no model gave a verdict."""
        if self.verdict_label is None or self.source is InstrumentPath.HEURISTICS_FALLBACK:
            return None
        return min((claim.rung for claim in self.claims), key=RUNGS.index, default=Rung.UNGROUNDED)


Finding: TypeAlias = HeuristicResult | NarrativeGroundingResult | DisagreementResult | ConsistencyResult | JudgeVerdict


# --- outcomes -------------------------------------------------------------------------------------------------------


class SkipReason(StrEnum):
    """Why a layer did not look."""

    NOT_SELECTED = "not_selected"
    NOT_CONFIGURED = "not_configured"
    CIRCUIT_OPEN = "circuit_open"
    DISABLED = "disabled"
    SIDE_EFFECTS = "side_effects"
    NO_INPUT = "no_input"
    NO_NARRATIVE = "no_narrative"
    FALLBACK_PREDICTION = "fallback_prediction"
    NOTHING_TO_GROUND = "nothing_to_ground"


DEGRADING: frozenset[SkipReason] = frozenset({SkipReason.NOT_CONFIGURED, SkipReason.CIRCUIT_OPEN})
"""Skips that mean that something was missed; the others mean that there was nothing to do."""


class Cause(Value):
    """Why a layer failed. `dependency` is the breaker's name when a remote was the reason."""

    kind: str
    message: str
    dependency: str | None = None


class Scored(Value):
    """The layer looked and concluded."""

    status: Literal["scored"] = "scored"
    finding: Finding
    elapsed_ms: float
    version: str


class Skipped(Value):
    """The layer did not look, for a reason that is not a failure."""

    status: Literal["skipped"] = "skipped"
    reason: SkipReason
    elapsed_ms: float = 0.0
    version: str


class Failed(Value):
    """The layer tried and could not. `finding` is what it can show of the attempt; it concludes nothing."""

    status: Literal["failed"] = "failed"
    cause: Cause
    finding: Finding | None = None
    elapsed_ms: float
    version: str


Outcome: TypeAlias = Annotated[Scored | Skipped | Failed, Field(discriminator="status")]


def is_degraded(outcome: Scored | Skipped | Failed) -> bool:
    """Whether a layer that should have spoken did not."""
    match outcome:
        case Scored():
            return False
        case Skipped(reason=reason):
            return reason in DEGRADING
        case Failed():
            return True


class Disposition(StrEnum):
    """What the verdict tells the caller."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FLAG = "flag"
    REVIEW = "review"
    INCONCLUSIVE = "inconclusive"


# --- evidence -------------------------------------------------------------------------------------------------------


class EvidenceRole(StrEnum):
    """Where a numbered piece of evidence came from; claim kinds accept only some roles."""

    RAW_OUTPUT = "raw_output"
    INPUT = "input"
    FLAG = "flag"
    PROVIDER = "provider"
    NEIGHBOR = "neighbor"
    POLICY = "policy"


class Evidence(Value):
    """One thing a layer or a model may point to. `id` is `E1`, `E2`, ...; `pointer` says where it stands."""

    id: str
    role: EvidenceRole
    pointer: str
    text: str


class LayerName(StrEnum):
    """Every layer there is, in cost order; an answer has one entry for each."""

    HEURISTICS = "heuristics"
    NARRATIVE_GROUNDING = "narrative_grounding"
    DISAGREEMENT = "disagreement"
    CONSISTENCY = "consistency"
    JUDGE = "judge"
