"""Run one layer: deadline, isolation, time stamps. It ends as an outcome whatever happens, but for cancellation."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

import anyio

from app.evaluation.observe import Watch
from layers.errors import CircuitOpen, ConfigurationError, DependencyError
from layers.model import Cause, Failed, Finding, LayerName, Outcome, Scored, Skipped, SkipReason
from layers.ports import Clock, Fruitless, Layer, LayerInput, Skip

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """A layer as it was put together. `layer` None = not configured; `timeout` in seconds, None = it never waits."""

    layer: Layer | None
    timeout: float | None
    version: str


async def run_layer(
    name: LayerName,
    spec: LayerSpec,
    item: LayerInput,
    outcomes: dict[LayerName, Outcome],
    *,
    deadline: float,
    clock: Clock,
    watch: Watch,
) -> None:
    """Put the layer's outcome into `outcomes`.

    `deadline` is the request's, on `clock`: the layer gets its own time-out or what is left, whichever is less.
    """
    if spec.layer is None:
        outcomes[name] = Skipped(reason=SkipReason.NOT_CONFIGURED, version=spec.version)
        return
    started, started_ns = clock(), time.time_ns()
    outcome: Outcome
    try:
        finding = await _ask(spec.layer, spec.timeout, item, deadline - started)
        outcome = Scored(finding=finding, elapsed_ms=_elapsed(started, clock), version=spec.version)
    except Exception as exc:
        # One layer's trouble, a finding that is none included, must not become the request's.
        outcome = _explain(name, exc, _elapsed(started, clock), spec.version)
    outcomes[name] = outcome
    watch.layer(name, outcome, started_ns, time.time_ns())


class _OutOfTime(Exception):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__()


async def _ask(layer: Layer, timeout: float | None, item: LayerInput, left: float) -> Finding:
    if timeout is None:
        return await layer(item)
    seconds = min(timeout, left)
    if seconds <= 0:
        raise _OutOfTime(0.0)
    with anyio.move_on_after(seconds):
        return await layer(item)
    # Only this scope's own deadline ends here: an outer cancellation goes on as an exception.
    raise _OutOfTime(seconds)


def _elapsed(started: float, clock: Clock) -> float:
    return round((clock() - started) * 1000, 3)


def _explain(name: LayerName, exc: Exception, elapsed_ms: float, version: str) -> Skipped | Failed:
    for error in _leaves(exc):
        match error:
            case Skip():
                return Skipped(reason=error.reason, elapsed_ms=elapsed_ms, version=version)
            case CircuitOpen():
                return Skipped(reason=SkipReason.CIRCUIT_OPEN, elapsed_ms=elapsed_ms, version=version)
            case DependencyError():
                cause = Cause(kind=error.kind, message=error.message, dependency=error.dependency)
            case ConfigurationError():
                cause = Cause(kind="configuration", message=str(error))
            case _OutOfTime():
                cause = Cause(kind="timeout", message=f"no answer within {error.seconds:g} s")
            case _:
                continue
        shown = error.finding if isinstance(error, Fruitless) else None
        return Failed(cause=cause, finding=shown, elapsed_ms=elapsed_ms, version=version)
    logger.error("layer %s crashed", name, exc_info=exc)
    return Failed(cause=Cause(kind="crashed", message=type(exc).__name__), elapsed_ms=elapsed_ms, version=version)


def _leaves(exc: BaseException) -> Iterator[BaseException]:
    """The exceptions in what a layer's own task group raised, or the exception itself."""
    if isinstance(exc, BaseExceptionGroup):
        for inner in exc.exceptions:
            yield from _leaves(inner)
    else:
        yield exc
