"""Accuracy, precision and recall as a gate reads them: shares, with every failed example counted as wrong."""

from __future__ import annotations

import math

import numpy as np

from app.gates.measures import Mask, Measure, Part, Unmeasurable
from app.gates.policy import Metric
from app.runs.intervals import Observations
from app.runs.statistics.proportion import trials_needed, wilson_of_share
from app.runs.tally import Tally


def measure_share(part: Part, metric: Metric, label: str | None, *, level: float) -> Measure:
    """One of the three, with Wilson's interval. Raises `Unmeasurable`."""
    right, total, scored = _counts(part.tally, metric, label)
    if not total:
        raise Unmeasurable("no example has this label")
    seen = part.observations
    chosen = None if seen is None else _chosen(seen, metric, label)
    share, worth = right / total, part.worth(total, chosen, level=level)
    low, high = wilson_of_share(share, worth, level=level)
    n = part.examples(total, chosen)
    n_scored = part.examples(scored, None if seen is None or chosen is None else chosen & (seen.predicted >= 0))

    def needed(threshold: float) -> int | None:
        trials = trials_needed(share, threshold, level=level) if 0 < threshold < 1 else None
        return None if trials is None else math.ceil(trials * n / worth)

    return Measure(share, low, high, n, n_scored, needed)


def _counts(tally: Tally, metric: Metric, label: str | None) -> tuple[int, int, int]:
    """Right ones, all that count in the worst case, and how many of these are scored."""
    scored, failed = tally.scored.items(), tally.failed.items()
    if metric == "accuracy":
        right = sum(n for (expected, predicted), n in scored if expected == predicted)
        return right, tally.n_scored + tally.n_failed, tally.n_scored
    right = tally.scored.get((label or "", label or ""), 0)
    if metric == "recall":
        known = sum(n for (expected, _), n in scored if expected == label)
        return right, known + sum(n for (expected, _), n in failed if expected == label), known
    known = sum(n for (_, predicted), n in scored if predicted == label)
    if not known:
        raise Unmeasurable("the label was never predicted")
    return right, known + sum(n for (expected, _), n in failed if expected != label), known


def _chosen(seen: Observations, metric: Metric, label: str | None) -> Mask:
    """Which observations a share is over."""
    if metric == "accuracy":
        return np.ones(len(seen.names), dtype=np.bool_)
    code = list(seen.labels).index(label) if label is not None and label in seen.labels else -2
    chosen: Mask = seen.expected == code
    if metric == "precision":
        chosen = (seen.predicted == code) | ((seen.predicted < 0) & ~chosen)
    return chosen
