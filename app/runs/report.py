"""Build reports: a tally read strictly and, where asked for, with the labels collapsed to two."""

from __future__ import annotations

from collections import Counter

from app.runs.metrics import Tally, score
from app.runs.figures import Scores
from app.runs.model import EvalReport
from layers.profile import SystemProfile


def derive_report(tally: Tally, profile: SystemProfile, *, binary: bool) -> EvalReport:
    """Everything that follows from the counts of one run. Labels stand in the profile's order, harmless to severe.

    With `binary` the collapsed reading stands beside the strict one; the profile must have a collapse.
    """
    kinds: Counter[str] = Counter()
    for (_, kind), n in tally.failed.items():
        kinds[kind] += n
    return EvalReport(
        **dict(score(tally, [profile.fold(label) for label in profile.labels])),
        failures_by_kind=dict(sorted(kinds.items())),
        binary=_collapsed(tally, profile) if binary else None,
    )


def _collapsed(tally: Tally, profile: SystemProfile) -> Scores | None:
    rule = profile.binary
    if rule is None:
        return None
    return score(tally.collapsed(profile.collapse), [rule.negative, rule.positive])
