"""What a critic did to a classifier's labels: the words of its report."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from layers.critic import State
from layers.model import Value

Outcome = Literal["ADOPT", "DECLINE", "INCONCLUSIVE"]
Effect = Literal["better", "worse", "no_difference_shown"]


class Listed(Value):
    """How many rows there are of a kind, and the ids of the first few."""

    count: int = 0
    ids: tuple[str, ...] = ()


class AxisEffect(Value):
    """Labels on one axis before and after, over the `n` rows that have a right label and were classified.

    `corrected`: wrong before, right after; `broke`: the reverse. Accuracies are in 0..1, null without rows. `p_exact`
    is McNemar's exact two-sided test, `p_adjusted` Holm's among the axes open to challenge: a benefit must hold after
    adjustment, a harm counts without. `effect` says what was shown at the plan's alpha.
    """

    axis: str
    n: int
    corrected: Listed
    broke: Listed
    accuracy_before: float | None
    accuracy_after: float | None
    p_exact: float
    p_adjusted: float
    effect: Effect


class ChallengeRate(Value):
    """Challenges by rows. `rate` is null without rows; the flag is up above `red_flag_above` of the rows."""

    challenges: int
    rows: int
    rate: float | None
    expected: float
    red_flag_above: float
    red_flag: bool


class ClusterAccount(Value):
    """What became of a named set of rows on its axis. `absent`: listed ids that the run has not."""

    name: str
    axis: str
    n: int
    n_failed: int
    wrong_before: int
    corrected: Listed
    broke: Listed
    still_wrong: int
    accuracy_before: float | None
    accuracy_after: float | None
    states: dict[State, int]
    absent: int = 0


class Control(Value):
    """Do no harm: a second dataset, under the critic against a fresh arm of the classifier alone.

    `unpaired` rows were classified in one of the two arms only.
    """

    run_id: str
    baseline_run_id: str
    dataset_id: str
    n_paired: int
    unpaired: int
    axes: tuple[AxisEffect, ...]


class CriticReport(Value):
    """A run under a critic. Every figure is derived from the audit trail, and can be derived from it again.

    `challenges_raised` counts what the critic said, `challenges_admitted` what the gate let through; the latter moves
    labels and costs calls. Rates are of reviewed rows. `triage_void` counts rows without a note of signals, by reason.
    `calls_per_row` is of classified rows, null without any.
    """

    schema_version: Literal[1] = 1
    run_id: str
    dataset_id: str
    system: str
    plan_sha256: str
    n_total: int
    n_rows: int
    n_failed: int
    failures_by_kind: dict[str, int]
    states: dict[State, int]
    contested: Listed
    salvaged: Listed
    n_reviewed: int
    triage_void: dict[str, int]
    discarded: dict[str, int]
    moved: dict[str, int]
    challenges_raised: ChallengeRate
    challenges_admitted: ChallengeRate
    challenges_by_axis: dict[str, int]
    calls: int
    calls_per_row: float | None
    axes: tuple[AxisEffect, ...]
    clusters: tuple[ClusterAccount, ...]
    outside_clusters: tuple[AxisEffect, ...] = Field(description="The same by axis, over rows in none of its clusters")
    control: Control | None
    outcome: Outcome
    reasons: tuple[str, ...]
