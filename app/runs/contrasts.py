"""The words of a comparison: two runs over the same examples, paired by example id."""

from __future__ import annotations

from typing import Literal

from app.runs.figures import Interval, Scalar
from app.runs.model import RunStatus
from layers.model import Value

Verdict = Literal["better", "worse", "no_difference_shown", "nothing_to_compare"]


class Listed(Value):
    """How many examples there are of a kind, and the ids of the first few."""

    count: int = 0
    ids: tuple[str, ...] = ()


class Unscored(Value):
    """Pairs that one run, or both, could not score."""

    baseline: int
    candidate: int
    both: int


class WorstCase(Value):
    """The comparison with unscored examples against the candidate: its own count as wrong, the baseline's as right.

    Pairs that neither run scored stay out: they tell nothing of a difference.
    """

    n: int
    corrected: int
    broke: int
    difference: float
    interval: Interval


class GroupedDifference(Value):
    """The difference when examples come in groups: a t interval over groups, never narrower than of pairs."""

    n_groups: int
    interval: Interval
    p_value: float


class Contrast(Value):
    """How the same examples came out under the baseline and under the candidate.

    `corrected`: wrong before, right now; `broke`: right before, wrong now. `difference` is accuracy of the candidate
    minus that of the baseline over the `n` pairs that both scored. `p_exact` is McNemar's exact test, `p_mid` its mid-p
    version; `p_adjusted` is Holm's, among the labels, the slices or the axes. `real` = that p-value is below alpha.
    `minimum_detectable`: the smallest difference that this many pairs, as many of which change, would show in 80 of
    100 cases. Null where there is nothing to compare, `minimum_detectable` also where nothing changed.
    """

    n: int
    both_right: int
    corrected: int
    broke: int
    both_wrong: int
    unscored: Unscored
    accuracy: float | None
    baseline_accuracy: float | None
    difference: float | None
    interval: Interval | None
    p_exact: float | None
    p_mid: float | None
    p_adjusted: float | None
    real: bool
    verdict: Verdict
    minimum_detectable: float | None
    worst_case: WorstCase | None
    grouped: GroupedDifference | None = None


class LabelContrast(Contrast):
    """The pairs that should have had one label; the difference is one of recall."""

    label: str


class AxisContrast(Contrast):
    """The pairs on one axis of `expected_labels`."""

    axis: str


class ValueContrast(Contrast):
    """The pairs that have one value at a slice's path."""

    value: Scalar


class SliceContrast(Value):
    """Two runs compared along one path; as in a report, `n_omitted` values are not shown, `reason` = there are none."""

    path: str
    values: tuple[ValueContrast, ...]
    n_omitted: int
    n_without: int
    reason: str | None


class Sequential(Value):
    """A decision that may be looked at while runs go on, and stays valid whenever one stops looking.

    `p_value` is 1 over the largest e-value seen so far; `decided` = it is at most alpha.
    """

    corrected: int
    broke: int
    e_value_log: float
    peak_log: float
    p_value: float
    decided: bool
    direction: Literal["better", "worse"] | None


class Paired(Value):
    """Which examples could be paired. `relabelled`: the runs expect different labels, so they are not compared.

    `missing` are the baseline's only, `added` the candidate's only, `duplicates` stand more than once in a dataset and
    are not compared. `n_pending`: at least one of the runs has no record yet.
    """

    n_paired: int
    n_compared: int
    n_pending: int
    missing: Listed
    added: Listed
    relabelled: Listed
    duplicates: Listed
    corrected: Listed
    broke: Listed


class Side(Value):
    """One of the two runs."""

    run_id: str
    name: str | None
    system: str
    status: RunStatus
    dataset_id: str


class Comparison(Value):
    """Two runs compared. Intervals have the level 1 - `alpha`.

    `warnings`: what is held against one of the runs, so that nothing should be decided by this comparison.
    """

    run_id: str
    baseline_run_id: str
    alpha: float
    candidate: Side
    baseline: Side
    pairs: Paired
    strict: Contrast
    binary: Contrast | None
    per_label: tuple[LabelContrast, ...]
    n_labels_omitted: int
    slices: tuple[SliceContrast, ...]
    axes: tuple[AxisContrast, ...]
    sequential: Sequential
    warnings: tuple[str, ...] = ()
