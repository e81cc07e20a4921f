"""What telemetry gets to see of an evaluation: time stamps while it works, spans can be made afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from app.evaluation.item import Item
from app.evaluation.plan import Plan
from app.evaluation.verdict import Verdict
from layers.model import LayerName, Outcome


@dataclass(slots=True)
class Ending:
    """How an evaluation ended.

    Without `evaluation_id` it was given up: cancelled, or refused by the store. An id without a verdict is that of an
    answer that was there already. `plan` is None when it did not come so far; `outcomes` are those there were by then.
    """

    evaluation_id: str | None = None
    plan: Plan | None = None
    verdict: Verdict | None = None
    outcomes: Mapping[LayerName, Outcome] = field(default_factory=dict)


class Watch(Protocol):
    """Sees one evaluation. Never raises. Times are nanoseconds since 1970, for spans."""

    def layer(self, name: LayerName, outcome: Outcome, started_ns: int, ended_ns: int) -> None:
        """A layer was run and ended like this; layers that were not run are not reported."""

    def end(self, ending: Ending) -> None:
        """The evaluation is over."""


class Observer(Protocol):
    """Sees every evaluation that really runs; a replayed answer is none."""

    def begin(self, item: Item) -> Watch: ...

    def job(self, work_id: str, caller: str | None = None) -> AbstractContextManager[object]:
        """What is done in the block is the accepted work `work_id`, which `caller` asked for."""
        ...

    def caller(self) -> str | None:
        """The span of whoever asks for what is done now, as a `traceparent`; None = nobody said."""
        ...


class _Unwatched:
    def layer(self, name: LayerName, outcome: Outcome, started_ns: int, ended_ns: int) -> None:
        pass

    def end(self, ending: Ending) -> None:
        pass

    def begin(self, item: Item) -> Watch:
        return self

    def job(self, work_id: str, caller: str | None = None) -> AbstractContextManager[object]:
        return nullcontext()

    def caller(self) -> str | None:
        return None


UNWATCHED = _Unwatched()
"""An observer that looks away."""
