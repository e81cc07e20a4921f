"""Policies: what a run must hold, written in TOML."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, ValidationError, model_validator

from app.errors import FieldError, Unprocessable
from app.runs.figures import Scalar
from layers.model import UnitInterval, Value

EACH = "*"
"""A label that stands for every label there is."""

Metric: TypeAlias = Literal[
    "accuracy",
    "precision",
    "recall",
    "f1",
    "balanced_accuracy",
    "matthews",
    "kappa",
    "macro.precision",
    "macro.recall",
    "macro.f1",
    "weighted.precision",
    "weighted.recall",
    "weighted.f1",
]
OF_LABEL: frozenset[Metric] = frozenset({"precision", "recall", "f1"})
"""Metrics of one label."""

Threshold: TypeAlias = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]
RuleName: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
Pointer: TypeAlias = Annotated[str, Field(max_length=512, pattern=r"^/(input|metadata)(/([^/~]|~[01])*)+$")]
LabelName: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
Reading: TypeAlias = Literal["strict", "binary"]
Proof: TypeAlias = Literal["interval", "point"]
Severity: TypeAlias = Literal["block", "warn"]
MAX_RULES = 200
CLOSE = 0.75
"""How alike (Ratcliff and Obershelp's measure, 0..1) a key must be to be taken for a slip of the pen."""


class PolicyError(Unprocessable):
    """The policy can't be used; each error's pointer is the path of a key."""


class SliceChoice(Value):
    """A part of the run: examples with `value` at `path`; without a value every part there is."""

    path: Pointer
    value: Scalar = None
    each: bool = False

    @model_validator(mode="before")
    @classmethod
    def _no_value_is_each(cls, data: Any) -> Any:
        if isinstance(data, dict) and "each" in data:
            raise ValueError("each: unknown key; leave `value` out for each value")
        return {**data, "each": True} if isinstance(data, dict) and "value" not in data else data


class Rule(Value):
    """What every rule can say. `proof = "interval"` asks for certainty, `"point"` takes the best estimate.

    `severity = "warn"`: the rule never does worse than WARN. `min_n` overrides the policy's.
    """

    name: RuleName | None = None
    label: LabelName | None = None
    slice: SliceChoice | None = None
    labels: Reading | None = None
    proof: Proof | None = None
    severity: Severity = "block"
    min_n: int | None = Field(default=None, ge=1)


class Floor(Rule):
    """A figure must not lie below `min`."""

    metric: Metric
    min: Threshold

    @model_validator(mode="after")
    def _label_fits(self) -> Floor:
        if (self.metric in OF_LABEL) != (self.label is not None):
            raise ValueError(
                f'{self.metric} is a figure of one label: say which, or "*" for each'
                if self.metric in OF_LABEL
                else f"label: {self.metric} is a figure of the whole"
            )
        return self


class Regression(Rule):
    """Against the baseline, accuracy may fall by no more than `tolerated`.

    Of examples with one expected `label` that is recall; `slice` and `axis` take a part of the examples, or one axis of
    `expected_labels`.
    """

    tolerated: UnitInterval = 0.0
    axis: LabelName | None = None

    @model_validator(mode="after")
    def _one_part(self) -> Regression:
        if sum(part is not None for part in (self.label, self.slice, self.axis)) > 1:
            raise ValueError("a regression takes one of label, slice and axis")
        if self.labels == "binary" and self.of_part:
            raise ValueError("labels: only the whole is compared in binary labels")
        return self

    @property
    def of_part(self) -> bool:
        """Whether it holds a part of the examples and not the whole."""
        return any(part is not None for part in (self.label, self.slice, self.axis))


class Policy(Value):
    """A gate. `alpha`: the error rate of each decision; `max_missing`: examples that may have no record, or no partner
    in the baseline; `min_judge_coverage`: share of examples that a judge must have looked at.
    """

    name: RuleName | None = None
    alpha: float = Field(default=0.05, ge=0.0001, le=0.5, allow_inf_nan=False)
    min_n: int = Field(default=1, ge=1)
    max_failed_share: UnitInterval = 0.0
    max_missing: int = Field(default=0, ge=0)
    min_judge_coverage: UnitInterval | None = None
    baseline: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")] | None = None
    labels: Reading = "strict"
    proof: Proof = "interval"
    floors: tuple[Floor, ...] = Field(default=(), max_length=MAX_RULES)
    regressions: tuple[Regression, ...] = Field(default=(), max_length=MAX_RULES)

    @model_validator(mode="after")
    def _asks_something(self) -> Policy:
        if not (self.floors or self.regressions or self.min_judge_coverage is not None):
            raise ValueError("a policy needs at least one of [[floors]], [[regressions]] and min_judge_coverage")
        if self.labels == "binary" and any(rule.of_part and rule.labels is None for rule in self.regressions):
            raise ValueError(
                'labels = "binary" is for the whole: a regression of one label, slice or axis needs labels = "strict"'
            )
        names = [rule.name for rule in (*self.floors, *self.regressions) if rule.name is not None]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two rules are called {twice[0]!r}")
        return self

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that some rule cuts along."""
        cut = [rule.slice.path for rule in (*self.floors, *self.regressions) if rule.slice is not None]
        return tuple(dict.fromkeys(cut))


def parse_policy(text: str) -> Policy:
    """Read a policy. Raises `PolicyError` that names the line, and the key where there is one."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as exc:
        message = "nested too deep" if isinstance(exc, RecursionError) else str(exc)[:300]
        raise PolicyError(f"the policy is not valid TOML: {message}", [FieldError("/policy", message)]) from None
    try:
        # In JSON mode types are taken as they are and arrays as tuples.
        return Policy.model_validate_json(_as_json(document), strict=True)
    except TypeError:
        raise PolicyError("the policy makes no sense: dates and times have no place in it") from None
    except ValidationError as exc:
        found = exc.errors(include_url=False, include_context=False, include_input=False)[:20]
        errors = [_explain(error["loc"], error["msg"], error["type"], text) for error in found]
        raise PolicyError(f"the policy makes no sense: {errors[0].message}", errors) from None


def _explain(location: tuple[int | str, ...], message: str, kind: str, text: str) -> FieldError:
    message = message.removeprefix("Value error, ")
    if kind == "extra_forbidden":
        model = Floor if location[0] == "floors" else Regression if location[0] == "regressions" else Policy
        close = difflib.get_close_matches(str(location[-1]), model.model_fields, n=1, cutoff=CLOSE)
        message = "unknown key" + (f"; did you mean {close[0]}?" if close else "")
    if kind in {"tuple_type", "list_type"}:
        message = f"must be an array of tables: [[{location[-1]}]]"
    key = ".".join(str(part) for part in location)
    line = _line_of(location, text)
    where = ", ".join(filter(None, [f"line {line}" if line else "", key[:200]]))
    return FieldError("".join(f"/{part}" for part in location)[:512], f"{where}: {message}" if where else message)


def _line_of(location: tuple[int | str, ...], text: str) -> int | None:
    """The line of a key, or of the table that lacks it; None when the text is written some other way."""
    lines = text.splitlines()
    if not location:
        return None
    start, key, header = 0, location[0], False
    if len(location) > 1 and isinstance(location[1], int):
        heads = [n for n, line in enumerate(lines) if re.match(rf"\s*\[\[\s*{re.escape(str(key))}\s*\]\]", line)]
        if location[1] >= len(heads):
            return None
        start, header = heads[location[1]], True
        if len(location) == 2:
            return start + 1
        key = location[2]
    for number, line in enumerate(lines[start:], start + 1):
        if number > start + header and line.lstrip().startswith("["):
            break
        if re.match(rf"\s*[\"']?{re.escape(str(key))}[\"']?\s*[.=]", line):
            return number
    return start + 1 if header else None


def _as_json(document: dict[str, Any]) -> str:
    try:
        return json.dumps(document)
    except RecursionError:  # dotted keys nest tables without a bracket
        raise PolicyError("the policy is nested too deep") from None
