"""Read a model's reply strictly: one JSON object with the fields asked for, or a named failure - never a low score."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NoReturn

from layers.model import JsonObject
from layers.strict_json import StrictJsonError, loads

MAX_CHARS = 200_000
MAX_CLAIMS = 50
MAX_TEXT = 4_000
MAX_LABEL = 256

_WORDS = (
    "accept accepted agree agreed approve approved confirm confirmed correct deny denied disagree disagreed fail "
    "failed false good incorrect invalid no none null ok okay overturn overturned pass passed reject rejected right "
    "true uphold upheld valid verified wrong yes"
)
CORRECTNESS_WORDS = frozenset(_WORDS.split())
"""Words that judge a verdict instead of giving one. They are labels only where a system offers them as such."""

_FIELDS = frozenset({"verdict", "confidence", "claims", "reasoning"})
_REQUIRED = ("verdict", "confidence", "claims")
_CLAIM_FIELDS = frozenset({"text", "evidence_ids"})

_BLANK = " \t\r\n"
_THINK, _THINK_END = "<think>", "</think>"
_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\r?\n(.*)\n[ \t]*```", re.DOTALL)
_SIGNS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{},:]|[^\s"\[\]{},:]+', re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,20})(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")
_INVISIBLE = re.compile("[\xad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f]")


class ReplyFailure(Exception):
    """The reply is no answer. `kind` is `malformed`, `truncated`, `not_a_label`, `out_of_range` or `empty_output`."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class ReplyObject:
    """The one object that a reply is. `repaired` = a fence, a think block or a trailing comma was removed."""

    value: JsonObject
    repaired: bool


@dataclass(frozen=True, slots=True)
class ProposedClaim:
    """What a model says and points to; nothing of it was checked."""

    text: str
    evidence_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProposedVerdict:
    """What a model proposes: an offered label, in the profile's own spelling, and confidence in 0..1."""

    label: str
    confidence: float
    claims: tuple[ProposedClaim, ...]
    reasoning: str | None
    repaired: bool


def read_object(text: str) -> ReplyObject:
    """The single JSON object that the whole reply must be. Raises `ReplyFailure`, and nothing else."""
    body = text.strip(_BLANK)
    if len(body) > MAX_CHARS:
        raise ReplyFailure("malformed", f"the reply is longer than {MAX_CHARS} characters")
    bare = _without_fence(_without_thought(body))
    if not bare:
        raise ReplyFailure("empty_output", "the reply is empty")
    repaired = bare != body
    try:
        value = loads(bare)
    except StrictJsonError as exc:
        value, repaired = _without_trailing_commas(bare, exc), True
    if not isinstance(value, dict):
        raise ReplyFailure("malformed", f"the reply is {_kind(value)}, not one object")
    return ReplyObject(value, repaired)


def read_verdict(
    text: str, labels: Collection[str], fold: Callable[[str], str] = lambda label: label
) -> ProposedVerdict:
    """A judge's whole reply. `labels` are those offered, none = any label but a word that judges correctness.

    Labels compare as `fold` makes them. Numbers are never clamped. Raises `ReplyFailure`, and nothing else.
    """
    reply = read_object(text)
    _check_fields(reply.value, "the reply", _REQUIRED, _FIELDS)
    reasoning = reply.value.get("reasoning")
    return ProposedVerdict(
        label=_read_label(reply.value["verdict"], labels, fold),
        confidence=_read_share(reply.value["confidence"], "confidence"),
        claims=_read_claims(reply.value["claims"]),
        reasoning=None if reasoning is None else _read_text(reasoning, "reasoning"),
        repaired=reply.repaired,
    )


def _without_thought(text: str) -> str:
    if not text.startswith(_THINK):
        return text
    _, end, rest = text.partition(_THINK_END)
    if not end:
        raise ReplyFailure("truncated", "the reply ends inside its <think> block")
    return rest.strip(_BLANK)


def _without_fence(text: str) -> str:
    match = _FENCE.fullmatch(text)
    return match.group(1).strip(_BLANK) if match else text


def _without_trailing_commas(text: str, first: StrictJsonError) -> Any:
    """Decode once more without commas before a closing bracket; if there were none, fail for the `first` reason."""
    signs = [(match.group()[0], match.start()) for match in _SIGNS.finditer(text)]
    depth = sum((sign in "[{") - (sign in "]}") for sign, _ in signs)
    cut = [
        at
        for (before, _), (sign, at), (after, _) in zip(signs, signs[1:], signs[2:], strict=False)
        if sign == "," and after in "]}" and before not in "[{,:"
    ]
    if not cut:
        _fail(first, depth, text)
    pieces = [text[start:end] for start, end in zip([0, *(at + 1 for at in cut)], [*cut, len(text)], strict=True)]
    try:
        return loads("".join(pieces))
    except StrictJsonError as exc:
        _fail(exc, depth, text)


def _fail(exc: StrictJsonError, depth: int, text: str) -> NoReturn:
    if depth > 0 and text.startswith("{"):
        raise ReplyFailure("truncated", "the reply ends before its object does") from exc
    raise ReplyFailure("malformed", f"the reply is not one JSON object: {exc}") from exc


def _kind(value: Any) -> str:
    return "an array" if isinstance(value, list) else "a bare value"


def _check_fields(value: JsonObject, what: str, required: Collection[str], known: Collection[str]) -> None:
    missing = [name for name in required if name not in value]
    if missing:
        raise ReplyFailure("malformed", f"{what} lacks {', '.join(missing)}")
    if unknown := sorted(set(value) - set(known)):
        raise ReplyFailure("malformed", f"{what} has fields that were not asked for: {_shown(unknown)}")


def _read_label(value: Any, labels: Collection[str], fold: Callable[[str], str]) -> str:
    if not isinstance(value, str):
        raise ReplyFailure("malformed", "verdict is not text")
    label = _INVISIBLE.sub("", value)
    if labels:
        by_fold = {fold(offered): offered for offered in labels}
        if (found := by_fold.get(fold(label))) is not None:
            return found
        raise ReplyFailure("not_a_label", f"the verdict {_shown(label)} is not among the labels offered")
    if not label.strip() or len(label) > MAX_LABEL:
        raise ReplyFailure("not_a_label", "the verdict is empty or far too long for a label")
    if label.strip(" .!\"'").casefold() in CORRECTNESS_WORDS:
        raise ReplyFailure(
            "not_a_label", f"the verdict {_shown(label)} says whether something is correct, not what it is"
        )
    return label


def _read_share(value: Any, name: str) -> float:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ReplyFailure("malformed", f"{name} is not a number")
    if not 0 <= value <= 1 or not math.isfinite(value):
        raise ReplyFailure("out_of_range", f"{name} {_shown(value)} is not within 0 and 1")
    return float(value)


def _read_claims(value: Any) -> tuple[ProposedClaim, ...]:
    if not isinstance(value, list) or len(value) > MAX_CLAIMS:
        raise ReplyFailure("malformed", f"claims is not a list of at most {MAX_CLAIMS}")
    return tuple(_read_claim(item) for item in value)


def _read_claim(value: Any) -> ProposedClaim:
    if not isinstance(value, dict):
        raise ReplyFailure("malformed", "a claim is not an object")
    _check_fields(value, "a claim", ("text", "evidence_ids"), _CLAIM_FIELDS)
    ids = value["evidence_ids"]
    if not isinstance(ids, list) or not all(isinstance(item, str) and len(item) <= 64 for item in ids):
        raise ReplyFailure("malformed", "evidence_ids is not a list of ids")
    return ProposedClaim(_read_text(value["text"], "a claim's text"), tuple(ids))


def _read_text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ReplyFailure("malformed", f"{name} is not text")
    if len(value) > MAX_TEXT:
        raise ReplyFailure("malformed", f"{name} is longer than {MAX_TEXT} characters")
    return value


def _shown(value: Any) -> str:
    return json.dumps(value)[:120]
