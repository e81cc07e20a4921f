"""Whether policy text entails what is claimed: what `/evaluate` may ask of adjudication, and the rung that follows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio

from layers.adjudication import (
    Adjudicated,
    Adjudicator,
    Attempt,
    Escalation,
    Prefilter,
    RunMemory,
    configuration_hash,
)
from layers.adjudication import Outcome as Ended
from layers.adjudication_question import Pair
from layers.adjudication_rules import Decision, Effect, Interpretation, Relation, decide
from layers.canonical import canonical_bytes, sha256_of
from layers.model import (
    Claim,
    Evidence,
    EvidenceRole,
    JsonObject,
    JudgeVerdict,
    LayerName,
    Outcome,
    PromptRef,
    Rung,
    Scored,
    Value,
)
from layers.ports import LayerInput
from layers.scrubbing import Scrubber

MAX_PAIRS = 8
"""Pairs that one evaluation may have adjudicated."""

FORBIDDEN = "external_models_forbidden"
"""Why nothing was asked: the profile keeps its data on the operator's machines."""
TOO_MANY = "too_many_pairs"


@dataclass(frozen=True, slots=True)
class ClaimPassage:
    """A claim and the policy text that it is held against. `passage_id`: its id on the evidence map."""

    claim: str
    passage_id: str
    passage: str


class EntailmentRecord(Value):
    """What came of one pair: the adjudication record of an evaluation, kept in its provenance."""

    claim: str
    passage_id: str
    passage_sha256: str
    outcome: Ended
    decision: Decision
    interpretation: Interpretation | None
    attempts: tuple[Attempt, ...]
    prefilter: Prefilter
    escalation: Escalation
    configuration_sha256: str | None
    prompt: PromptRef | None

    @property
    def entails(self) -> bool:
        """Whether it is an accepted `supports`: the one thing that lifts a claim to the highest rung."""
        return self.decision.effect is Effect.LINK and self.decision.relation is Relation.SUPPORTS

    @property
    def contradicts(self) -> bool:
        """Whether it is an accepted `contradicts`."""
        return self.decision.effect is Effect.LINK and self.decision.relation is Relation.CONTRADICTS


class ClaimCheck(Protocol):
    """Hold claims against policy text. One record per pair, in order; never raises but for cancellation.

    `external_models` is the profile's: False = no model outside the operator's machines is asked.
    """

    async def check(self, pairs: Sequence[ClaimPassage], *, external_models: bool) -> tuple[EntailmentRecord, ...]: ...


@dataclass(frozen=True)
class Entailment:
    """Claims against passages by the same adjudicator, thresholds and rules as everything else."""

    adjudicator: Adjudicator
    scrubber: Scrubber

    async def check(self, pairs: Sequence[ClaimPassage], *, external_models: bool) -> tuple[EntailmentRecord, ...]:
        """At most `MAX_PAIRS` are asked about, all at once; a model that is away is asked once."""
        memory = RunMemory()
        made: list[Adjudicated | str] = [TOO_MANY] * len(pairs)

        async def ask(at: int) -> None:
            made[at] = await self._one(pairs[at], memory, external_models=external_models)

        for at in range(min(1, len(pairs))):
            await ask(at)
        async with anyio.create_task_group() as group:
            for at in range(1, min(MAX_PAIRS, len(pairs))):
                group.start_soon(ask, at)
        return tuple(self._record(pair, result) for pair, result in zip(pairs, made, strict=True))

    async def _one(self, pair: ClaimPassage, memory: RunMemory, *, external_models: bool) -> Adjudicated | str:
        adjudicator = self.adjudicator
        if adjudicator.model.external and not external_models:
            return FORBIDDEN
        clean = self.scrubber.text
        try:
            return await adjudicator.adjudicate(Pair(clean(pair.claim), clean(pair.passage)), memory)
        except Exception:
            return "crashed"

    def _record(self, pair: ClaimPassage, made: Adjudicated | str) -> EntailmentRecord:
        if isinstance(made, str):
            decision = decide(made, self.adjudicator.thresholds)
            made = Adjudicated(outcome=Ended.FAILED, decision=decision, fallback=made)
        record: JsonObject = {
            "claim": pair.claim,
            "passage_id": pair.passage_id,
            "passage_sha256": sha256_of(canonical_bytes(pair.passage)),
            "outcome": made.outcome,
            "decision": made.decision.model_dump(mode="json"),
            "interpretation": None if made.interpretation is None else made.interpretation.model_dump(mode="json"),
            "attempts": [attempt.model_dump(mode="json") for attempt in made.attempts],
            "prefilter": made.prefilter,
            "escalation": made.escalation,
            "configuration_sha256": configuration_hash(self.adjudicator),
            "prompt": self.adjudicator.prompt.ref.model_dump(),
        }
        return EntailmentRecord.model_validate(self.scrubber.value(record))


def pairs_of_claims(claims: Iterable[Claim], evidence: Sequence[Evidence]) -> list[ClaimPassage]:
    """A judge's claims that code has warranted, each with the policy text that it points to."""
    policies = {piece.id: piece for piece in evidence if piece.role is EvidenceRole.POLICY}
    return [
        ClaimPassage(claim.text, name, policies[name].text)
        for claim in claims
        if claim.rung is Rung.EVIDENCE_WARRANTED
        for name in claim.evidence_ids
        if name in policies
    ]


def promoted(claims: Sequence[Claim], records: Iterable[EntailmentRecord]) -> tuple[Claim, ...]:
    """The claims with the highest rung where an accepted `supports` says so, and nothing accepted contradicts.

    Only a claim that stands on the rung below rises: entailment adds to what code has checked and replaces none of it.
    """
    found = list(records)
    return tuple(
        claim.model_copy(update={"rung": Rung.ENTAILMENT_VERIFIED}) if _is_entailed(claim, found) else claim
        for claim in claims
    )


def _is_entailed(claim: Claim, records: Sequence[EntailmentRecord]) -> bool:
    about = [each for each in records if each.claim == claim.text and each.passage_id in claim.evidence_ids]
    if claim.rung is not Rung.EVIDENCE_WARRANTED or any(each.contradicts for each in about):
        return False
    return any(each.entails for each in about)


async def settle(
    check: ClaimCheck | None, item: LayerInput, outcomes: dict[LayerName, Outcome], *, seconds: float
) -> None:
    """Follow grounding and the judge: hold the judge's warranted claims against the policies that they point to.

    `item` carries the evidence that the judge was shown, and the trace that takes the records (stage `adjudication`).
    The judge's outcome is replaced by one with the rungs that follow. Without a model, without such a claim, or where
    `seconds` do not suffice, everything stays as it is: a missing check lifts nobody.
    """
    scored = outcomes.get(LayerName.JUDGE)
    if check is None or not isinstance(scored, Scored) or not isinstance(scored.finding, JudgeVerdict):
        return
    pairs = pairs_of_claims(scored.finding.claims, item.evidence)
    if not pairs:
        return
    with anyio.move_on_after(seconds):
        records = await check.check(pairs, external_models=item.profile.external_models)
        for record in records:
            item.trace.note("adjudication", {"layer": LayerName.JUDGE.value, **record.model_dump(mode="json")})
        finding = scored.finding.model_copy(update={"claims": promoted(scored.finding.claims, records)})
        outcomes[LayerName.JUDGE] = scored.model_copy(update={"finding": finding})
