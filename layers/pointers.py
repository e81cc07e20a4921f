"""Verification of a model's claims by the evidence they point to: plain code, no model, no quotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layers.model import Claim, Evidence, EvidenceRole, JsonObject, Rung


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the claims: whether it ran, how it looks, whether it passed (None when it did not run)."""

    name: str
    ran: bool
    method: str
    passed: bool | None


@dataclass(frozen=True, slots=True)
class Verification:
    """What the claims are worth. `rung` is the lowest claim's, `UNGROUNDED` without claims."""

    claims: tuple[Claim, ...]
    rung: Rung
    counts: Mapping[Rung, int]
    checks: tuple[Check, ...]
    coverage: float | None
    """Share of the claims whose every clause is backed by what they point to; None without claims."""

    def as_json(self) -> JsonObject:
        """The verification as its provenance stage."""
        raise NotImplementedError


def verify_claims(
    claims: object,
    evidence: Sequence[Evidence],
    *,
    labels: Sequence[str] = (),
    incomplete: Sequence[EvidenceRole] = (),
    max_pointers: int = 8,
) -> Verification:
    """Check claims `[{"text", "evidence_ids"}]` (hostile: any decoded JSON) against the evidence map.

    `labels` are the system's label words; `incomplete` the roles of which the map holds only a part.
    """
    raise NotImplementedError
