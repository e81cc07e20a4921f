"""Which layers look at an item: decided from what the free ones found, before any costly one is asked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from app.evaluation.findings import finding_of
from layers.model import Flag, HeuristicResult, LayerName, NarrativeGroundingResult, Outcome, is_degraded

TIERS: tuple[tuple[LayerName, ...], ...] = (
    (LayerName.HEURISTICS, LayerName.NARRATIVE_GROUNDING),
    (LayerName.DISAGREEMENT, LayerName.CONSISTENCY),
    (LayerName.JUDGE,),
)
"""The layers in cost order; those of one tier run at the same time."""

HARD_SEVERITY = 0.9
"""From here on a flag states a defect of the payload, which no second opinion about the label removes."""

AUDIT_REASON = "audit_sample"


class Trigger(StrEnum):
    """Why an item is, or is not, looked at by the costlier layers."""

    NONE = "none"  # nothing was flagged
    SOFT = "soft"  # doubt that a second opinion can settle
    HARD = "hard"  # a defect in the payload or its narrative
    DRAWN = "drawn"  # not flagged, drawn into the audit sample
    BLIND = "blind"  # nothing was flagged, and a free layer could not look
    REFUSED = "refused"  # preflight found that the question can't be put to anybody


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done. `inclusion_probability` is the chance that an item like this one is fully looked at."""

    trigger: Trigger
    reasons: tuple[str, ...]
    inclusion_probability: float

    @property
    def escalate(self) -> bool:
        """Whether the costlier layers run."""
        return self.trigger in (Trigger.SOFT, Trigger.HARD, Trigger.DRAWN)


def make_plan(outcomes: Mapping[LayerName, Outcome], *, audit_rate: float, audit: bool = False) -> Plan:
    """The plan for an item whose tier 0 ended as `outcomes`; `audit` = it is being re-examined for the sample."""
    heuristics = finding_of(outcomes, LayerName.HEURISTICS, HeuristicResult)
    grounding = finding_of(outcomes, LayerName.NARRATIVE_GROUNDING, NarrativeGroundingResult)
    flags = () if heuristics is None else heuristics.flags
    ungrounded = grounding is not None and grounding.ng_flagged
    reasons = [f"{LayerName.HEURISTICS}:{flag.rule}" for flag in flags]
    if ungrounded:
        reasons.append(f"{LayerName.NARRATIVE_GROUNDING}:ungrounded")
    flagged = bool(reasons)
    if audit:
        reasons.append(AUDIT_REASON)
    probability = 1.0 if flagged and not audit else audit_rate
    if flagged:
        hard = ungrounded or any(is_hard(flag) for flag in flags)
        return Plan(Trigger.HARD if hard else Trigger.SOFT, tuple(dict.fromkeys(reasons)), probability)
    if audit:
        return Plan(Trigger.DRAWN, tuple(reasons), probability)
    blind = any(is_degraded(outcomes[name]) for name in TIERS[0] if name in outcomes)
    return Plan(Trigger.BLIND if blind else Trigger.NONE, (), probability)


def refuse(plan: Plan, detectors: Sequence[str]) -> Plan:
    """The plan of an item about which nobody may be asked: its reasons stand, and those of preflight beside them.

    Items like it are never fully looked at, so their chance is 0: a person looks at all of them.
    """
    reasons = (*plan.reasons, *(f"preflight:{name}" for name in detectors))
    return replace(plan, trigger=Trigger.REFUSED, reasons=reasons, inclusion_probability=0.0)


def is_hard(flag: Flag) -> bool:
    """Whether the flag states a defect of the payload, rather than doubt about its certainty."""
    return flag.severity >= HARD_SEVERITY and flag.pointer != "/confidence"


def is_drawn(system: str, prediction_id: str, *, key: bytes, rate: float) -> bool:
    """Whether an item is in the audit sample: keyed BLAKE2b (RFC 7693) of system and id, as a fraction, below `rate`.

    The same item is drawn each time, nobody without the key can tell which are, and a higher rate only adds items.
    `key` may have any length: what is longer than BLAKE2b takes is hashed first. Unlike an HMAC of the standard library
    this does not let go of the interpreter's lock, which here meant to wait for another thread at every request.
    """
    name = system.encode() + b"\x00" + prediction_id.encode()
    short = key if len(key) <= hashlib.blake2b.MAX_KEY_SIZE else hashlib.sha256(key).digest()
    digest = hashlib.blake2b(name, key=short, digest_size=8).digest()
    return int.from_bytes(digest, "big") < rate * 2.0**64
