"""What telemetry gets to see of an evaluation: time stamps while it works, spans can be made afterwards."""

from __future__ import annotations

from typing import Protocol

from layers.model import LayerName, Outcome


class Watch(Protocol):
    """Sees one evaluation. Never raises. Times are nanoseconds since 1970, for spans."""

    def layer(self, name: LayerName, outcome: Outcome, started_ns: int, ended_ns: int) -> None:
        """A layer was run and ended like this; layers that were not run are not reported."""

    def end(self, *, evaluation_id: str | None, disposition: str | None, escalated: bool, degraded: bool) -> None:
        """The evaluation is over.

        Without an id it was given up: cancelled, or refused by the store. An id without a disposition is that of an
        answer that was there already.
        """


class Observer(Protocol):
    """Sees every evaluation that really runs; a replayed answer is none."""

    def begin(self, system: str, prediction_id: str) -> Watch: ...


class _Unwatched:
    def layer(self, name: LayerName, outcome: Outcome, started_ns: int, ended_ns: int) -> None:
        pass

    def end(self, *, evaluation_id: str | None, disposition: str | None, escalated: bool, degraded: bool) -> None:
        pass

    def begin(self, system: str, prediction_id: str) -> Watch:
        return self


UNWATCHED = _Unwatched()
"""An observer that looks away."""
