"""The words of gates: what is asked, what each rule says, and where baselines point."""

from __future__ import annotations

import json
from enum import StrEnum

from pydantic import Field

from app.runs.contrasts import Comparison
from app.runs.figures import Interval, Scalar
from layers.model import JsonObject, Value

MAX_POLICY = 64_000
"""Characters of a policy."""


class Status(StrEnum):
    """What a rule, and the gate, can say; worst last. `MISSING`: what the rule asks about is not there."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    WARN = "WARN"
    INCONCLUSIVE = "INCONCLUSIVE"
    MISSING = "MISSING"
    BLOCK = "BLOCK"


ORDER: tuple[Status, ...] = tuple(Status)
"""From good to bad."""


def worst(statuses: list[Status]) -> Status:
    """The worst of them. Nothing checked is a block: an empty gate lets nobody through."""
    return max(statuses, key=ORDER.index, default=Status.BLOCK)


class SliceName(Value):
    """One part of a run: the examples that have `value` at `path`."""

    path: str
    value: Scalar


def slice_value(value: Scalar) -> str:
    """A slice's value as rules are called by it: text as it is, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


class RuleResult(Value):
    """What one rule found. `observed` is the worst case: what was not scored counts against the run.

    `interval` has the level 1 - alpha of the policy; `n` is how many examples `observed` is over, each once however
    often it was asked; `n_needed` how many would settle an inconclusive rule if nothing else changed, left out where
    no number would. Fields that don't apply are left out.
    """

    name: str
    metric: str
    label: str | None = None
    slice: SliceName | None = None
    status: Status
    observed: float | None = None
    interval: Interval | None = None
    threshold: float | None = None
    n: int
    n_needed: int | None = None
    reason: str


class GateVerdict(Value):
    """One verdict on a run, by the worst of its rules."""

    run_id: str
    baseline_run_id: str | None
    verdict: Status
    rules: tuple[RuleResult, ...]
    comparison: Comparison | None
    policy_sha256: str
    decided_at: str


class GateRequest(Value):
    """Which policy to hold a run to, as TOML text, and against which baseline: a run's id, or a baseline's name.

    Left out, `baseline` is the one that the policy names.
    """

    policy: str = Field(min_length=1, max_length=MAX_POLICY)
    baseline: str | None = Field(default=None, min_length=1, max_length=128)


class BaselineRequest(Value):
    """Where a baseline shall point."""

    run_id: str = Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class BaselineMove(Value):
    """Where a baseline pointed from `set_at` on."""

    run_id: str
    set_at: str


class Baseline(BaselineMove):
    """A named run that others are held against. `history` holds its latest moves, newest first, this one included."""

    name: str
    n_moves: int
    history: tuple[BaselineMove, ...] = ()


def decision_json(verdict: GateVerdict) -> JsonObject:
    """The verdict as it is answered and stored: what doesn't apply to a rule is not in it."""
    body = verdict.model_dump(mode="json")
    for rule in body["rules"]:
        for name in ("label", "slice", "n_needed"):
            if rule[name] is None:
                del rule[name]
    return body
