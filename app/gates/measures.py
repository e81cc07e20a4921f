"""A figure as a gate reads it: the worst that the unscored examples allow, and how sure it is."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.runs.intervals import Observations, clustered_accuracy
from app.runs.statistics.bootstrap import Counts
from app.runs.statistics.clusters import effective_size, sum_by_cluster
from app.runs.tally import Tally

Mask: TypeAlias = NDArray[np.bool_]
Drawn: TypeAlias = "OrderedDict[bytes, Counts]"


@dataclass(frozen=True)
class Part:
    """The examples that a figure is taken over.

    `effect` > 1 is the design effect of examples that come in groups, or were asked `asked` times each; where
    `observations` are given too, they tell more exactly. `drawn` keeps resamples for the next figure of this part.
    """

    tally: Tally
    order: Sequence[str]
    effect: float = 1.0
    observations: Observations | None = None
    asked: int = 1
    drawn: Drawn = field(default_factory=OrderedDict)

    @property
    def answers(self) -> int:
        """How many answers there are, failed ones included; with repeats that is more than examples."""
        return self.tally.n_scored + self.tally.n_failed

    def examples(self, answers: int, chosen: Mask | None) -> int:
        """To how many examples these are answers: `chosen` of the observations, else the fewest that they can be."""
        seen = self.observations
        if self.asked == 1:
            return answers
        if seen is None or seen.examples is None or chosen is None:
            return math.ceil(answers / self.asked)
        return len(np.unique(seen.examples[chosen]))

    @property
    def n(self) -> int:
        """Examples that were asked."""
        seen = self.observations
        return self.examples(self.answers, None if seen is None else np.ones(len(seen.names), dtype=np.bool_))

    @property
    def n_scored(self) -> int:
        """Examples with at least one answer that was scored."""
        seen = self.observations
        return self.examples(self.tally.n_scored, None if seen is None else seen.predicted >= 0)

    def worth(self, answers: int, chosen: Mask | None, *, level: float) -> float:
        """As how many independent ones these answers count, `chosen` of the observations."""
        seen = self.observations
        if seen is None or chosen is None or not chosen.any():
            return answers / self.effect
        right = (seen.expected == seen.predicted)[chosen].astype(np.float64)
        return effective_size(sum_by_cluster(seen.names[chosen], right), level=level)


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure in the worst case, its interval, and over how many examples, `n_scored` of them scored.

    An example counts once, however often it was asked. `needed(threshold)` is how many examples would put the interval
    on one side of a threshold. `note` says where the interval is not one of resamples, and why.
    """

    observed: float
    low: float
    high: float
    n: int
    n_scored: int
    needed: Callable[[float], int | None]
    note: str | None = None


class Unmeasurable(Exception):
    """There is no such figure; the message says why."""


def effect_of(seen: Observations | None) -> float:
    """The design effect of accuracy over grouped examples, at least 1; failed ones count as wrong."""
    return 1.0 if seen is None or not len(seen.names) else max(1.0, clustered_accuracy(seen).design_effect)
