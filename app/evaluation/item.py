"""A request made ready: label and confidence read, checked against its system's profile, hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from app.errors import FieldError, Unprocessable
from app.evaluation.model import EvaluateRequest
from layers.canonical import canonical_bytes
from layers.errors import DependencyError
from layers.model import EvalPrediction, JsonObject
from layers.ports import System
from layers.profile import SystemProfile


@dataclass(frozen=True, slots=True)
class Item:
    """What is evaluated. `content` is the canonical request, `digest` its SHA-256: equal digests, equal answers."""

    prediction: EvalPrediction
    profile: SystemProfile
    system: str
    input: JsonObject | None
    content: bytes
    digest: bytes


def read_item(request: EvaluateRequest, systems: Mapping[str, System]) -> Item:
    """Make a request ready. Raises `Unprocessable` naming the field that is wrong."""
    system = systems.get(request.system)
    if system is None:
        known = ", ".join(sorted(systems))
        raise _wrong("/system", f"unknown system {request.system[:100]!r}; known are: {known}")
    if "\0" in request.id:
        raise _wrong("/id", "an id can't hold the character NUL")
    prediction = _predict(request, system)
    if prediction.label in system.profile.not_verdicts:
        raise _wrong("/label", f"{prediction.label!r} says that nothing was judged; there is nothing to evaluate")
    content = _content(prediction, request)
    return Item(prediction, system.profile, request.system, request.input, content, hashlib.sha256(content).digest())


def _predict(request: EvaluateRequest, system: System) -> EvalPrediction:
    label, confidence, metadata = request.label, request.confidence, request.metadata
    if label is None or confidence is None:
        read = _reading(request, system)
        label = read[0] if label is None else label
        confidence = read[1] if confidence is None else confidence
        metadata = {**read[2], **metadata}
    return EvalPrediction(
        id=request.id, raw_output=request.raw_output, label=label, confidence=confidence, metadata=metadata
    )


def _reading(request: EvaluateRequest, system: System) -> tuple[str, float, JsonObject]:
    if system.read is None:
        missing = "label" if request.label is None else "confidence"
        raise _wrong(f"/{missing}", f"{missing} is required: the service can't read {request.system}'s payload")
    try:
        reading = system.read(request.raw_output)
        checked = EvalPrediction(id="x", raw_output={}, label=reading.label, confidence=reading.confidence)
    except DependencyError as exc:
        raise _wrong("/raw_output", f"no label can be read from it: {exc.message}") from exc
    except ValidationError as exc:
        fields = ", ".join(str(error["loc"][0]) for error in exc.errors(include_input=False, include_url=False))
        raise _wrong("/raw_output", f"what was read from it is not valid: {fields}") from None
    return checked.label, checked.confidence, reading.metadata


def _content(prediction: EvalPrediction, request: EvaluateRequest) -> bytes:
    value = {
        "confidence": prediction.confidence,
        "id": prediction.id,
        "input": request.input,
        "label": prediction.label,
        "metadata": prediction.metadata,
        "raw_output": prediction.raw_output,
        "system": request.system,
    }
    try:
        return canonical_bytes(value)
    except ValueError as exc:
        raise _wrong("", f"it can't be written as JSON: {exc}") from exc


def _wrong(pointer: str, message: str) -> Unprocessable:
    return Unprocessable(message, [FieldError(pointer, message)])
