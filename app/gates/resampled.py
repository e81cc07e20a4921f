"""Figures of the confusion matrix as a gate reads them, with the intervals that reports have too."""

from __future__ import annotations

import math

import numpy as np

from app.gates.measures import Measure, Part, Unmeasurable
from app.gates.policy import Metric
from app.gates.worst_case import Worst, worst_of
from app.runs.figures import Interval
from app.runs.intervals import MAX_LABELS, MIN_CARRYING, TOO_FEW, Observations, carrying, draw, ends_of
from app.runs.metrics import labels_of, matrix_of
from app.runs.statistics import agreement
from app.runs.statistics.proportion import trials_needed, trials_to_narrow, wilson_of_share
from app.runs.statistics.unseen import examples_to_reach, reach, unseen_share

MAX_DRAWN = 2
"""Sets of resamples that are kept for the next figure: 26 MB each at most."""


def measure_resampled(part: Part, metric: Metric, label: str | None, *, level: float) -> Measure:
    """F1 of `label`, an average over the labels, or an agreement. Raises `Unmeasurable`.

    All examples are resampled, with failed ones taken for what hurts the figure most. Where that can't tell how sure
    the figure is, an interval that can takes its place, and `note` says so.
    """
    worst = _worst(part, metric, label)
    found = _percentiles(part, worst, level)
    if isinstance(found, Interval):
        return _by_resamples(part, worst, found)
    return (_by_unseen if label is None else _by_carriers)(part, worst, level, found)


def _worst(part: Part, metric: Metric, label: str | None) -> Worst:
    labels = labels_of(part.tally, part.order)
    if len(labels) > MAX_LABELS:
        raise Unmeasurable(f"there are more than {MAX_LABELS} labels")
    if label is not None and label not in labels:
        raise Unmeasurable("no example has this label")
    try:
        if metric == "kappa":
            agreement.cohen_kappa(matrix_of(part.tally, labels))
        elif metric == "matthews":
            agreement.matthews_correlation(matrix_of(part.tally, labels))
    except agreement.Undefined as exc:
        raise Unmeasurable(f"the figure does not exist for these labels: {exc}") from None
    worst = worst_of(part.tally, labels, metric, label)
    if not math.isfinite(_value(worst)):
        raise Unmeasurable("the figure does not exist for these labels")
    return worst


def _value(worst: Worst) -> float:
    return float(worst.statistic(worst.matrix[None])[0])


def _seen(part: Part, worst: Worst) -> Observations | None:
    """The observations with failed ones as assigned."""
    seen = part.observations
    return None if seen is None else seen.coded(seen.labels, worst.labels).filled(worst.assigned)


def _percentiles(part: Part, worst: Worst, level: float) -> Interval | str:
    """The interval over resamples, or why they can't tell."""
    seen = _seen(part, worst)
    if worst.label is not None and _carriers(part, worst, seen) < MIN_CARRYING:
        return TOO_FEW
    key = worst.matrix.tobytes()
    if key not in part.drawn:
        while len(part.drawn) >= MAX_DRAWN:
            part.drawn.popitem(last=False)
        part.drawn[key] = draw(worst.matrix, seen)[0]
    return ends_of(worst.statistic(part.drawn[key]), level=level)


def _carriers(part: Part, worst: Worst, seen: Observations | None) -> float:
    """How many examples carry the label."""
    return float(carrying(worst.matrix, seen)[worst.label or 0]) / (part.asked if seen is None else 1)


def _by_resamples(part: Part, worst: Worst, found: Interval) -> Measure:
    value = _value(worst)
    observed = min(value, worst.bound)
    # As far as the bound lies below the assignment, so does the interval; groups widen it where they are not drawn.
    loss, widen = value - observed, 1.0 if part.observations is not None else math.sqrt(part.effect)
    low = max(worst.lowest, value - widen * (value - found.low) - loss) if loss or widen > 1 else found.low
    high = min(1.0, value + widen * (found.high - value) - loss) if loss or widen > 1 else found.high
    n = part.n

    def needed(threshold: float) -> int | None:
        half = observed - low if observed >= threshold else high - observed
        return trials_to_narrow(n, half, abs(observed - threshold))

    return Measure(observed, low, high, n, part.n_scored, needed)


def _by_carriers(part: Part, worst: Worst, level: float, why: str) -> Measure:
    """F1 by Wilson's interval on the examples that could move it.

    F1 = 2J / (1 + J), where J = TP / (TP + FP + FN) is a share of the examples that carry the label.
    """
    place = worst.label or 0
    right = float(worst.matrix[place, place])
    total = float(worst.matrix[place].sum() + worst.matrix[:, place].sum()) - right
    worth, share, n = _worth(part, level), right / total, part.n
    low, high = wilson_of_share(share, total * worth, level=level)

    def needed(threshold: float) -> int | None:
        goal = threshold / (2 - threshold)
        trials = trials_needed(share, goal, level=level) if 0 < goal < 1 else None
        return None if trials is None else math.ceil(trials / worth * n / total)

    note = f"{why}; the interval is Wilson's over the examples that carry the label"
    observed, low, high = (2 * one / (1 + one) for one in (share, low, high))
    return Measure(observed, low, high, n, part.n_scored, needed, note)


def _by_unseen(part: Part, worst: Worst, level: float, why: str) -> Measure:
    """Any other figure by what none of the examples showed, and what it would do."""
    observed = min(_value(worst), worst.bound)
    worth, n = _worth(part, level), part.n
    share = unseen_share(part.answers * worth, level=level)
    low = reach(worst.statistic, worst.matrix, share, lower=True) - (_value(worst) - observed)
    high = reach(worst.statistic, worst.matrix, share, lower=False)

    def needed(threshold: float) -> int | None:
        if observed == threshold:
            return None
        size = examples_to_reach(worst.statistic, worst.matrix, threshold, level=level, lower=observed > threshold)
        return None if size is None else math.ceil(size / worth * n / part.answers)

    note = f"{why}; the interval is how far outcomes that none of the examples showed could move the figure"
    return Measure(observed, max(worst.lowest, low), high, n, part.n_scored, needed, note)


def _worth(part: Part, level: float) -> float:
    """The share of an independent answer that each one is worth."""
    seen = part.observations
    everyone = None if seen is None else np.ones(len(seen.names), dtype=np.bool_)
    return part.worth(part.answers, everyone, level=level) / part.answers
