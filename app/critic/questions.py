"""What triage, classifier and critic are asked, and how their replies are read: strictly, and never raising."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.critic.config import CONFIDENCE
from app.critic.model import Axis, Classification, Note, SignalSpec, salvage
from layers.canonical import sha256_of
from layers.critic import MAX_GAP, Review, Signal
from layers.model import JsonObject
from layers.prompting import Prompt, quoted, quoted_lines
from layers.reply import ReplyFailure, read_object
from layers.rubric import Rubric
from layers.structured_call import Parameters, Question

_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")
_REVIEW_FIELDS = ("gap", "axis", "rule", "decision")


# --- triage -----------------------------------------------------------------------------------------------------------


def triage_question(
    prompt: Prompt, signals: Mapping[str, SignalSpec], case: JsonObject, parameters: Parameters
) -> Question[dict[str, Signal] | str]:
    """Which signals are there? The answer is what was noted, or why the reply is none."""
    listed = ({"signal": name, **spec.model_dump(exclude_defaults=True)} for name, spec in signals.items())
    schema = _object({"signals": _object({name: _signal_schema(spec) for name, spec in signals.items()})})
    values = {"signals": quoted_lines(listed), "case": quoted(case)}
    return Question(prompt, values, schema, partial(read_signals, signals=signals), parameters)


def _signal_schema(spec: SignalSpec) -> JsonObject:
    if spec.kind == "choice":
        return {"enum": [*spec.values, None]}
    return {"type": [spec.kind, "null"]}


def read_signals(text: str, signals: Mapping[str, SignalSpec]) -> dict[str, Signal] | str:
    """What triage noted, or the reason why the reply is void as a whole. Null is "not noted"."""
    value = _object_in(text)
    if isinstance(value, str):
        return value
    noted = value.get("signals")
    if set(value) != {"signals"} or not isinstance(noted, dict):
        return "malformed"
    if set(noted) - set(signals):
        return "unknown_field"
    given = {name: one for name, one in noted.items() if one is not None}
    return given if all(_fits(one, signals[name]) for name, one in given.items()) else "malformed"


def _fits(value: Any, spec: SignalSpec) -> bool:
    if spec.kind == "boolean":
        return isinstance(value, bool)
    if spec.kind == "choice":
        return isinstance(value, str) and value in spec.values
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# --- classification ---------------------------------------------------------------------------------------------------


def classify_question(
    prompt: Prompt, axes: Mapping[str, Axis], case: JsonObject, parameters: Parameters, *, extra: Sequence[str] = ()
) -> Question[Classification]:
    """The classifier's own prompt about one row's input, and nothing beside it."""
    return Question(
        prompt, {"input": quoted(case)}, _labels_schema(axes, extra), partial(read_labels, axes=axes), parameters
    )


def reclassify_question(first: Question[Classification], behind: Prompt, note: Note) -> Question[Classification]:
    """The same question with a note behind it: the classifier's own text stays what it was, to the byte."""
    text = first.prompt.text + behind.text
    prompt = Prompt(
        f"{first.prompt.name}+{behind.name}",
        f"{first.prompt.version}+{behind.version}",
        text,
        sha256_of(text.encode()),
    )
    told = {
        "axis": quoted(note.axis),
        "rule": quoted({"rule": note.rule, "text": note.rule_text}),
        "gap": quoted(note.gap),
        "labels": quoted(note.labels),
    }
    return Question(prompt, {**first.values, **told}, first.schema, first.read, first.parameters)


def _labels_schema(axes: Mapping[str, Axis], extra: Sequence[str]) -> JsonObject:
    return _object(
        {
            **{name: {"type": "string"} for name in extra},
            **{name: {"type": "string", "enum": list(axis.labels)} for name, axis in axes.items()},
            CONFIDENCE: {"type": "number", "minimum": 0, "maximum": 1},
        }
    )


def read_labels(text: str, axes: Mapping[str, Axis]) -> Classification:
    """An offered label on each axis; the sentinel on those where there is none, on all of them where nothing is read.

    Fields beside the axes are the classifier's own business.
    """
    value = _object_in(text)
    if isinstance(value, str):
        return salvage(dict(axes), value)
    read = {name: _offered(value.get(name), axis) for name, axis in axes.items()}
    lost = tuple(name for name, label in read.items() if label is None)
    return Classification(
        labels={name: axes[name].sentinel if label is None else label for name, label in read.items()},
        salvaged=lost,
        reason="not_a_label" if lost else None,
        confidence=_share(value.get(CONFIDENCE)),
    )


def _offered(value: Any, axis: Axis) -> str | None:
    if not isinstance(value, str):
        return None
    by_fold = {label.casefold(): label for label in axis.labels}
    return by_fold.get(_INVISIBLE.sub("", value).strip().casefold())


def _share(value: Any) -> float | None:
    fine = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return float(value) if fine else None


# --- review -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subject:
    """What is reviewed: the labels of a case, what was noted about it, and the challenge that led to a bounce."""

    case: JsonObject
    labels: Mapping[str, str]
    signals: Mapping[str, Signal]
    earlier: Review | None = None


def review_question(
    prompt: Prompt,
    rubric: Rubric,
    axes: Sequence[str],
    subject: Subject,
    parameters: Parameters,
    scrub: Callable[[str], str] = lambda text: text,
) -> Question[Review]:
    """Do these labels stand, by the classifier's own rubric? `axes` are those open to challenge."""
    earlier = subject.earlier
    told = None if earlier is None else {name: getattr(earlier, name) for name in ("axis", "rule", "gap")}
    values = {
        "axes": json.dumps(list(axes)),
        "rubric": quoted_lines(
            {"rule": part.id, "text": part.text} if part.id else {"text": part.text} for part in rubric.parts
        ),
        "case": quoted(subject.case),
        "signals": quoted(dict(subject.signals)),
        "earlier": quoted(told),
        "labels": quoted(dict(subject.labels)),
    }
    schema = _object(
        {
            "gap": {"type": "string", "maxLength": MAX_GAP},
            "axis": {"type": "string", "enum": [*axes, ""]},
            "rule": {"type": "string", "enum": [*(rule.id for rule in rubric.rules), ""]},
            "decision": {"type": "string", "enum": ["accept", "challenge"]},
        }
    )
    return Question(prompt, values, schema, partial(read_review, scrub=scrub), parameters)


def read_review(text: str, scrub: Callable[[str], str] = lambda text: text) -> Review:
    """What the critic said; a reply with any other field, or one that accepts and challenges at once, is void."""
    value = _object_in(text)
    if isinstance(value, str):
        return _void(value)
    if set(value) - set(_REVIEW_FIELDS):
        return _void("unknown_field")
    if value.get("decision") not in {"accept", "challenge"}:
        return _void("malformed")
    parts = {name: _text(value.get(name)) for name in ("axis", "rule", "gap")}
    if any(part is None for part in parts.values()):
        return _void("malformed")
    said = {name: scrub(part) for name, part in parts.items() if part}
    if value["decision"] == "accept":
        return _void("contradictory") if said else Review(decision="accept")
    return Review(decision="challenge", **said)


def _void(reason: str) -> Review:
    return Review(decision="void", void=reason)


def _text(value: Any) -> str | None:
    """The text without what nobody can see, empty for null; None for what is no text or far too long."""
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > 4 * MAX_GAP:
        return None
    return _INVISIBLE.sub("", value).strip()


# --- shared -----------------------------------------------------------------------------------------------------------


def _object_in(text: str) -> JsonObject | str:
    try:
        return read_object(text).value
    except ReplyFailure as exc:
        return exc.kind


def _object(properties: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
