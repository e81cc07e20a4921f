"""What was agreed before anybody was asked: the form of an answer, the prompt, the evidence map, the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from layers.canonical import canonical_bytes, sha256_of
from layers.evidence import DEFAULT_LIMITS, EvidenceLimits
from layers.model import JsonObject, PromptRef
from layers.pointers import MAX_CLAIMS, MAX_TEXT
from layers.profile import SystemProfile


@dataclass(frozen=True, slots=True)
class PreflightPolicy:
    """How preflight looks: how old an item's times may be (days), and how much of a narrative is read."""

    max_age_days: int = 365
    max_sentences: int = 60
    max_characters: int = 20_000

    def oldest(self, as_of: str) -> str:
        """The oldest day that is not stale at the time `as_of` (RFC 3339), as `YYYY-MM-DD`."""
        return (date.fromisoformat(as_of[:10]) - timedelta(days=self.max_age_days)).isoformat()


@dataclass(frozen=True)
class Contracts:
    """The contracts of one configuration, made once and bound into every evaluation under it."""

    answer: JsonObject
    prompt: JsonObject | None
    evidence: JsonObject
    policy: JsonObject

    def as_json(self) -> JsonObject:
        """The contracts as part of the preflight stage."""
        return {
            "answer_contract": self.answer,
            "prompt_contract": self.prompt,
            "evidence_contract": self.evidence,
            "policy": self.policy,
        }

    @cached_property
    def not_needed(self) -> bytes:
        """The preflight note of an item that nothing was asked about: no questions, but the policy in force.

        Canonical bytes, made once: nearly every item gets this one.
        """
        return canonical_bytes({"status": "not_needed", **self.as_json()})


def make_contracts(
    profile: SystemProfile,
    *,
    prompt: PromptRef | None = None,
    max_pointers: int = 8,
    limits: EvidenceLimits = DEFAULT_LIMITS,
    preflight: PreflightPolicy = PreflightPolicy(),
    settings: Mapping[str, Any] | None = None,
) -> Contracts:
    """The contracts under a profile. `settings` are further values of the policy (thresholds, epoch), JSON-ready."""
    plain = _plain(profile.model_dump())
    return Contracts(
        answer={
            "form": "verdict, confidence, claims of text and evidence_ids",
            "labels": list(profile.labels),
            "max_claims": MAX_CLAIMS,
            "max_claim_text": MAX_TEXT,
            "max_pointers": max_pointers,
        },
        prompt=None if prompt is None else prompt.model_dump(),
        evidence={
            "max_per_role": {role.value: most for role, most in limits.per_role.items()},
            "max_text": limits.text,
            "max_named_text": limits.named_text,
        },
        policy={
            "profile": profile.name,
            "profile_sha256": sha256_of(canonical_bytes(plain)),
            "external_models": profile.external_models,
            "max_age_days": preflight.max_age_days,
            "max_sentences": preflight.max_sentences,
            "max_characters": preflight.max_characters,
            **(settings or {}),
        },
    )


def _plain(value: Any) -> Any:
    """JSON-ready, with sets in order: the same profile has the same hash in every process."""
    if isinstance(value, Mapping):
        return {str(key): _plain(child) for key, child in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(child) for child in value), key=str)
    if isinstance(value, (list, tuple)):
        return [_plain(child) for child in value]
    return value
