"""Ask a system about one example and turn whatever happens into a record."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from app.runs.gate import Gate, Stopped
from app.runs.limits import UNREACHABLE, Standing
from app.runs.model import Record, RecordError
from layers.errors import CircuitOpen, DependencyError, DependencyUnavailable, Withdrawn
from layers.model import EvalExample, EvalPrediction
from layers.ports import Clock, SystemUnderTest
from layers.profile import SystemProfile

MAX_MESSAGE = 2_000
"""Characters of an error's message that are kept."""

NOT_ASKED = frozenset({"rate_limited", "busy"})
"""Kinds that say "later": the remote's throttle, or our own budget for it."""

LOGGED_BUGS = 3
"""Unforeseen errors of one run that are logged in full; a million of them would say no more."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Item:
    """One question: an example and which of its repeats this is. `unit` numbers all questions of a run."""

    unit: int
    repeat: int
    example: EvalExample


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks `system`, waits with `gate` while it can't be asked; `standing` tells whether it ever answered.

    `tell_all` keeps the message of errors that no adapter foresaw, which may hold anything; off in the service.
    """

    system: SystemUnderTest
    profile: SystemProfile
    gate: Gate
    standing: Standing
    attempt: int = 1
    tell_all: bool = False
    clock: Clock = time.perf_counter

    async def ask(self, item: Item) -> Record:
        """The record of one example. An outage or a throttle is waited out: it is nobody's result.

        Raises `Stopped`.
        """
        while True:
            probe = await self.gate.enter()
            started = self.clock()
            prediction = None
            try:
                prediction = await self.system.predict(item.example)
                error = self._refusal(prediction)
            except Withdrawn:
                raise Stopped from None
            except DependencyError as exc:
                if self._is_nobodys_result(exc, probe=probe):
                    continue
                error = _from_dependency(exc)
            except Exception as exc:
                error = self._from_bug(exc)
            except BaseException:  # cancelled: the probe learnt nothing
                if probe:
                    self.gate.hold(0.0, probe=True)
                raise
            if not self.gate.held or not (error and error.kind in UNREACHABLE):
                self.gate.release(probe=probe)
            return self._record(item, prediction, error, 1000 * (self.clock() - started))

    def _is_nobodys_result(self, exc: DependencyError, *, probe: bool) -> bool:
        """Whether to wait and ask again: the system did not look at the question, or is only not back yet.

        Without one answer so far a failing probe counts: else a run against a dead system would wait for ever.
        """
        not_asked = isinstance(exc, CircuitOpen) or exc.kind in NOT_ASKED
        down = probe and isinstance(exc, DependencyUnavailable)
        if not_asked or down:
            self.standing.throttled = self.standing.throttled or exc.kind in NOT_ASKED
            self.gate.hold(exc.retry_after, probe=probe)
        return not_asked or (down and self.standing.reached)

    def _refusal(self, prediction: object) -> RecordError | None:
        if not isinstance(prediction, EvalPrediction):
            return RecordError(kind="internal", message=f"expected an EvalPrediction, got {type(prediction).__name__}")
        if "\x00" in prediction.label:
            return RecordError(kind="malformed", message="the label holds a NUL character")
        if prediction.label in self.profile.not_verdicts:
            return RecordError(
                kind="not_a_verdict", message=f"the label {prediction.label!r} says that nothing was judged"
            )
        return None

    def _from_bug(self, exc: Exception) -> RecordError:
        if not self.tell_all and self.standing.failures["internal"] < LOGGED_BUGS:
            logger.error("asking about an example failed in a way no adapter foresaw", exc_info=exc)
        message = f"{type(exc).__name__}: {exc}" if self.tell_all else type(exc).__name__
        return RecordError(kind="internal", message=_printable(message))

    def _record(
        self, item: Item, prediction: EvalPrediction | None, error: RecordError | None, elapsed_ms: float
    ) -> Record:
        example, scored = item.example, None
        if prediction is not None and error is None:
            scored = self.profile.fold(prediction.label)
        return Record(
            example_id=example.id or str(item.unit),
            repeat=item.repeat,
            status="failed" if scored is None else "scored",
            expected_label=example.expected_label,
            prediction=None if scored is None else prediction,
            scored_label=scored,
            correct=None if scored is None else scored == self.profile.fold(example.expected_label),
            error=error,
            attempt=self.attempt,
            elapsed_ms=round(elapsed_ms, 3),
        )


def _from_dependency(exc: DependencyError) -> RecordError:
    detail = {"dependency": exc.dependency, **exc.detail}
    return RecordError(kind=exc.kind[:64], message=_printable(exc.message), detail=detail)


def _printable(text: str) -> str:
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()[:MAX_MESSAGE]
