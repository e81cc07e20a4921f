"""Build reports: a tally read strictly and, where asked for, with the labels collapsed to two."""

from __future__ import annotations

from collections import Counter

from app.runs.analysis import Breakdown, reliability_sums
from app.runs.figures import Calibration, Reliability, ReliabilityBin, Scores, Undefined
from app.runs.intervals import with_resampled
from app.runs.metrics import score, wilson
from app.runs.model import EvalReport
from app.runs.slices import Whole, derive_slices
from app.runs.statistics.calibration import BinSums, brier_score, expected_calibration_error, reliability
from app.runs.tally import Tally
from layers.profile import SystemProfile

NOT_A_CERTAINTY = "the system's confidence does not say how sure it is of its label"
NO_CONFIDENCES = "no scored example has a confidence that was looked at"


def derive_report(
    tally: Tally, profile: SystemProfile, *, binary: bool, breakdown: Breakdown | None = None
) -> EvalReport:
    """Everything that follows from the records of one run. Labels stand in the profile's order, harmless to severe.

    With `binary` the collapsed reading stands beside the strict one; the profile must have a collapse. Calibration
    and slices need a `breakdown`, and so do intervals that respect groups.
    """
    binary = binary and profile.binary is not None
    kinds: Counter[str] = Counter()
    for (_, kind), n in tally.failed.items():
        kinds[kind] += n
    seen = breakdown.observations if breakdown else None
    order = [profile.fold(label) for label in profile.labels]
    strict = with_resampled(score(tally, order), tally, order, seen)
    calibration, gaps = _calibration(breakdown, profile, binary=binary)
    clustered = strict.intervals.accuracy_clustered
    whole = Whole(tally, profile, binary, max(1.0, clustered.design_effect) if clustered else 1.0)
    repeats = breakdown.repeats if breakdown else None
    return EvalReport(
        **{**dict(strict), "undefined": (*strict.undefined, *gaps)},
        failures_by_kind=dict(sorted(kinds.items())),
        binary=_collapsed(tally, profile, breakdown) if binary else None,
        slices=derive_slices(breakdown.slices, whole) if breakdown else (),
        calibration=calibration,
        repeats=repeats if binary or repeats is None else repeats.model_copy(update={"binary": None}),
    )


def _collapsed(tally: Tally, profile: SystemProfile, breakdown: Breakdown | None) -> Scores | None:
    rule = profile.binary
    if rule is None:
        return None
    order = [rule.negative, rule.positive]
    collapsed = tally.collapsed(profile.collapse)
    seen = breakdown.observations if breakdown else None
    return with_resampled(score(collapsed, order), collapsed, order, seen.collapsed(profile.collapse) if seen else None)


def _calibration(
    breakdown: Breakdown | None, profile: SystemProfile, *, binary: bool
) -> tuple[Calibration | None, tuple[Undefined, ...]]:
    if profile.confidence_means != "certainty":
        return None, (Undefined(metric="calibration", reason=NOT_A_CERTAINTY),)
    if breakdown is None or not breakdown.confidences:
        return None, (Undefined(metric="calibration", reason=NO_CONFIDENCES),)
    groups = breakdown.confidences
    strict = _reliability(reliability_sums(groups, profile, binary=False))
    collapsed = _reliability(reliability_sums(groups, profile, binary=True)) if binary else None
    return Calibration(**dict(strict), binary=collapsed), ()


def _reliability(sums: tuple[BinSums, ...]) -> Reliability:
    bins = zip(reliability(sums), sums, strict=True)
    return Reliability(
        n=sum(one.n for one in sums),
        brier_score=brier_score(sums),
        expected_calibration_error=expected_calibration_error(sums),
        bins=tuple(
            ReliabilityBin(
                low=one.low,
                high=one.high,
                n=one.n,
                confidence=one.confidence,
                accuracy=one.accuracy,
                interval=wilson(added.correct, added.n),
            )
            for one, added in bins
        ),
    )
