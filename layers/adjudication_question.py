"""What is asked about one pair: the prompt filled with quoted text, the answer's schema, and how it is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from layers.adjudication_rules import MAX_RATIONALE, Directness, Interpretation, Relation
from layers.model import JsonObject
from layers.prompting import Prompt, quoted
from layers.reply import ReplyFailure, read_object
from layers.structured_call import Parameters, Question

SCHEMA_VERSION = "1"
"""Version of the answer's shape; part of the configuration that a reused adjudication must share."""

_NUMBERS, _WORDS = ("relevance", "confidence"), {"relation": Relation, "directness": Directness}
_FIELDS = frozenset({*_NUMBERS, *_WORDS, "rationale"})


@dataclass(frozen=True, slots=True)
class Pair:
    """What is asked about. `context` is untrusted: what the caller was looking for, or said the relation would be."""

    hypothesis: str
    evidence: str
    importance: float = 50
    context: JsonObject = field(default_factory=dict)


def question(prompt: Prompt, pair: Pair, parameters: Parameters) -> Question[Interpretation | str]:
    """The question about one pair. All that others wrote is quoted."""
    values = {
        "hypothesis": quoted(pair.hypothesis),
        "evidence": quoted(pair.evidence),
        "context": quoted(pair.context),
    }
    return Question(prompt, values, answer_schema(), read_answer, parameters)


def answer_schema() -> JsonObject:
    """The JSON schema of an answer."""
    percent = {"type": "number", "minimum": 0, "maximum": 100}
    properties: JsonObject = {
        "rationale": {"type": "string", "maxLength": MAX_RATIONALE},
        **{name: {"type": "string", "enum": list(words)} for name, words in _WORDS.items()},
        **dict.fromkeys(_NUMBERS, percent),
    }
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def read_answer(text: str) -> Interpretation | str:
    """A model's whole reply, or why it is no answer; never raises.

    Exactly the five fields, of the types asked for. A reply with any other field is void as a whole, so that a score
    or a qualification is not even read.
    """
    try:
        value = read_object(text).value
    except ReplyFailure as exc:
        return exc.kind
    if set(value) != _FIELDS:
        return "unknown_field" if set(value) - _FIELDS else "missing_field"
    if not all(_is_number(value[name]) for name in _NUMBERS) or not isinstance(value["rationale"], str):
        return "malformed"
    if not all(isinstance(value[name], str) and value[name] in set(words) for name, words in _WORDS.items()):
        return "malformed"
    if not all(0 <= value[name] <= 100 for name in _NUMBERS) or len(value["rationale"]) > MAX_RATIONALE:
        return "out_of_range"
    return Interpretation.model_validate(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
