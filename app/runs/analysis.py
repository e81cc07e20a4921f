"""One pass over a run's records and examples: what counting alone can't tell, in memory that does not grow with them.

Not independent of the number of examples are 24 bytes for each answer, and 8 more where examples are asked repeatedly.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

import numpy as np

from app.runs.figures import Repeats, Scalar
from app.runs.intervals import Observations
from app.runs.model import Record
from app.runs.repeats import RepeatSums
from app.runs.statistics.calibration import BINS, BinSums, bin_of
from app.runs.tally import Pair, Tally
from layers.json_pointer import MISSING, resolve
from layers.model import JsonObject
from layers.profile import SystemProfile

P = TypeVar("P")

MAX_PATHS = 8
"""Paths that one report is cut along."""

MAX_DISTINCT = 2_000
"""Values at one path beyond which cutting along it says nothing: an identifier, an amount, a time."""

MAX_TEXT = 256
"""Characters of a text that can name a slice."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A current record as it is counted: labels as they are compared; `scored` None = failed, for a reason `kind`."""

    expected: str
    scored: str | None
    kind: str | None
    confidence: float | None
    prediction: JsonObject | None = None
    """As JSON, where the report is cut along something in it."""


@dataclass
class Counts:
    """Counts of one part of a run. `n` are all questions in it, asked or not."""

    n: int = 0
    scored: Counter[Pair] = field(default_factory=Counter)
    failed: Counter[Pair] = field(default_factory=Counter)

    def add(self, seen: Seen) -> None:
        if seen.scored is None:
            self.failed[seen.expected, seen.kind or "internal"] += 1
        else:
            self.scored[seen.expected, seen.scored] += 1

    def tally(self) -> Tally:
        return Tally(self.n, self.scored, self.failed)


OF_PREDICTION = "/prediction"
"""How a path begins that leads into the prediction that was scored, and not into its example."""

ValueKey: TypeAlias = tuple[str, Scalar]
"""A value with the name of its type, so that 1, 1.0, true and "1" are four."""


class PathParts(Generic[P]):
    """What lies behind one path, part by part; `too_many` = there are more than `MAX_DISTINCT` values, none is kept."""

    def __init__(self, path: str, make: Callable[[], P]) -> None:
        self.path = path
        self.of_prediction = path.startswith(OF_PREDICTION)
        self._pointer = path.removeprefix(OF_PREDICTION) if self.of_prediction else path
        self.values: dict[ValueKey, P] = {}
        self.n_without = 0
        self.too_many = False
        self._make = make

    def find(self, example: JsonObject, weight: int = 1) -> P | None:
        """The part that this example belongs to; None = to none. `weight` is what it adds to `n_without` then."""
        if self.too_many:
            return None
        value = resolve(example, self._pointer)
        if value is MISSING or isinstance(value, (dict, list)) or (isinstance(value, str) and len(value) > MAX_TEXT):
            self.n_without += weight
            return None
        key = (type(value).__name__, value)
        part = self.values.get(key)
        if part is None:
            if len(self.values) >= MAX_DISTINCT:
                self.values, self.too_many = {}, True
                return None
            part = self.values[key] = self._make()
        return part

    @property
    def reason(self) -> str | None:
        """Why there are no values."""
        if self.too_many:
            return "there are too many different values here"
        return None if self.values else "no example has a single value here"

    def most_frequent(self, size: Callable[[P], int], limit: int) -> list[tuple[ValueKey, P]]:
        """The largest parts, in a fixed order."""
        ordered = sorted(self.values.items(), key=lambda item: (-size(item[1]), item[0][0], str(item[0][1])))
        return ordered[:limit]


ConfidenceKey: TypeAlias = tuple[str, str, int]
"""Expected label, scored label, bin of the confidence."""


@dataclass(frozen=True, slots=True)
class ConfidenceSums:
    """How many predictions, the sum of their confidences, and that of their squares."""

    n: int
    total: float
    squares: float


def reliability_sums(
    groups: Mapping[ConfidenceKey, ConfidenceSums], profile: SystemProfile, *, binary: bool
) -> tuple[BinSums, ...]:
    """What the bins of a reliability diagram add up to, from sums by labels. (c - 1)^2 is taken apart into sums."""
    read = profile.collapse if binary else _same
    bins = [BinSums()] * BINS
    for (expected, scored, place), sums in groups.items():
        right = read(expected) == read(scored)
        error = sums.squares - 2 * sums.total + sums.n if right else sums.squares
        old = bins[place]
        bins[place] = BinSums(
            old.n + sums.n, old.confidence + sums.total, old.squared_error + error, old.correct + right * sums.n
        )
    return tuple(bins)


def _same(label: str) -> str:
    return label


@dataclass(frozen=True)
class Breakdown:
    """What a report says beyond its tally."""

    confidences: Mapping[ConfidenceKey, ConfidenceSums]
    slices: Sequence[PathParts[Counts]] = ()
    observations: Observations | None = None
    repeats: Repeats | None = None
    asked: int = 1
    """How many times each example is asked."""


class Analysis:
    """Takes examples with their records in any order and adds them up. `repeats`: questions asked for each example."""

    def __init__(self, profile: SystemProfile, n_total: int, paths: Iterable[str] = (), *, repeats: int = 1) -> None:
        self._profile = profile
        self._repeats = repeats
        self._whole = Counts(n_total)
        self._slices = [PathParts(path, Counts) for path in paths]
        self._of_examples = [path for path in self._slices if not path.of_prediction]
        self._of_predictions = [path for path in self._slices if path.of_prediction]
        self._confidences: dict[ConfidenceKey, list[float]] = {}
        self._labels: dict[str, int] = {}
        self._names = array("q")
        self._codes = array("q")
        self._positions = array("q")
        self._grouped = False
        self._repeated = RepeatSums(repeats)
        self._repeated_binary = RepeatSums(repeats) if profile.binary else None

    def add(self, position: int, example: JsonObject | None, records: Iterable[Seen]) -> None:
        """One example, as JSON (None = it has no group and is not cut), and its current records."""
        parts, name = self._place(position, example)
        records = list(records)
        if self._repeats > 1 and records:
            self._add_repeated(records)
        for seen in records:
            self._whole.add(seen)
            for part in parts:
                part.add(seen)
            self._cut_by_prediction(seen)
            self._observe(position, name, seen)
            if seen.scored is not None and seen.confidence is not None:
                self._add_confidence(seen.expected, seen.scored, seen.confidence)

    def seen(self, record: Record) -> Seen:
        """A record as it is counted."""
        expected = self._profile.fold(record.expected_label)
        kind = record.error.kind if record.error else None
        given = record.prediction
        whole = given.model_dump(mode="json") if given and self.cuts_predictions else None
        return Seen(expected, record.scored_label, kind, given.confidence if given else None, whole)

    @property
    def cuts(self) -> bool:
        """Whether it looks into every example."""
        return bool(self._of_examples)

    @property
    def cuts_predictions(self) -> bool:
        """Whether it looks into every prediction."""
        return bool(self._of_predictions)

    def tally(self) -> Tally:
        return self._whole.tally()

    def breakdown(self) -> Breakdown:
        sums = {key: ConfidenceSums(int(n), total, squares) for key, (n, total, squares) in self._confidences.items()}
        return Breakdown(
            sums, self._slices, self._observations(), self._repeated.figures(self._repeated_binary), self._repeats
        )

    def _place(self, position: int, example: JsonObject | None) -> tuple[list[Counts], int]:
        if example is None:
            return [], position
        parts = [part for path in self._of_examples if (part := path.find(example, self._repeats)) is not None]
        for part in parts:
            part.n += self._repeats
        group = example.get("group")
        if group is None:
            return parts, position
        self._grouped = True
        return parts, group_number(group)

    def _cut_by_prediction(self, seen: Seen) -> None:
        """A question that brought no prediction belongs to no part."""
        for path in self._of_predictions:
            part = path.find(seen.prediction or {})
            if part is not None:
                part.n += 1
                part.add(seen)

    def _add_repeated(self, records: Sequence[Seen]) -> None:
        expected, scored = records[0].expected, [seen.scored for seen in records]
        self._repeated.add(expected, scored)
        if self._repeated_binary:
            collapse = self._profile.collapse
            self._repeated_binary.add(
                collapse(expected), [None if label is None else collapse(label) for label in scored]
            )

    def _observe(self, position: int, name: int, seen: Seen) -> None:
        self._names.append(name)
        self._codes.append(self._code(seen.expected))
        self._codes.append(-1 if seen.scored is None else self._code(seen.scored))
        if self._repeats > 1:
            self._positions.append(position)

    def _code(self, label: str) -> int:
        return self._labels.setdefault(label, len(self._labels))

    def _add_confidence(self, expected: str, scored: str, confidence: float) -> None:
        sums = self._confidences.setdefault((expected, scored, bin_of(confidence)), [0, 0.0, 0.0])
        sums[0] += 1
        sums[1] += confidence
        sums[2] += confidence * confidence

    def _observations(self) -> Observations | None:
        if not self._names or not (self._grouped or self._repeats > 1):
            return None
        codes = np.frombuffer(self._codes, dtype=np.int64).reshape(-1, 2)
        names = np.frombuffer(self._names, dtype=np.int64)
        unit: Literal["group", "repeats"] = "group" if self._grouped else "repeats"
        examples = np.frombuffer(self._positions, dtype=np.int64) if self._repeats > 1 else None
        return Observations(unit, names, codes[:, 0], codes[:, 1], list(self._labels), examples)


def group_number(group: str) -> int:
    """A number of the group's name, negative so that it is nobody's position; the same in every process."""
    digest = hashlib.blake2b(group.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return -(int.from_bytes(digest) >> 1) - 1
