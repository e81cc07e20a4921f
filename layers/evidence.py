"""The evidence map: all that a layer or a model may point to, numbered by the service before anybody is asked."""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from layers.json_pointer import MISSING, escape, resolve
from layers.model import (
    AnchorStatus,
    ConsistencyResult,
    DisagreementResult,
    EvalPrediction,
    Evidence,
    EvidenceRole,
    HeuristicResult,
    JsonObject,
    LayerName,
    NarrativeGroundingResult,
    Outcome,
    Skipped,
)
from layers.ports import PolicyChunk
from layers.profile import SystemProfile

CUT = "\u2026[cut]"
"""Ends a text that was longer than its limit; it holds nothing that a claim could lean on."""

Item = tuple[EvidenceRole, str, str]  # role, pointer, text


@dataclass(frozen=True, slots=True)
class EvidenceLimits:
    """How much the map may hold: pieces by role, characters of a text, and of a field that the profile names."""

    per_role: Mapping[EvidenceRole, int] = field(
        default_factory=lambda: {
            EvidenceRole.RAW_OUTPUT: 24,
            EvidenceRole.INPUT: 24,
            EvidenceRole.FLAG: 16,
            EvidenceRole.PROVIDER: 8,
            EvidenceRole.NEIGHBOR: 8,
            EvidenceRole.POLICY: 10,
        }
    )
    text: int = 2_000
    named_text: int = 8_000


DEFAULT_LIMITS = EvidenceLimits()


@dataclass(frozen=True, slots=True)
class EvidenceMap:
    """The numbered pieces, and what the limits kept out: roles of which pieces are missing, ids whose text was cut."""

    items: tuple[Evidence, ...]
    incomplete: tuple[EvidenceRole, ...] = ()
    cut: tuple[str, ...] = ()

    def as_json(self) -> JsonObject:
        """The map as its provenance stage."""
        return {
            "items": [{"id": e.id, "role": e.role.value, "pointer": e.pointer, "text": e.text} for e in self.items],
            "incomplete": [role.value for role in self.incomplete],
            "cut": list(self.cut),
        }


def build_map(
    prediction: EvalPrediction,
    *,
    profile: SystemProfile,
    input: JsonObject | None = None,
    outcomes: Mapping[LayerName, Outcome] | None = None,
    policies: Sequence[PolicyChunk] = (),
    limits: EvidenceLimits = DEFAULT_LIMITS,
) -> EvidenceMap:
    """Number the evidence `E1`, `E2`, ...: the same content gives the same numbers, whatever the order of its keys.

    Order: fields of the raw output (those the profile names first, then level by level, keys sorted), of the input,
    flags, provider labels, neighbours, policy chunks. Texts are data, however hostile: nothing in them is interpreted.
    """
    found = {name: each.finding for name, each in (outcomes or {}).items() if not isinstance(each, Skipped)}
    named = _named_fields(prediction, profile)
    sources: tuple[tuple[EvidenceRole, Iterator[Item]], ...] = (
        (EvidenceRole.RAW_OUTPUT, _fields(EvidenceRole.RAW_OUTPUT, prediction.raw_output, named)),
        (EvidenceRole.INPUT, _fields(EvidenceRole.INPUT, input or {}, ())),
        (EvidenceRole.FLAG, _flags(found.get(LayerName.HEURISTICS), found.get(LayerName.NARRATIVE_GROUNDING))),
        (EvidenceRole.PROVIDER, _providers(found.get(LayerName.DISAGREEMENT))),
        (EvidenceRole.NEIGHBOR, _neighbors(found.get(LayerName.CONSISTENCY))),
        (EvidenceRole.POLICY, _policies(policies)),
    )
    items: list[Evidence] = []
    incomplete: list[EvidenceRole] = []
    cut: list[str] = []
    for role, source in sources:
        room = limits.per_role.get(role, 0)
        for _, pointer, text in islice(source, room):
            evidence_id = f"E{len(items) + 1}"
            longest = limits.named_text if role is EvidenceRole.RAW_OUTPUT and pointer in named else limits.text
            if len(text) > longest:
                text = text[:longest] + CUT
                cut.append(evidence_id)
            items.append(Evidence.model_construct(id=evidence_id, role=role, pointer=pointer, text=clean_text(text)))
        if next(source, None) is not None:
            incomplete.append(role)
    return EvidenceMap(tuple(items), tuple(incomplete), tuple(cut))


def build_evidence(
    prediction: EvalPrediction,
    *,
    profile: SystemProfile,
    input: JsonObject | None = None,
    outcomes: Mapping[LayerName, Outcome] | None = None,
    policies: Sequence[PolicyChunk] = (),
    limits: EvidenceLimits = DEFAULT_LIMITS,
) -> tuple[Evidence, ...]:
    """The pieces of `build_map`, for callers that need no more."""
    return build_map(
        prediction, profile=profile, input=input, outcomes=outcomes, policies=policies, limits=limits
    ).items


def _named_fields(prediction: EvalPrediction, profile: SystemProfile) -> tuple[str, ...]:
    pointers = (
        profile.label_pointer,
        profile.confidence_pointer,
        profile.narrative_pointer,
        profile.source_pointer,
        profile.references_pointer,
    )
    return tuple(p for p in dict.fromkeys(pointers) if p and resolve(prediction.raw_output, p) is not MISSING)


def _fields(role: EvidenceRole, document: JsonObject, first: Sequence[str]) -> Iterator[Item]:
    seen: set[str] = set()
    for start in (*first, ""):
        for pointer, value in _leaves(start, resolve(document, start)):
            if pointer not in seen:
                seen.add(pointer)
                yield role, pointer, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _leaves(pointer: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Scalars below `value`, level by level; empty containers say nothing and are left out."""
    todo = deque([(pointer, value)])
    while todo:
        pointer, value = todo.popleft()
        if isinstance(value, dict):
            todo.extend((f"{pointer}/{escape(key)}", value[key]) for key in _first_keys(value))
        elif isinstance(value, (list, tuple)):
            todo.extend((f"{pointer}/{index}", child) for index, child in enumerate(value[:_WIDEST]))
        else:
            yield pointer, value


_WIDEST = 256
"""Children of one container that are looked at; more than any limit lets through, and a bound on hostile input."""


def _first_keys(value: JsonObject) -> list[str]:
    return sorted(value) if len(value) <= _WIDEST else heapq.nsmallest(_WIDEST, value)


def _flags(heuristics: object, grounding: object) -> Iterator[Item]:
    if isinstance(heuristics, HeuristicResult):
        for flag in heuristics.flags:
            yield EvidenceRole.FLAG, flag.pointer, f"{flag.rule}: {flag.reason}"
    if isinstance(grounding, NarrativeGroundingResult):
        for index, anchor in enumerate(grounding.anchors):
            pointer = f"/narrative_grounding_result/anchors/{index}"
            yield EvidenceRole.FLAG, pointer, f"{anchor.kind} {anchor.text}: {_ANCHOR_WORDS[anchor.status]}"


_ANCHOR_WORDS = {
    AnchorStatus.BY_REFERENCE: "grounded in the references",
    AnchorStatus.BY_RETRIEVAL: "grounded in the policy corpus",
    AnchorStatus.UNGROUNDED: "not grounded",
    AnchorStatus.UNKNOWN: "not looked up",
}


def _providers(finding: object) -> Iterator[Item]:
    if not isinstance(finding, DisagreementResult):
        return
    for name in sorted(finding.labels_by_provider):
        confidence = finding.confidence_by_provider.get(name)
        said = "" if confidence is None else f", confidence {confidence}"
        pointer = f"/disagreement_result/labels_by_provider/{escape(name)}"
        yield EvidenceRole.PROVIDER, pointer, f"{name}: {finding.labels_by_provider[name]}{said}"
    for name in sorted(finding.errors_by_provider):
        error = finding.errors_by_provider[name]
        pointer = f"/disagreement_result/errors_by_provider/{escape(name)}"
        yield EvidenceRole.PROVIDER, pointer, f"{name}: no answer ({error.kind})"


def _neighbors(finding: object) -> Iterator[Item]:
    if isinstance(finding, ConsistencyResult):
        for index, near in enumerate(finding.neighbors):
            old = ", under an older policy" if near.stale else ""
            text = f"{near.id}: {near.label}, similarity {near.similarity:.4g}{old}"
            yield EvidenceRole.NEIGHBOR, f"/consistency_result/neighbors/{index}", text


def _policies(chunks: Sequence[PolicyChunk]) -> Iterator[Item]:
    for chunk in chunks:
        source = f"{chunk.source}: " if chunk.source else ""
        yield EvidenceRole.POLICY, f"/policies/{escape(chunk.id)}", source + chunk.text


def clean_text(text: str) -> str:
    """A lone surrogate (a remote's text can hold one) can't be stored or sent; it becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
