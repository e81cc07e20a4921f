"""A service over layers that a test steers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from pydantic import SecretStr

from app.evaluation.evaluator import Evaluator
from app.evaluation.model import EvaluateRequest
from app.evaluation.run_layer import LayerSpec
from app.evaluation.service import EvaluationService, Options
from app.settings import EvaluationSettings
from app.store.database import Database
from layers.errors import DependencyMalformed
from layers.model import (
    Claim,
    ConsistencyResult,
    DisagreementResult,
    Finding,
    Flag,
    HeuristicResult,
    InstrumentPath,
    JsonObject,
    JudgeVerdict,
    LayerName,
    NarrativeGroundingResult,
    Rung,
)
from layers.ports import LayerInput, Reading, System
from layers.profile import SystemProfile

Behaviour = Callable[[LayerInput], Awaitable[Finding]]

CLEAN = HeuristicResult(flagged=False)
DOUBT = HeuristicResult(
    flagged=True,
    flags=(Flag(rule="low_confidence", reason="low", severity=0.7, pointer="/confidence"),),
    suspicion_score=0.7,
)
GROUNDED = NarrativeGroundingResult(ng_flagged=False, stage=1)
AGREED = DisagreementResult(
    labels_by_provider={"a": "high", "b": "high"},
    confidence_by_provider={"a": 0.9},
    errors_by_provider={},
    agreed=True,
    confidence_spread=0.0,
)
CONSISTENT = ConsistencyResult(consistent=True, majority_label="high", embedder="e", threshold=0.9)


def judged(label: str = "high", source: InstrumentPath = InstrumentPath.OLLAMA) -> JudgeVerdict:
    claim = Claim(text="c", evidence_ids=("E1",), rung=Rung.ANCHOR_WARRANTED)
    return JudgeVerdict(source=source, verdict_label=label, agrees=None, confidence=0.9, reasoning="r", claims=(claim,))


def gives(finding: Finding) -> Behaviour:
    async def layer(_item: LayerInput) -> Finding:
        return finding

    return layer


def raises(error: BaseException) -> Behaviour:
    async def layer(_item: LayerInput) -> Finding:
        raise error

    return layer


async def hangs(_item: LayerInput) -> Finding:
    await anyio.sleep_forever()
    raise AssertionError


@dataclass
class Stage:
    """Layers that do what `behave` says, and count who was asked. Predictions below 0.4 are flagged."""

    behave: dict[LayerName, Behaviour] = field(default_factory=dict)
    timeouts: Mapping[LayerName, float] = field(default_factory=dict)
    absent: frozenset[LayerName] = frozenset()
    asked: list[LayerName] = field(default_factory=list)
    seen: dict[LayerName, LayerInput] = field(default_factory=dict)

    def __post_init__(self) -> None:
        defaults: dict[LayerName, Behaviour] = {
            LayerName.HEURISTICS: _doubts_below_four_tenths,
            LayerName.NARRATIVE_GROUNDING: gives(GROUNDED),
            LayerName.DISAGREEMENT: gives(AGREED),
            LayerName.CONSISTENCY: gives(CONSISTENT),
            LayerName.JUDGE: gives(judged()),
        }
        self.behave = defaults | self.behave

    def specs(self) -> dict[LayerName, LayerSpec]:
        return {
            name: LayerSpec(None if name in self.absent else self._layer(name), self.timeouts.get(name, 10.0), "7")
            for name in LayerName
        }

    def _layer(self, name: LayerName) -> Behaviour:
        async def layer(item: LayerInput) -> Finding:
            self.asked.append(name)
            self.seen[name] = item
            return await self.behave[name](item)

        return layer

    def times(self, name: LayerName) -> int:
        return self.asked.count(name)


async def _doubts_below_four_tenths(item: LayerInput) -> Finding:
    return DOUBT if item.prediction.confidence < 0.4 else CLEAN


def read_payload(raw_output: JsonObject) -> Reading:
    if "label" not in raw_output:
        raise DependencyMalformed("known", "malformed", "label is missing")
    return Reading(raw_output["label"], raw_output.get("confidence", 0.0), {"confidence_missing": True})


SYSTEMS = {
    "known": System(
        SystemProfile(name="known", labels=("low", "high"), elevated={"high"}, not_verdicts={"skipped"}), read_payload
    ),
    "plain": System(SystemProfile(name="plain")),
}


def build_service(
    database: Database, stage: Stage, *, audit_rate: float = 0.0, options: Options | None = None, **evaluator: Any
) -> EvaluationService:
    settings = EvaluationSettings(audit_rate=audit_rate, audit_key=SecretStr("k"))
    return EvaluationService(database, SYSTEMS, Evaluator(stage.specs(), **evaluator), settings, options or Options())


def request(number: int | str = 1, *, confidence: float | None = 0.9, **fields: Any) -> EvaluateRequest:
    """A prediction; below 0.4 it will be flagged."""
    given = {"id": f"txn-{number}", "system": "known", "raw_output": {"n": number}, "label": "high"} | fields
    return EvaluateRequest(confidence=confidence, **given)


FLAGGED: dict[str, Any] = {"confidence": 0.3}
