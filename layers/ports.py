"""The ports the layers and the service need, each in the words of its user, each saying how it fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from layers.model import EvalExample, EvalPrediction, Evidence, Finding, JsonObject, LayerName, Outcome, SkipReason
from layers.profile import SystemProfile


class Clock(Protocol):
    """Monotonic seconds. Time is an input, so that tests need not wait."""

    def __call__(self) -> float: ...


class SystemUnderTest(Protocol):
    """Ask a system about one example.

    Returns its prediction, whose id is the example's. Raises `DependencyError` when there is none.
    """

    async def predict(self, example: EvalExample) -> EvalPrediction: ...


@dataclass(frozen=True)
class Reading:
    """What a system's own payload says: label, confidence in 0..1, and what else is worth keeping."""

    label: str
    confidence: float
    metadata: JsonObject


class ReadPayload(Protocol):
    """Read a system's own payload. Raises `NotAVerdict`, or `DependencyMalformed` naming the field that is wrong."""

    def __call__(self, raw_output: JsonObject) -> Reading: ...


@dataclass(frozen=True)
class System:
    """One system the service knows: its profile, how its payload is read, and how it is asked.

    `read` None = callers must post label and confidence. `open` builds the system under test for a driver (or None);
    it is None when the system can't be asked (recorded predictions only, or its address is not configured).
    """

    profile: SystemProfile
    read: ReadPayload | None = None
    open: Callable[[str | None], SystemUnderTest] | None = None
    why_closed: str | None = None
    """Why `open` is None, as a sentence for the caller that says what to set."""


@dataclass(frozen=True)
class LayerInput:
    """All that a layer may look at: the prediction, the original input where known, the profile, numbered evidence,
    and what earlier (cheaper) layers found."""

    prediction: EvalPrediction
    profile: SystemProfile
    input: JsonObject | None
    evidence: tuple[Evidence, ...]
    earlier: Mapping[LayerName, Outcome]


class Skip(Exception):
    """Raised by a layer that has nothing to look at; `run_layer` turns it into `Skipped`."""

    def __init__(self, reason: SkipReason) -> None:
        self.reason = reason
        super().__init__(reason.value)


Layer = Callable[[LayerInput], Awaitable[Finding]]
"""A layer is a callable. It raises `Skip`, or `DependencyError` when a remote failed it."""
