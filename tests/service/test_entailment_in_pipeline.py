"""After grounding and the judge, claims may be held against policies: with the evidence at hand, before the verdict."""

from __future__ import annotations

from typing import Any

import pytest

from app.evaluation.service import Options
from app.store.database import Database
from layers.model import LayerName, Outcome, Rung
from layers.ports import LayerInput
from tests.evaluations import Stage, build_service, request

pytestmark = pytest.mark.anyio


class Lifting:
    """Lifts every claim to the top, and keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[LayerInput, float]] = []

    async def __call__(self, item: LayerInput, outcomes: dict[LayerName, Outcome], /, *, seconds: float) -> None:
        self.shown.append((item, seconds))
        judge: Any = outcomes[LayerName.JUDGE]
        claims = tuple(claim.model_copy(update={"rung": Rung.ENTAILMENT_VERIFIED}) for claim in judge.finding.claims)
        finding = judge.finding.model_copy(update={"claims": claims})
        outcomes[LayerName.JUDGE] = judge.model_copy(update={"finding": finding})


async def test_an_escalated_item_gets_the_rung_that_entailment_gave_its_claims(database: Database) -> None:
    lifting = Lifting()
    answer = await build_service(database, Stage(), options=Options(entail=lifting)).evaluate(request(confidence=0.1))
    assert answer.assurance is Rung.ENTAILMENT_VERIFIED
    item, seconds = lifting.shown[0]
    assert item.evidence
    assert 0 < seconds <= 75


async def test_nobody_is_asked_about_an_item_that_was_not_escalated(database: Database) -> None:
    lifting = Lifting()
    await build_service(database, Stage(), options=Options(entail=lifting)).evaluate(request())
    assert lifting.shown == []


async def test_without_a_model_no_claim_is_lifted(database: Database) -> None:
    answer = await build_service(database, Stage()).evaluate(request(confidence=0.1))
    assert answer.assurance is not Rung.ENTAILMENT_VERIFIED
