"""What a layer found, if it found anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from layers.model import LayerName, Outcome, Scored

T = TypeVar("T")


def finding_of(outcomes: Mapping[LayerName, Outcome], name: LayerName, kind: type[T]) -> T | None:
    """The finding of the layer `name`, None when it was not run, skipped, failed, or found something else."""
    outcome = outcomes.get(name)
    return outcome.finding if isinstance(outcome, Scored) and isinstance(outcome.finding, kind) else None
