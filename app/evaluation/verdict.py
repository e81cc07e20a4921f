"""The verdict: a decision table over what the layers said. No model sets a disposition or a score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from app.evaluation.findings import finding_of
from app.evaluation.plan import Plan, Trigger
from layers.model import (
    ConsistencyResult,
    DisagreementResult,
    Disposition,
    EvalPrediction,
    HeuristicResult,
    InstrumentPath,
    JudgeVerdict,
    LayerName,
    NarrativeGroundingResult,
    Outcome,
    Rung,
    is_degraded,
)
from layers.pointers import gives_no_reason, is_false
from layers.profile import SystemProfile

UNGROUNDED_SUSPICION = 0.6
"""What a narrative that cites what its references do not hold weighs, beside the heuristics' severities."""


class Judge(StrEnum):
    """What the judge's verdict amounts to, once its pointers were checked."""

    SILENT = "silent"  # not asked, failed, or only the heuristics answered
    CONFIRMS = "confirms"
    OVERTURNS = "overturns"  # another label, a neighbouring one
    OVERTURNS_FAR = "overturns_far"  # another label, across the elevated line or two steps away
    UNGROUNDED = "ungrounded"  # its pointers did not verify: it can neither confirm nor overturn
    CONTRADICTED = "contradicted"  # code found one of its claims to be false
    CIRCULAR = "circular"  # it rests on nothing but what is under review


class Panel(StrEnum):
    """What the providers, asked again, amount to."""

    SILENT = "silent"  # not asked, or too few answered to tell
    CONFIRMS = "confirms"
    CONTRADICTS = "contradicts"  # they agree with each other on another label
    SPLIT = "split"  # they do not agree with each other


class Neighbors(StrEnum):
    """What earlier verdicts on near items amount to."""

    SILENT = "silent"  # none near enough, a tie, or not asked
    CONSISTENT = "consistent"
    INCONSISTENT = "inconsistent"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: the readings it holds for, and what then is said."""

    name: str
    trigger: frozenset[Trigger]
    judge: frozenset[Judge]
    panel: frozenset[Panel]
    neighbors: frozenset[Neighbors]
    disposition: Disposition

    def matches(self, trigger: Trigger, judge: Judge, panel: Panel, neighbors: Neighbors) -> bool:
        """Whether this row speaks about this combination."""
        return trigger in self.trigger and judge in self.judge and panel in self.panel and neighbors in self.neighbors


_LOOKED = frozenset({Trigger.SOFT, Trigger.HARD, Trigger.DRAWN})
_FLAGGED = frozenset({Trigger.SOFT, Trigger.HARD})
_CLEARABLE = frozenset({Trigger.SOFT, Trigger.DRAWN})
_ANY_JUDGE, _ANY_PANEL, _ANY_NEIGHBORS = frozenset(Judge), frozenset(Panel), frozenset(Neighbors)
_UNITED = _ANY_PANEL - {Panel.SPLIT}
_NOT_AGAINST = frozenset({Panel.SILENT, Panel.CONFIRMS})
_QUIET = frozenset({Neighbors.SILENT, Neighbors.CONSISTENT})


def _row(
    name: str,
    disposition: Disposition,
    trigger: frozenset[Trigger] | Trigger,
    judge: frozenset[Judge] | Judge,
    panel: frozenset[Panel] | Panel,
    neighbors: frozenset[Neighbors] | Neighbors = _ANY_NEIGHBORS,
) -> Row:
    return Row(
        name,
        frozenset({trigger}) if isinstance(trigger, Trigger) else trigger,
        frozenset({judge}) if isinstance(judge, Judge) else judge,
        frozenset({panel}) if isinstance(panel, Panel) else panel,
        frozenset({neighbors}) if isinstance(neighbors, Neighbors) else neighbors,
        disposition,
    )


_P, _F, _R, _I = Disposition.PASS, Disposition.FLAG, Disposition.REVIEW, Disposition.INCONCLUSIVE
_SILENT, _CONFIRMS = Judge.SILENT, Judge.CONFIRMS

TABLE: tuple[Row, ...] = (
    _row("nothing_flagged", _P, Trigger.NONE, _ANY_JUDGE, _ANY_PANEL),
    _row("could_not_look", _I, Trigger.BLIND, _ANY_JUDGE, _ANY_PANEL),
    _row("question_refused", _R, Trigger.REFUSED, _ANY_JUDGE, _ANY_PANEL),
    # Instruments that contradict each other, or themselves, are for a person.
    _row("panel_split", _R, _LOOKED, _ANY_JUDGE, Panel.SPLIT),
    _row("judge_ungrounded", _R, _LOOKED, Judge.UNGROUNDED, _UNITED),
    _row("judge_contradicted", _R, _LOOKED, Judge.CONTRADICTED, _UNITED),
    _row("judge_circular", _R, _LOOKED, Judge.CIRCULAR, _UNITED),
    _row("judge_overturns_far", _R, _LOOKED, Judge.OVERTURNS_FAR, _UNITED),
    _row("judge_against_panel", _R, _LOOKED, _CONFIRMS, Panel.CONTRADICTS),
    _row("panel_against_judge", _R, _LOOKED, Judge.OVERTURNS, Panel.CONFIRMS),
    _row("judge_against_neighbors", _R, _LOOKED, _CONFIRMS, _NOT_AGAINST, Neighbors.INCONSISTENT),
    # A grounded judge decides where nobody contradicts it.
    _row("judge_overturns", _F, _LOOKED, Judge.OVERTURNS, frozenset({Panel.SILENT, Panel.CONTRADICTS})),
    _row("judge_confirms", _P, _CLEARABLE, _CONFIRMS, _NOT_AGAINST, _QUIET),
    _row("defect_stands", _F, Trigger.HARD, _CONFIRMS, _NOT_AGAINST, _QUIET),
    # Without a judge, two independent second opinions clear a doubt; one does not.
    _row("panel_contradicts", _F, _LOOKED, _SILENT, Panel.CONTRADICTS),
    _row("neighbors_contradict", _F, _LOOKED, _SILENT, _NOT_AGAINST, Neighbors.INCONSISTENT),
    _row("panel_and_neighbors_confirm", _P, _CLEARABLE, _SILENT, Panel.CONFIRMS, Neighbors.CONSISTENT),
    _row("defect_stands_unjudged", _F, Trigger.HARD, _SILENT, Panel.CONFIRMS, Neighbors.CONSISTENT),
    _row("only_panel_confirms", _F, _FLAGGED, _SILENT, Panel.CONFIRMS, Neighbors.SILENT),
    _row("only_neighbors_confirm", _F, _FLAGGED, _SILENT, Panel.SILENT, Neighbors.CONSISTENT),
    _row("no_second_opinion", _F, _FLAGGED, _SILENT, Panel.SILENT, Neighbors.SILENT),
    _row("sample_panel_confirms", _P, Trigger.DRAWN, _SILENT, Panel.CONFIRMS, Neighbors.SILENT),
    _row("sample_neighbors_confirm", _P, Trigger.DRAWN, _SILENT, Panel.SILENT, Neighbors.CONSISTENT),
    _row("sample_not_looked_at", _I, Trigger.DRAWN, _SILENT, Panel.SILENT, Neighbors.SILENT),
)
"""Every combination of readings stands in exactly one row; `docs/verdict.md` shows the same table with reasons."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the record says. `suspicion_score` is None when the heuristics could not look and nothing else flagged."""

    disposition: Disposition
    decision: str
    degraded: bool
    suspicion_score: float | None
    assurance: Rung | None
    instrument_path: InstrumentPath | None


def decide(
    prediction: EvalPrediction, profile: SystemProfile, outcomes: Mapping[LayerName, Outcome], plan: Plan
) -> Verdict:
    """Combine what the layers said, by the table alone."""
    judge = finding_of(outcomes, LayerName.JUDGE, JudgeVerdict)
    row = look_up(
        plan.trigger,
        read_judge(judge, prediction.label, profile),
        read_panel(finding_of(outcomes, LayerName.DISAGREEMENT, DisagreementResult), prediction.label, profile),
        read_neighbors(finding_of(outcomes, LayerName.CONSISTENCY, ConsistencyResult)),
    )
    return Verdict(
        disposition=row.disposition,
        decision=row.name,
        degraded=is_incomplete(outcomes),
        suspicion_score=_suspicion(outcomes),
        assurance=None if judge is None else judge.assurance,
        instrument_path=None if judge is None else judge.source,
    )


def look_up(trigger: Trigger, judge: Judge, panel: Panel, neighbors: Neighbors) -> Row:
    """The one row that speaks about this combination."""
    return next(row for row in TABLE if row.matches(trigger, judge, panel, neighbors))


def is_incomplete(outcomes: Mapping[LayerName, Outcome]) -> bool:
    """Whether a layer that should have spoken did not; a judge chain that fell back to the heuristics did not."""
    return fell_back(outcomes) or any(is_degraded(outcome) for outcome in outcomes.values())


def fell_back(outcomes: Mapping[LayerName, Outcome]) -> bool:
    """Whether the judge layer ended, and no judge answered."""
    judge = finding_of(outcomes, LayerName.JUDGE, JudgeVerdict)
    return judge is not None and judge.source is InstrumentPath.HEURISTICS_FALLBACK


def read_judge(verdict: JudgeVerdict | None, label: str, profile: SystemProfile) -> Judge:
    """What the judge's verdict on `label` amounts to."""
    if verdict is None or verdict.verdict_label is None or verdict.assurance is None:
        return Judge.SILENT
    if verdict.assurance is Rung.UNGROUNDED:
        return Judge.UNGROUNDED
    if any(map(is_false, verdict.claims)):
        return Judge.CONTRADICTED
    if all(map(gives_no_reason, verdict.claims)):
        return Judge.CIRCULAR
    if profile.fold(verdict.verdict_label) == profile.fold(label):
        return Judge.CONFIRMS
    return Judge.OVERTURNS_FAR if is_far(verdict.verdict_label, label, profile) else Judge.OVERTURNS


def read_panel(result: DisagreementResult | None, label: str, profile: SystemProfile) -> Panel:
    """What the providers' labels amount to; two that differ are a split even where a third one failed."""
    if result is None:
        return Panel.SILENT
    said = {profile.fold(other) for other in result.labels_by_provider.values()}
    if len(said) > 1:
        return Panel.SPLIT
    if result.agreed is not True or not said:
        return Panel.SILENT
    return Panel.CONFIRMS if said == {profile.fold(label)} else Panel.CONTRADICTS


def read_neighbors(result: ConsistencyResult | None) -> Neighbors:
    """What the neighbours' labels amount to."""
    if result is None or result.consistent is None:
        return Neighbors.SILENT
    return Neighbors.CONSISTENT if result.consistent else Neighbors.INCONSISTENT


def is_far(one: str, other: str, profile: SystemProfile) -> bool:
    """Whether two labels lie on both sides of the elevated line, or two steps or more apart in the profile's order.

    Labels outside the order have no distance; for a profile without one, every difference is near.
    """
    elevated = {profile.fold(label) for label in profile.elevated}
    one, other = profile.fold(one), profile.fold(other)
    if (one in elevated) != (other in elevated):
        return True
    order = [profile.fold(label) for label in profile.labels]
    return one in order and other in order and abs(order.index(one) - order.index(other)) >= 2


def _suspicion(outcomes: Mapping[LayerName, Outcome]) -> float | None:
    heuristics = finding_of(outcomes, LayerName.HEURISTICS, HeuristicResult)
    grounding = finding_of(outcomes, LayerName.NARRATIVE_GROUNDING, NarrativeGroundingResult)
    scores = [] if heuristics is None else [heuristics.suspicion_score]
    if grounding is not None and grounding.ng_flagged:
        scores.append(UNGROUNDED_SUSPICION)
    return max(scores, default=None)
