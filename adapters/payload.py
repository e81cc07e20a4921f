"""Reading fields of a system's payload: a wrong one is named by its pointer, never guessed at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from layers.errors import DependencyMalformed, DependencyRejected
from layers.model import EvalExample, JsonObject


def share(payload: Mapping[str, Any], key: str, dependency: str, *, above: str = "") -> float:
    """A finite number in 0..1. Raises `DependencyMalformed` naming the field."""
    value = payload.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise malformed(dependency, f"{above}/{key}", "must be a number from 0 to 1")
    return float(value)


def finite(payload: Mapping[str, Any], key: str, dependency: str, *, above: str = "") -> float:
    """A finite number. Raises `DependencyMalformed` naming the field."""
    value = payload.get(key)
    if not is_finite(value):
        raise malformed(dependency, f"{above}/{key}", "must be a finite number")
    return float(value)  # type: ignore[arg-type]


def is_finite(value: Any) -> bool:
    """Whether a JSON value is a number that a double can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def text(payload: Mapping[str, Any], key: str, dependency: str, *, above: str = "") -> str:
    """A string that is not empty. Raises `DependencyMalformed` naming the field."""
    value = payload.get(key)
    if not isinstance(value, str) or not value:
        raise malformed(dependency, f"{above}/{key}", "must be a string that is not empty")
    return value


def malformed(dependency: str, pointer: str, problem: str) -> DependencyMalformed:
    """The error for one field of a payload."""
    return DependencyMalformed(dependency, "malformed", f"{pointer} {problem}", detail={"pointer": pointer})


def invalid_input(dependency: str, needs: str, problems: Iterable[str]) -> DependencyRejected:
    """The error for an example whose input is not one for this system; nothing was sent."""
    listed = list(problems)
    return DependencyRejected(
        dependency,
        "invalid_input",
        f"the input is not one for {dependency}: {'; '.join(listed)} ({needs})",
        detail={"problems": listed},
    )


def example_id(example: EvalExample) -> str:
    """The id of the example; datasets number those that have none, so this default is for direct callers."""
    return example.id if example.id is not None else "0"


def kept(payload: JsonObject, *keys: str) -> JsonObject:
    """Those fields of a payload that are there and not null."""
    return {key: payload[key] for key in keys if payload.get(key) is not None}
