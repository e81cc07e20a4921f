"""A counter that costs a dictionary entry: what is counted on every request must not cost microseconds each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence

from opentelemetry.metrics import CallbackOptions, Meter, Observation

Read = Callable[[], Iterable[tuple[float, dict[str, str]]]]
"""What a gauge shows at the moment: values with their labels."""


class Tally:
    """A counter by fixed labels. Counted on the event loop's thread; read by the exporter's, which sees whole counts.

    `known` are the values of each label of which it is known at start that they can occur: their series begin at 0, so
    that the first event is a rise and not the birth of a series.
    """

    def __init__(
        self,
        meter: Meter,
        name: str,
        labels: tuple[str, ...],
        description: str,
        *,
        known: Sequence[Collection[str]] = (),
    ) -> None:
        self._labels = labels
        self._counts: dict[tuple[str, ...], float] = {}
        self.begin(*known)
        meter.create_observable_counter(name, [self._observe], description=description)

    def begin(self, *known: Collection[str]) -> None:
        """Start every combination of these label values at 0."""
        if known:
            for values in itertools.product(*known):
                self._counts.setdefault(values, 0)

    def add(self, *values: str, n: float = 1) -> None:
        """Count `n` under the label values, which are given in the labels' order."""
        self._counts[values] = self._counts.get(values, 0) + n

    def _observe(self, _: CallbackOptions) -> Iterable[Observation]:
        # Copying a dictionary is one step for the interpreter: no other thread gets between.
        return [
            Observation(n, dict(zip(self._labels, values, strict=True))) for values, n in self._counts.copy().items()
        ]


class Shown:
    """A gauge, or a counter kept elsewhere, whose values are looked up when they are exported."""

    def __init__(self, meter: Meter, name: str, description: str, *, unit: str = "", counter: bool = False) -> None:
        self._reads: list[Read] = []
        create = meter.create_observable_counter if counter else meter.create_observable_gauge
        create(name, [self._observe], unit=unit, description=description)

    def show(self, read: Read) -> None:
        """Show what `read` gives. It is called from the exporter's thread: it only reads, and never waits."""
        self._reads.append(read)

    def _observe(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, labels) for read in self._reads for value, labels in read()]
