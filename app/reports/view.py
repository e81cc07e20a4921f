"""What a written report shows: the figures, and the cases behind them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from app.runs.contrasts import Comparison
from app.runs.model import EvalReport, Record, Run
from layers.model import JsonObject

MAX_JSON = 6_000
"""Characters of an input or a raw output that are shown; the whole is in the run's records."""


@dataclass(frozen=True, slots=True)
class Json:
    """A value as indented text; `omitted` characters are left out at its end."""

    text: str
    omitted: int = 0

    @classmethod
    def of(cls, value: Any) -> Json:
        text = json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)
        return cls(text[:MAX_JSON], max(0, len(text) - MAX_JSON))


@dataclass(frozen=True, slots=True)
class Case:
    """One example and what came of it."""

    record: Record
    input: Json
    raw_output: Json | None

    @classmethod
    def of(cls, record: Record, example: JsonObject) -> Case:
        prediction = record.prediction
        return cls(record, Json.of(example.get("input", {})), Json.of(prediction.raw_output) if prediction else None)


@dataclass(frozen=True, slots=True)
class FailureCause:
    """A kind of failure, how often it happened, and a few of the examples."""

    kind: str
    count: int
    cases: tuple[Case, ...]


class ComparedReport(EvalReport):
    """The figures of a run; with a baseline also how they compare with its."""

    comparison: Comparison | None = None


@dataclass(frozen=True, slots=True)
class ReportView:
    """Everything on the page. `worst` are the gravest of `n_wrong` wrong predictions.

    `certain`: the system's confidence says how sure it is. `chosen`: the slices were picked by us, nobody asked.
    """

    run: Run
    report: EvalReport
    worst: tuple[Case, ...]
    n_wrong: int
    failures: tuple[FailureCause, ...]
    comparison: Comparison | None
    certain: bool
    chosen: bool
    made_at: str
    made_by: str

    @property
    def title(self) -> str:
        name = self.run.name or self.run.run_id[:8]
        return f"{self.run.system}: {name}"
