"""What the judge is asked: the prompt filled with quoted evidence, the schema of the answer, and how it is read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from layers.model import Evidence, JsonObject
from layers.ports import LayerInput
from layers.prompting import Prompt, quoted, quoted_lines
from layers.reply import MAX_CLAIMS, ProposedVerdict, read_verdict
from layers.structured_call import Parameters, Question

MAX_EVIDENCE_CHARS = 20_000
"""Evidence beyond this is shortened, longest pieces first, so that the prompt fits a context of 8,192 tokens."""
CUT = "\u2026[cut]"

_ANY_LABEL = "any one word or short name that fits; this system has no fixed list"


def judge_question(
    prompt: Prompt, item: LayerInput, parameters: Parameters, *, max_pointers: int
) -> Question[ProposedVerdict]:
    """The question about one item. All that stands in its values comes quoted."""
    labels = item.profile.labels
    values = {
        "labels": json.dumps(labels) if labels else _ANY_LABEL,
        "label": quoted(item.prediction.label),
        "evidence": quoted_lines(_shown(item.evidence)),
        "max_pointers": str(max_pointers),
    }
    return Question(
        prompt=prompt,
        values=values,
        schema=verdict_schema(labels, [evidence.id for evidence in item.evidence], max_pointers),
        read=partial(read_verdict, labels=labels, fold=item.profile.fold),
        parameters=parameters,
    )


def verdict_schema(labels: Sequence[str], evidence_ids: Sequence[str], max_pointers: int) -> JsonObject:
    """The JSON schema of a verdict. Reasons come before the verdict: models write in this order."""
    pointer: JsonObject = {"type": "string", "enum": list(evidence_ids)} if evidence_ids else {"type": "string"}
    claim = {
        "text": {"type": "string"},
        "evidence_ids": {"type": "array", "items": pointer, "maxItems": max_pointers},
    }
    verdict: JsonObject = {"type": "string", "enum": list(labels)} if labels else {"type": "string"}
    return _object(
        {
            "reasoning": {"type": "string"},
            "claims": {"type": "array", "items": _object(claim), "maxItems": min(8, MAX_CLAIMS)},
            "verdict": verdict,
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        }
    )


def _object(properties: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _shown(evidence: Sequence[Evidence]) -> list[JsonObject]:
    longest = _limit([len(piece.text) for piece in evidence], MAX_EVIDENCE_CHARS)
    return [
        {
            "id": piece.id,
            "role": piece.role.value,
            "at": piece.pointer,
            "text": piece.text if len(piece.text) <= longest else piece.text[:longest] + CUT,
        }
        for piece in evidence
    ]


def _limit(lengths: Sequence[int], room: int) -> int:
    """The length to which the longest must be cut so that all of them fit into `room`."""
    for left, length in zip(range(len(lengths), 0, -1), sorted(lengths), strict=True):
        if length * left > room:
            return room // left
        room -= length
    return max(lengths, default=0)
