"""The parts of a run beside the whole: how each did, and whether it stands out from the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import fisher_exact

from app.runs.analysis import Counts, PathParts, ValueKey
from app.runs.figures import Interval, LabelIntervals, LabelMetrics, Slice, SliceFigures, SliceValue
from app.runs.metrics import score
from app.runs.statistics.multiple import holm
from app.runs.statistics.proportion import wilson_of_share
from app.runs.tally import Tally
from layers.profile import SystemProfile

MAX_VALUES = 50
"""Values of one path that a report shows, the most frequent first."""

FLAG_ALPHA = 0.05
"""Below this adjusted p-value a part is said to stand out."""


@dataclass(frozen=True)
class Whole:
    """The run that parts are compared with. `design_effect` > 1 where examples come in groups."""

    tally: Tally
    profile: SystemProfile
    binary: bool
    design_effect: float = 1.0


def derive_slices(paths: Sequence[PathParts[Counts]], whole: Whole) -> tuple[Slice, ...]:
    """One slice a path. p-values are adjusted over all parts of all paths together, each reading of the labels apart.

    With a design effect counts are divided by it first, and so are the sizes behind intervals (Rao and Scott,
    Biometrics 48 (1992) 577-585): grouped examples must not make a chance difference look real.
    """
    shown = [path.most_frequent(_size, MAX_VALUES) for path in paths]
    parts = [counts.tally() for values in shown for _, counts in values]
    profile = whole.profile
    strict = _figures(parts, whole.tally, whole.design_effect, [profile.fold(label) for label in profile.labels])
    binary: list[SliceFigures | None] = [None] * len(parts)
    if whole.binary and (rule := profile.binary):
        collapsed = [part.collapsed(profile.collapse) for part in parts]
        order = [rule.negative, rule.positive]
        binary = list(_figures(collapsed, whole.tally.collapsed(profile.collapse), whole.design_effect, order))
    figures = iter(zip(parts, strict, binary, strict=True))
    return tuple(
        Slice(
            path=path.path,
            values=tuple(_value(key, *next(figures)) for key, _ in values),
            n_omitted=len(path.values) - len(values),
            n_without=path.n_without,
            reason=path.reason,
        )
        for path, values in zip(paths, shown, strict=True)
    )


def correct_of(tally: Tally) -> int:
    """How many predictions are the expected label."""
    return sum(n for (expected, scored), n in tally.scored.items() if expected == scored)


def _size(counts: Counts) -> int:
    return counts.n


def _value(key: ValueKey, tally: Tally, strict: SliceFigures, binary: SliceFigures | None) -> SliceValue:
    return SliceValue(
        **dict(strict),
        value=key[1],
        support=tally.n_total,
        n_scored=tally.n_scored,
        n_failed=tally.n_failed,
        binary=binary,
    )


def _figures(parts: Sequence[Tally], whole: Tally, effect: float, order: Sequence[str]) -> list[SliceFigures]:
    all_correct, all_scored = correct_of(whole), whole.n_scored
    p_values = [_p_value(correct_of(part), part.n_scored, all_correct, all_scored, effect) for part in parts]
    known = [p for p in p_values if p is not None]
    adjusted = iter(holm(known))
    overall = all_correct / all_scored if all_scored else 0.0
    return [
        _one(part, (p, None if p is None else next(adjusted)), overall, effect, order)
        for part, p in zip(parts, p_values, strict=True)
    ]


def _one(
    part: Tally, p_values: tuple[float | None, float | None], overall: float, effect: float, order: Sequence[str]
) -> SliceFigures:
    p, adjusted = p_values
    correct, n = correct_of(part), part.n_scored
    ends = wilson_of_share(correct / n, n / effect) if n else None
    flagged = adjusted is not None and adjusted < FLAG_ALPHA
    per_label = score(part, order).per_label
    return SliceFigures(
        correct=correct,
        accuracy=correct / n if n else None,
        interval=Interval(low=ends[0], high=ends[1]) if ends else None,
        accuracy_worst=correct / part.n_total if part.n_total else None,
        p_value=p,
        p_adjusted=adjusted,
        flag=("worse" if correct / n < overall else "better") if flagged else None,
        per_label=per_label,
        label_intervals=tuple(_intervals(row, effect) for row in per_label),
    )


def _intervals(row: LabelMetrics, effect: float) -> LabelIntervals:
    def interval(share: float | None, n: int) -> Interval | None:
        if share is None:
            return None
        low, high = wilson_of_share(share, n / effect)
        return Interval(low=low, high=high)

    return LabelIntervals(
        label=row.label, precision=interval(row.precision, row.n_predicted), recall=interval(row.recall, row.support)
    )


def _p_value(correct: int, n: int, all_correct: int, all_n: int, effect: float) -> float | None:
    """Fisher's exact test of a part against the rest; None when one of them is empty."""
    if n in {0, all_n}:
        return None
    rest_correct, rest = all_correct - correct, all_n - n
    table = [[correct, n - correct], [rest_correct, rest - rest_correct]]
    shrunk = [[round(cell / effect) for cell in row] for row in table]
    return float(fisher_exact(shrunk).pvalue)
