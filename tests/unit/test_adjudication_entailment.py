"""The highest rung: only from an accepted `supports` about the policy text that a warranted claim points to."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import prompts
from app.adjudication.entailment import (
    FORBIDDEN,
    MAX_PAIRS,
    TOO_MANY,
    ClaimPassage,
    Entailment,
    EntailmentRecord,
    pairs_of_claims,
    promoted,
    settle,
)
from layers.adjudication import Adjudicator
from layers.errors import DependencyUnavailable
from layers.model import Claim, EvalPrediction, Evidence, EvidenceRole, JudgeVerdict, LayerName, Rung, Scored
from layers.ports import LayerInput
from layers.profile import SystemProfile
from layers.scrubbing import Scrubber
from layers.structured_call import StructuredCall
from tests.adjudications import SECRET, reply, says
from tests.unit.answerers import ScriptedAnswerer

pytestmark = pytest.mark.anyio

POLICY = Evidence(id="E2", role=EvidenceRole.POLICY, pointer="aml-4.2", text="Transfers above 10,000 need review.")
FIELD = Evidence(id="E1", role=EvidenceRole.INPUT, pointer="/amount", text="12000")


def claim(
    rung: Rung = Rung.EVIDENCE_WARRANTED, ids: tuple[str, ...] = ("E1", "E2"), text: str = "It needs review."
) -> Claim:
    return Claim(text=text, evidence_ids=ids, rung=rung)


def checker(answer: Any, **fields: Any) -> tuple[Entailment, ScriptedAnswerer]:
    model = ScriptedAnswerer(lambda _: answer, **fields)
    return Entailment(Adjudicator(model, prompts.load("adjudication"), StructuredCall()), Scrubber([SECRET])), model


async def held(answer: Any, claims: list[Claim]) -> tuple[tuple[Claim, ...], tuple[EntailmentRecord, ...]]:
    check, _ = checker(answer)
    records = await check.check(pairs_of_claims(claims, [FIELD, POLICY]), external_models=True)
    return promoted(claims, records), records


async def test_an_accepted_support_lifts_a_warranted_claim() -> None:
    (risen,), (record,) = await held(reply(), [claim()])
    assert (risen.rung, record.passage_id, record.entails) == (Rung.ENTAILMENT_VERIFIED, "E2", True)


@pytest.mark.parametrize(
    "answer",
    [
        reply("neutral"),
        reply("contradicts"),
        reply("uncertain"),
        reply(relevance=59),
        reply(confidence=69),
        reply(rung="ENTAILMENT-VERIFIED"),
        "It is entailed.",
        DependencyUnavailable("x", "timeout"),
    ],
)
async def test_nothing_else_does(answer: Any) -> None:
    """Not a model's word, not a field that it adds, and no failure."""
    (same,), (record,) = await held(answer, [claim()])
    assert same == claim()
    assert not record.entails


@pytest.mark.parametrize("rung", [Rung.UNGROUNDED, Rung.POINTER_LINKED, Rung.ANCHOR_WARRANTED])
async def test_a_claim_that_code_has_not_warranted_is_not_even_asked_about(rung: Rung) -> None:
    """And would not rise if it were: entailment replaces no check."""
    low = claim(rung)
    assert pairs_of_claims([low], [FIELD, POLICY]) == []
    _, records = await held(reply(), [claim()])
    assert promoted([low], records) == (low,)


async def test_only_policy_text_that_the_claim_points_to_counts() -> None:
    assert pairs_of_claims([claim(ids=("E1",))], [FIELD, POLICY]) == []
    _, records = await held(reply(), [claim()])
    other = claim(ids=("E1",))
    assert promoted([other], records) == (other,)
    assert promoted([claim(text="Something else.")], records)[0].rung is Rung.EVIDENCE_WARRANTED


async def test_what_one_passage_contradicts_another_one_cannot_lift() -> None:
    both = [ClaimPassage("It needs review.", name, "text") for name in ("E1", "E2")]
    yes = await checker(reply())[0].check(both[:1], external_models=True)
    no = await checker(reply("contradicts"))[0].check(both[1:], external_models=True)
    assert promoted([claim()], yes)[0].rung is Rung.ENTAILMENT_VERIFIED
    assert promoted([claim()], [*yes, *no])[0].rung is Rung.EVIDENCE_WARRANTED


async def test_a_profile_can_forbid_external_models() -> None:
    check, model = checker(reply(), external=True)
    (record,) = await check.check([ClaimPassage("c", "E2", "p")], external_models=False)
    assert (record.decision.reason, model.asked) == (FORBIDDEN, [])


async def test_pairs_are_bounded_and_a_dead_model_is_asked_once() -> None:
    pairs = [ClaimPassage(f"claim {n}", "E2", "p") for n in range(MAX_PAIRS + 2)]
    check, model = checker(reply())
    records = await check.check(pairs, external_models=True)
    assert len(model.asked) == MAX_PAIRS
    assert [each.decision.reason for each in records] == ["accepted"] * MAX_PAIRS + [TOO_MANY] * 2
    check, model = checker(DependencyUnavailable("x", "refused"))
    await check.check(pairs, external_models=True)
    assert len(model.asked) == 1
    assert await check.check([], external_models=True) == ()


async def test_no_secret_reaches_the_model_or_the_record() -> None:
    check, model = checker(reply(rationale=f"since {SECRET}"))
    (record,) = await check.check([ClaimPassage(f"It is {SECRET}.", "E2", SECRET)], external_models=True)
    assert SECRET not in model.asked[0].text
    assert SECRET not in record.model_dump_json()


async def test_a_record_says_what_it_rests_on() -> None:
    check, _ = checker(reply())
    (record,) = await check.check([ClaimPassage("c", "E2", "p")], external_models=True)
    assert record.prompt is not None
    assert record.prompt.name == "adjudication"
    assert record.attempts[0].model == says("").identity
    assert record.passage_sha256.startswith("sha256:")


# --- after the judge --------------------------------------------------------------------------------------------------


class Notes:
    """A trace that keeps what was noted."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, Any]] = []

    def note(self, stage: str, value: Any) -> None:
        self.kept.append((stage, value))


def judged(*claims: Claim) -> dict[LayerName, Any]:
    verdict = JudgeVerdict(
        source="ollama", verdict_label="high", agrees=True, confidence=0.9, reasoning=None, claims=claims
    )
    return {LayerName.JUDGE: Scored(finding=verdict, elapsed_ms=1, version="1")}


def looked_at(notes: Notes) -> LayerInput:
    prediction = EvalPrediction(id="p", raw_output={}, label="high", confidence=0.5)
    return LayerInput(prediction, SystemProfile(name="s"), None, (FIELD, POLICY), {}, notes)


async def test_the_judges_claims_get_their_rungs_and_the_records_their_stage() -> None:
    notes, outcomes, low = Notes(), judged(claim(), claim(Rung.POINTER_LINKED)), claim(Rung.POINTER_LINKED)
    await settle(checker(reply())[0], looked_at(notes), outcomes, seconds=5)
    assert [each.rung for each in outcomes[LayerName.JUDGE].finding.claims] == [Rung.ENTAILMENT_VERIFIED, low.rung]
    assert [stage for stage, _ in notes.kept] == ["adjudication"]
    assert notes.kept[0][1]["decision"]["effect"] == "link"


async def test_without_a_model_a_claim_or_time_nothing_changes() -> None:
    for check, outcomes, seconds in (
        (None, judged(claim()), 5.0),
        (checker(reply())[0], judged(claim(Rung.ANCHOR_WARRANTED)), 5.0),
        (checker(reply())[0], {}, 5.0),
        (Entailment(asking_for_ever(), Scrubber()), judged(claim()), 0.01),
    ):
        notes, before = Notes(), dict(outcomes)
        await settle(check, looked_at(notes), outcomes, seconds=seconds)
        assert (outcomes, notes.kept) == (before, [])


def asking_for_ever() -> Adjudicator:
    async def hang() -> str:
        await anyio.sleep_forever()
        return ""

    return Adjudicator(ScriptedAnswerer(lambda _: hang()), prompts.load("adjudication"), StructuredCall())
