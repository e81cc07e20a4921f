"""The figures of a report: what was measured, how sure it is, and why a figure is missing."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from layers.model import Value

Scalar: TypeAlias = str | int | float | bool | None
"""A JSON value that is neither an object nor an array."""


class Interval(Value):
    """An interval of the level that stands beside it; the ends lie where the figure may lie, in 0..1 or -1..1."""

    low: float
    high: float


class LabelMetrics(Value):
    """One label's figures over the scored examples; null = undefined, with a reason in the report's `undefined`.

    Recall is over the `support` that expect the label, precision over the `n_predicted` that were given it.
    """

    label: str
    precision: float | None
    recall: float | None
    f1: float | None
    support: int
    n_predicted: int


class Averages(Value):
    """Per-label figures averaged over the labels where they are defined."""

    precision: float | None
    recall: float | None
    f1: float | None


class Confusion(Value):
    """`matrix[i][j]` counts the examples whose expected label is `labels[i]` and whose prediction is `labels[j]`.

    Of very many labels only the most frequent have a row; `n_omitted` says how many have none.
    """

    labels: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]
    n_omitted: int = 0


class AccuracyBounds(Value):
    """What accuracy over all examples could be if every unscored one were wrong (`worst`) or right (`best`)."""

    worst: float | None
    best: float | None


class LabelIntervals(Value):
    """Intervals of one label's figures: Wilson for the proportions, resampled for F1.

    F1's is null, with the reason as `f1_interval` in `undefined`, where too few examples carry the label to resample.
    """

    label: str
    precision: Interval | None
    recall: Interval | None
    f1: Interval | None = None


class AverageIntervals(Value):
    """Resampled intervals of averages over the labels.

    Null where the average is undefined, or where the resamples do not differ (`macro.f1_interval` in `undefined`).
    """

    precision: Interval | None
    recall: Interval | None
    f1: Interval | None


class Resampling(Value):
    """How the intervals without a formula were made: percentiles of the figure over `resamples` drawn data sets.

    What is drawn are `n_units` of a kind: single examples, all repeats of an example, or all examples of a `group`.
    """

    method: Literal["percentile bootstrap"] = "percentile bootstrap"
    unit: Literal["example", "repeats", "group"]
    n_units: int
    resamples: int
    seed: int


class Clustered(Value):
    """Accuracy's interval when examples come in groups that are not independent: Wilson's at the effective size.

    `design_effect` is how many times larger accuracy's variance is than that of as many independent examples.
    """

    interval: Interval
    design_effect: float
    effective_n: float


class Intervals(Value):
    """95 % intervals: Wilson's for accuracy, precision and recall, the rest as `resampling` says."""

    level: float = 0.95
    method: Literal["wilson"] = "wilson"
    accuracy: Interval | None
    per_label: tuple[LabelIntervals, ...] = ()
    accuracy_clustered: Clustered | None = None
    macro: AverageIntervals | None = None
    weighted: AverageIntervals | None = None
    balanced_accuracy: Interval | None = None
    matthews: Interval | None = None
    kappa: Interval | None = None
    resampling: Resampling | None = None


class Undefined(Value):
    """A metric that is null, and why. `label` is null for figures of the whole."""

    metric: str
    label: str | None = None
    reason: str


class Scores(Value):
    """The figures of one reading of the labels, strict or binary, over the scored examples.

    `balanced_accuracy` is the mean recall of the labels that occur, in 0..1; `matthews` (correlation) and `kappa`
    (Cohen's, against the labels) lie in -1..1 and are 0 for guessing.
    """

    total: int
    correct: int
    accuracy: float | None
    per_label: tuple[LabelMetrics, ...]
    n_scored: int
    n_failed: int
    accuracy_bounds: AccuracyBounds
    intervals: Intervals
    macro: Averages
    weighted: Averages
    balanced_accuracy: float | None
    matthews: float | None
    kappa: float | None
    confusion: Confusion
    undefined: tuple[Undefined, ...]


class ReliabilityBin(Value):
    """Predictions with a confidence in [low, high), the last bin including 1; means are null in an empty bin.

    `interval` is accuracy's: a well calibrated bin has its mean confidence inside, 95 times of 100.
    """

    low: float
    high: float
    n: int
    confidence: float | None
    accuracy: float | None
    interval: Interval | None


class Reliability(Value):
    """Does a confidence of 0.8 mean right in 80 of 100 cases? Over `n` predictions; null without any.

    Neither score has an interval: only sums by bin are kept, which say nothing of how far single errors lie apart, and
    the expected calibration error is besides too high where bins are small.
    """

    n: int
    brier_score: float | None
    expected_calibration_error: float | None
    bins: tuple[ReliabilityBin, ...]


class Calibration(Reliability):
    """Reliability of the strict labels; `binary` holds that of the collapsed ones where they were asked for."""

    binary: Reliability | None = None


class SliceFigures(Value):
    """How one part of a run did. `accuracy_worst` counts what was not scored as wrong.

    `p_value`: that the part is as accurate as the rest of the run (Fisher's exact test, two-sided); `p_adjusted` is
    Holm's over all parts of the report. `flag` is set where that is below 0.05. `label_intervals` are Wilson's, for
    precision and recall of the labels in `per_label`, in the same order; parts are not resampled, so F1 has none here.
    """

    correct: int
    accuracy: float | None
    interval: Interval | None
    accuracy_worst: float | None
    p_value: float | None
    p_adjusted: float | None
    flag: Literal["better", "worse"] | None
    per_label: tuple[LabelMetrics, ...]
    label_intervals: tuple[LabelIntervals, ...]


class SliceValue(SliceFigures):
    """The examples that have `value` at the slice's path. `support` counts them all, scored or not."""

    value: Scalar
    support: int
    n_scored: int
    n_failed: int
    binary: SliceFigures | None = None


class Slice(Value):
    """A run cut along one path. Of very many values the most frequent are shown, and `n_omitted` counts the rest.

    `n_without`: examples that have nothing at the path, or an object or array. `reason` says why there are no values.
    """

    path: str
    values: tuple[SliceValue, ...] = ()
    n_omitted: int = 0
    n_without: int = 0
    reason: str | None = Field(default=None)


class RepeatFigures(Value):
    """One reading of examples that were asked several times each.

    `pass_all` (pass^k) is the share of examples that are right every time, `pass_any` of those right at least once, of
    the `n_complete` whose repeats were all scored, with Wilson's intervals; null where there are none. What was not
    scored is not wrong, as in accuracy; `pass_all_worst` and `pass_any_worst` are over all examples and count it as
    wrong. `agreement` is how likely two answers to one example are the same label, over the `n_agreement` examples
    with two scored answers or more; a mean of shares, it has no interval. The variances are of being right.
    """

    n_complete: int
    pass_all: float | None
    pass_all_interval: Interval | None
    pass_all_worst: float
    pass_any: float | None
    pass_any_interval: Interval | None
    pass_any_worst: float
    n_agreement: int
    agreement: float | None
    variance_within: float | None
    variance_between: float | None


class Repeats(RepeatFigures):
    """Examples that were asked `k` times each; `binary` reads the collapsed labels where they were asked for."""

    k: int
    n_examples: int
    binary: RepeatFigures | None = None
