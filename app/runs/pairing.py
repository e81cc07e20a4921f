"""Put two runs' answers side by side, example by example, by id and never by order."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.runs.analysis import PathParts, group_number
from app.runs.contrasts import Listed
from layers.json_pointer import MISSING, resolve
from layers.model import JsonObject
from layers.profile import SystemProfile

MAX_LISTED = 20
"""Ids that a list of examples shows."""

MAX_AXES = 20
"""Label axes that are compared; further ones are left out."""

MAX_KNOWN = 10_000
"""Combinations of answers that are remembered."""

AXES_KEY = b'"expected_labels":'
"""What the canonical bytes of an example with several label axes hold."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What one run said of one example: a label each repeat, None = it failed. Labels are as they are compared.

    `axes` holds the same by axis of `expected_labels`: the expected label and the labels given.
    """

    expected: str
    scored: tuple[str | None, ...]
    axes: Mapping[str, tuple[str, tuple[str | None, ...]]] = field(default_factory=dict)


class IdList:
    """Counts ids and remembers the first few."""

    def __init__(self) -> None:
        self.count = 0
        self._ids: list[str] = []

    def add(self, example_id: str) -> None:
        self.count += 1
        if len(self._ids) < MAX_LISTED:
            self._ids.append(example_id)

    def listed(self) -> Listed:
        return Listed(count=self.count, ids=tuple(self._ids))


class Outcomes:
    """Counts of pairs by how they came out: (baseline, candidate), each right, wrong, or None = not scored."""

    def __init__(self) -> None:
        self.grid: Counter[tuple[bool | None, bool | None]] = Counter()

    @property
    def size(self) -> int:
        return sum(self.grid.values())

    def add(self, baseline: bool | None, candidate: bool | None) -> None:
        self.grid[baseline, candidate] += 1


class Pairing:
    """Takes pairs in any order and adds them up, in memory that does not grow with them but for 9 bytes a pair.

    Of an example that was asked several times, the answer is right when more than half of its scored answers are.
    """

    def __init__(self, candidate: SystemProfile, baseline: SystemProfile, paths: Iterable[str] = ()) -> None:
        self._profiles = baseline, candidate
        self._known: dict[tuple[str, tuple[str | None, ...], tuple[str | None, ...]], tuple[bool | None, ...]] = {}
        self.binary = Outcomes() if candidate.binary and baseline.binary else None
        self.strict = Outcomes()
        self.labels: dict[str, Outcomes] = {}
        self.slices = [PathParts(path, Outcomes) for path in paths]
        self.axes: dict[str, Outcomes] = {}
        self.n_paired = 0
        self.n_pending = 0
        self.missing = IdList()
        self.added = IdList()
        self.relabelled = IdList()
        self.duplicates = IdList()
        self.corrected = IdList()
        self.broke = IdList()
        self.grouped = False
        self.names = array("q")
        self.changes = array("b")

    def add_pending(self) -> None:
        """A pair of which at least one run has no record yet."""
        self.n_paired += 1
        self.n_pending += 1

    def add(self, example_id: str, example: JsonObject | None, candidate: Answers, baseline: Answers) -> None:
        """One pair. `example` is its JSON where it has a group or is to be cut."""
        self.n_paired += 1
        if candidate.expected != baseline.expected:
            self.relabelled.add(example_id)
            return
        before, after, *collapsed = self._outcomes(baseline, candidate)
        self.strict.add(before, after)
        if (label := self.labels.get(candidate.expected)) is None:
            label = self.labels[candidate.expected] = Outcomes()
        label.add(before, after)
        if self.binary is not None:
            self.binary.add(*collapsed)
        if before is not None and after is not None and before is not after:
            (self.corrected if after else self.broke).add(example_id)
        self._add_axes(candidate, baseline)
        if example is not None:
            for path in self.slices:
                if (part := path.find(example)) is not None:
                    part.add(before, after)
        if before is not None and after is not None:
            self._add_change(example, after - before)

    def _outcomes(self, baseline: Answers, candidate: Answers) -> tuple[bool | None, ...]:
        """How a pair came out in each reading of the labels; the same few answers come again and again."""
        key = (candidate.expected, baseline.scored, candidate.scored)
        found = self._known.get(key)
        if found is None:
            before, after = self._profiles
            found = (
                outcome(baseline.expected, baseline.scored),
                outcome(candidate.expected, candidate.scored),
                outcome(baseline.expected, baseline.scored, before.collapse),
                outcome(candidate.expected, candidate.scored, after.collapse),
            )
            if len(self._known) < MAX_KNOWN:
                self._known[key] = found
        return found

    def _add_axes(self, candidate: Answers, baseline: Answers) -> None:
        for axis, (expected, scored) in candidate.axes.items():
            other = baseline.axes.get(axis)
            if other is None or other[0] != expected or (axis not in self.axes and len(self.axes) >= MAX_AXES):
                continue
            outcomes = self.axes.setdefault(axis, Outcomes())
            outcomes.add(outcome(expected, other[1]), outcome(expected, scored))

    def _add_change(self, example: JsonObject | None, change: int) -> None:
        group = None if example is None else example.get("group")
        self.grouped = self.grouped or group is not None
        # A pair without a group is a group of its own; groups' numbers are negative.
        self.names.append(self.n_paired if group is None else group_number(group))
        self.changes.append(change)


def outcome(
    expected: str, scored: Iterable[str | None], read: Callable[[str], str] = lambda label: label
) -> bool | None:
    """Whether more than half of the labels given, as `read`, are the expected one; None when none was given."""
    given = [label for label in scored if label is not None]
    if not given:
        return None
    return 2 * sum(read(label) == read(expected) for label in given) > len(given)


def axis_label(prediction: Mapping[str, Any], axis: str) -> str | None:
    """What a prediction says on an axis; None = nothing.

    `metadata.labels[axis]` if it is there, else the payload's field of that name, or at that JSON Pointer. Truth
    values and whole numbers count as their JSON text.
    """
    labels = prediction.get("metadata", {}).get("labels")
    value = labels.get(axis, MISSING) if isinstance(labels, dict) else MISSING
    if value is MISSING:
        payload = prediction.get("raw_output", {})
        value = resolve(payload, axis) if axis.startswith("/") else payload.get(axis, MISSING)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return value if isinstance(value, str) else None
