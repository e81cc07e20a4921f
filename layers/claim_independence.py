"""Whether a claim rests on anything but what is under review: a prediction is no evidence for itself.

Under review are the label and the confidence that a system gave, and the narrative in which it defends them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from layers.claim_checks import Case, contributes
from layers.model import EvalPrediction, Evidence, EvidenceRole
from layers.profile import SystemProfile

CIRCULAR = "circular"
"""Code of a claim that rests on nothing but what is under review."""
MENTION_ONLY = "mention_only"
"""Code of a claim about the narrative as a text, by the narrative alone: it may be true, and decides nothing."""

_PLAIN_VALUE = re.compile(r"true|false|null|[-+0-9.eE]+")


@dataclass(frozen=True, slots=True)
class UnderReview:
    """Ids of the evidence that is under review: the label, its copies and the confidence; the narrative."""

    verdict: tuple[str, ...] = ()
    narrative: tuple[str, ...] = ()


def under_review(prediction: EvalPrediction, profile: SystemProfile, evidence: Sequence[Evidence]) -> UnderReview:
    """What of the map is the very thing that is judged. A field that only repeats label or narrative is a copy."""
    own = [piece for piece in evidence if piece.role is EvidenceRole.RAW_OUTPUT]
    narrative = [piece for piece in own if _is_at(piece, profile.narrative_pointer)]
    told = {piece.text for piece in narrative}
    narrated = tuple(piece.id for piece in own if piece in narrative or piece.text in told)
    label = profile.fold(prediction.label)
    is_word = _PLAIN_VALUE.fullmatch(label.casefold()) is None  # `true` in another field is no copy of the label
    verdict = tuple(
        piece.id
        for piece in own
        if _is_at(piece, profile.label_pointer)
        or _is_at(piece, profile.confidence_pointer)
        or (is_word and profile.fold(piece.text) == label)
    )
    return UnderReview(verdict, narrated)


def _is_at(piece: Evidence, pointer: str | None) -> bool:
    return pointer is not None and (piece.pointer == pointer or piece.pointer.startswith(f"{pointer}/"))


def independent(case: Case) -> Iterator[str]:
    """A claim needs a piece that is not under review, and that contributes to it.

    What is said of the narrative as a text can be shown by the narrative; that is no reason for a label.
    """
    if case.reviewed.isdisjoint(piece.evidence.id for piece in case.pointed):
        return
    used = [piece for piece in case.pointed if contributes(case, piece)] or list(case.pointed)
    if any(piece.evidence.id not in case.reviewed for piece in used):
        return
    about_the_text = case.claim.speaks_of("mention") and all(piece.evidence.id in case.narrative for piece in used)
    yield MENTION_ONLY if about_the_text else CIRCULAR
