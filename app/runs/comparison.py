"""Is the difference between two runs real, how large is it, and where does it come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from scipy.special import stdtr, stdtrit

from app.runs.contrasts import (
    AxisContrast,
    Comparison,
    Contrast,
    GroupedDifference,
    LabelContrast,
    Paired,
    Sequential,
    Side,
    SliceContrast,
    Unscored,
    ValueContrast,
    Verdict,
    WorstCase,
)
from app.runs.figures import Interval
from app.runs.pairing import Outcomes, Pairing
from app.runs.slices import MAX_VALUES
from app.runs.statistics.clusters import sum_by_cluster, variance_of_mean
from app.runs.statistics.multiple import holm
from app.runs.statistics.paired import (
    PairedCounts,
    mcnemar,
    minimum_detectable_difference,
    paired_difference,
)
from app.runs.statistics.sequential import EProcess

C = TypeVar("C", bound=Contrast)
ALPHA = 0.05

MAX_LABELS = 50
"""Labels that a comparison shows, the most frequent first."""


def compare(
    pairing: Pairing, candidate: Side, baseline: Side, *, alpha: float = ALPHA, peak: float = 0.0
) -> Comparison:
    """Everything that follows from the pairs. `alpha` in 0..1 is the share of false alarms that is put up with.

    `peak` is the largest logarithm of the e-value that somebody who watches these runs has seen before.
    """
    labels = sorted(pairing.labels.items(), key=lambda item: (-item[1].size, item[0]))
    strict = contrast(pairing.strict, alpha, grouped=grouped_difference(pairing, alpha))
    return Comparison(
        run_id=candidate.run_id,
        baseline_run_id=baseline.run_id,
        alpha=alpha,
        candidate=candidate,
        baseline=baseline,
        pairs=_pairs(pairing, strict),
        strict=strict,
        binary=contrast(pairing.binary, alpha) if pairing.binary else None,
        per_label=_family(LabelContrast, "label", labels[:MAX_LABELS], alpha),
        n_labels_omitted=max(0, len(labels) - MAX_LABELS),
        slices=_slices(pairing, alpha),
        axes=_family(AxisContrast, "axis", sorted(pairing.axes.items()), alpha),
        sequential=sequential(strict.corrected, strict.broke, alpha, peak),
    )


def contrast(outcomes: Outcomes, alpha: float, *, grouped: GroupedDifference | None = None) -> Contrast:
    """One comparison of paired outcomes. With groups, a difference is real when both tests say so."""
    grid, counts = outcomes.grid, counts_of(outcomes)
    values: dict[str, Any] = {
        "n": counts.n,
        "both_right": counts.both_right,
        "corrected": counts.corrected,
        "broke": counts.broke,
        "both_wrong": counts.both_wrong,
        "unscored": Unscored(
            baseline=grid[None, True] + grid[None, False],
            candidate=grid[True, None] + grid[False, None],
            both=grid[None, None],
        ),
        "worst_case": _worst_case(outcomes, alpha),
        "grouped": grouped,
        "p_adjusted": None,
    }
    return Contrast(**values, **_figures(counts, alpha, grouped))


def counts_of(outcomes: Outcomes) -> PairedCounts:
    """The pairs that both runs scored."""
    grid = outcomes.grid
    return PairedCounts(grid[True, True], grid[False, True], grid[True, False], grid[False, False])


def _figures(counts: PairedCounts, alpha: float, grouped: GroupedDifference | None) -> dict[str, Any]:
    if counts.n == 0:
        names = ("accuracy", "baseline_accuracy", "difference", "interval", "p_exact", "p_mid", "minimum_detectable")
        return {**dict.fromkeys(names), "real": False, "verdict": "nothing_to_compare"}
    difference, low, high = paired_difference(counts, level=1 - alpha)
    test = mcnemar(counts.corrected, counts.broke)
    real = max(test.exact, grouped.p_value if grouped else 0.0) < alpha
    return {
        "accuracy": (counts.both_right + counts.corrected) / counts.n,
        "baseline_accuracy": (counts.both_right + counts.broke) / counts.n,
        "difference": difference,
        "interval": Interval(low=low, high=high),
        "p_exact": test.exact,
        "p_mid": test.mid,
        "real": real,
        "verdict": _verdict(real=real, difference=difference),
        "minimum_detectable": minimum_detectable_difference(counts.n, counts.discordant / counts.n, alpha=alpha),
    }


def _verdict(*, real: bool, difference: float) -> Verdict:
    if not real:
        return "no_difference_shown"
    return "better" if difference > 0 else "worse"


def _worst_case(outcomes: Outcomes, alpha: float) -> WorstCase | None:
    worst: Mapping[tuple[bool, bool], int] = {
        (before, after): sum(
            n
            for (one, other), n in outcomes.grid.items()
            if (one, other) != (None, None) and (one is not False) == before and bool(other) == after
        )
        for before in (True, False)
        for after in (True, False)
    }
    counts = PairedCounts(worst[True, True], worst[False, True], worst[True, False], worst[False, False])
    if counts.n == 0:
        return None
    difference, low, high = paired_difference(counts, level=1 - alpha)
    return WorstCase(
        n=counts.n,
        corrected=counts.corrected,
        broke=counts.broke,
        difference=difference,
        interval=Interval(low=low, high=high),
    )


def grouped_difference(pairing: Pairing, alpha: float) -> GroupedDifference | None:
    """The mean change per pair, drawn by groups (Cochran's ratio estimator), with Student's t over the groups."""
    if not pairing.grouped:
        return None
    changes = np.frombuffer(pairing.changes, dtype=np.int8).astype(np.float64)
    sums = sum_by_cluster(np.frombuffer(pairing.names, dtype=np.int64), changes)
    groups, variance = len(sums.n), variance_of_mean(sums)
    single = paired_difference(counts_of(pairing.strict), level=1 - alpha)
    if variance is None:
        return GroupedDifference(n_groups=groups, interval=Interval(low=-1.0, high=1.0), p_value=1.0)
    difference, error = float(changes.mean()), float(np.sqrt(variance))
    reach = float(stdtrit(groups - 1, 1 - alpha / 2)) * error
    interval = Interval(
        low=max(-1.0, min(single[1], difference - reach)), high=min(1.0, max(single[2], difference + reach))
    )
    p_value = 2 * float(stdtr(groups - 1, -abs(difference) / error)) if error > 0 else float(difference == 0)
    return GroupedDifference(n_groups=groups, interval=interval, p_value=p_value)


def _family(shape: type[C], name: str, parts: Sequence[tuple[Any, Outcomes]], alpha: float) -> tuple[C, ...]:
    """One contrast a part, p-values adjusted among them."""
    made = [contrast(outcomes, alpha) for _, outcomes in parts]
    adjusted = iter(_adjusted(made))
    return tuple(
        shape(**{**dict(_judged(one, next(adjusted), alpha)), name: key})
        for (key, _), one in zip(parts, made, strict=True)
    )


def _adjusted(contrasts: Sequence[Contrast]) -> list[float | None]:
    known = iter(holm([one.p_exact for one in contrasts if one.p_exact is not None]))
    return [None if one.p_exact is None else next(known) for one in contrasts]


def _judged(one: Contrast, adjusted: float | None, alpha: float) -> Contrast:
    if adjusted is None:
        return one
    real = adjusted < alpha
    verdict = _verdict(real=real, difference=one.difference or 0.0)
    return one.model_copy(update={"p_adjusted": adjusted, "real": real, "verdict": verdict})


def _slices(pairing: Pairing, alpha: float) -> tuple[SliceContrast, ...]:
    shown = [path.most_frequent(lambda part: part.size, MAX_VALUES) for path in pairing.slices]
    flat = [(key[1], outcomes) for values in shown for key, outcomes in values]
    made = iter(_family(ValueContrast, "value", flat, alpha))
    return tuple(
        SliceContrast(
            path=path.path,
            values=tuple(next(made) for _ in values),
            n_omitted=len(path.values) - len(values),
            n_without=path.n_without,
            reason=path.reason,
        )
        for path, values in zip(pairing.slices, shown, strict=True)
    )


def _pairs(pairing: Pairing, strict: Contrast) -> Paired:
    return Paired(
        n_paired=pairing.n_paired,
        n_compared=strict.n,
        n_pending=pairing.n_pending,
        missing=pairing.missing.listed(),
        added=pairing.added.listed(),
        relabelled=pairing.relabelled.listed(),
        duplicates=pairing.duplicates.listed(),
        corrected=pairing.corrected.listed(),
        broke=pairing.broke.listed(),
    )


def sequential(corrected: int, broke: int, alpha: float, peak: float) -> Sequential:
    """The e-process on the pairs that changed, as they are now."""
    process = EProcess(peak=max(0.0, peak)).add(corrected=corrected, broke=broke)
    decided = process.decided(alpha)
    return Sequential(
        corrected=corrected,
        broke=broke,
        e_value_log=process.log_e,
        peak_log=process.peak,
        p_value=process.p_value,
        decided=decided,
        direction=("better" if corrected > broke else "worse") if decided and corrected != broke else None,
    )
