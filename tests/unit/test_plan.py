"""Which items are looked at closer, and why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.evaluation.plan import TIERS, Trigger, is_drawn, make_plan, refuse
from layers.model import (
    Cause,
    Failed,
    Flag,
    HeuristicResult,
    LayerName,
    NarrativeGroundingResult,
    Outcome,
    Scored,
    Skipped,
    SkipReason,
)

H, G = LayerName.HEURISTICS, LayerName.NARRATIVE_GROUNDING


def heuristics(*flags: Flag) -> Outcome:
    score = max((flag.severity for flag in flags), default=0.0)
    finding = HeuristicResult(flagged=bool(flags), flags=flags, suspicion_score=score)
    return Scored(finding=finding, elapsed_ms=0, version="1")


def flag(rule: str = "low_confidence", severity: float = 0.5, pointer: str = "/confidence") -> Flag:
    return Flag(rule=rule, reason="because", severity=severity, pointer=pointer)


def grounding(flagged: bool = False) -> Outcome:
    return Scored(finding=NarrativeGroundingResult(ng_flagged=flagged, stage=2), elapsed_ms=0, version="1")


FAILED = Failed(cause=Cause(kind="timeout", message="late"), elapsed_ms=1, version="1")


def skipped(reason: SkipReason) -> Outcome:
    return Skipped(reason=reason, version="1")


@pytest.mark.parametrize(
    ("outcomes", "trigger", "reasons"),
    [
        pytest.param({H: heuristics(), G: grounding()}, Trigger.NONE, (), id="nothing flagged"),
        pytest.param(
            {H: heuristics(), G: skipped(SkipReason.NO_NARRATIVE)}, Trigger.NONE, (), id="nothing to ground is no loss"
        ),
        pytest.param({H: heuristics(), G: FAILED}, Trigger.BLIND, (), id="grounding failed"),
        pytest.param({H: FAILED, G: grounding()}, Trigger.BLIND, (), id="heuristics failed"),
        pytest.param(
            {H: heuristics(), G: skipped(SkipReason.CIRCUIT_OPEN)}, Trigger.BLIND, (), id="grounding's circuit is open"
        ),
        pytest.param({H: heuristics(flag()), G: grounding()}, Trigger.SOFT, ("heuristics:low_confidence",), id="doubt"),
        pytest.param(
            {H: heuristics(flag(severity=0.99)), G: grounding()},
            Trigger.SOFT,
            ("heuristics:low_confidence",),
            id="doubt about certainty is never a defect",
        ),
        pytest.param(
            {H: heuristics(flag("contradiction", 0.9, "/raw_output/status")), G: grounding()},
            Trigger.HARD,
            ("heuristics:contradiction",),
            id="a defect of the payload",
        ),
        pytest.param(
            {H: heuristics(flag("no_narrative", 0.5, "/raw_output/narrative")), G: grounding()},
            Trigger.SOFT,
            ("heuristics:no_narrative",),
            id="a lighter finding on the payload",
        ),
        pytest.param(
            {H: heuristics(), G: grounding(True)}, Trigger.HARD, ("narrative_grounding:ungrounded",), id="ungrounded"
        ),
        pytest.param(
            {H: FAILED, G: grounding(True)}, Trigger.HARD, ("narrative_grounding:ungrounded",), id="one eye is enough"
        ),
        pytest.param(
            {H: heuristics(flag(), flag("saturated")), G: FAILED},
            Trigger.SOFT,
            ("heuristics:low_confidence", "heuristics:saturated"),
            id="flagged although grounding failed",
        ),
    ],
)
def test_tier_zero_decides(outcomes: dict[LayerName, Outcome], trigger: Trigger, reasons: tuple[str, ...]) -> None:
    """Either layer's flag escalates; a failure alone never does, and is not taken for a clean bill."""
    plan = make_plan(outcomes, audit_rate=0.02)
    assert (plan.trigger, plan.reasons) == (trigger, reasons)
    assert plan.escalate == bool(reasons)
    assert plan.inclusion_probability == (1.0 if reasons else 0.02)


def test_an_item_of_the_sample_is_escalated_with_its_chance() -> None:
    """Without a flag the reason is the sample, and the record carries the rate at which it was drawn."""
    plan = make_plan({H: heuristics(), G: grounding()}, audit_rate=0.1, audit=True)
    assert (plan.trigger, plan.escalate, plan.reasons) == (Trigger.DRAWN, True, ("audit_sample",))
    assert plan.inclusion_probability == 0.1


def test_an_item_of_the_sample_that_is_flagged_now_keeps_its_chance() -> None:
    """It came in through the sample, whatever was found later."""
    plan = make_plan({H: heuristics(flag()), G: grounding()}, audit_rate=0.1, audit=True)
    assert plan.trigger is Trigger.SOFT
    assert plan.reasons == ("heuristics:low_confidence", "audit_sample")
    assert plan.inclusion_probability == 0.1


def test_a_question_that_preflight_refused_asks_nobody_and_says_why() -> None:
    """What flagged it stays on record; items like it are never fully looked at."""
    plan = refuse(make_plan({H: heuristics(flag()), G: grounding()}, audit_rate=0.1), ["false_premise"])
    assert not plan.escalate
    assert plan.reasons == ("heuristics:low_confidence", "preflight:false_premise")
    assert (plan.trigger, plan.inclusion_probability) == (Trigger.REFUSED, 0.0)


def test_every_layer_stands_in_one_tier() -> None:
    """No layer is forgotten, none runs twice."""
    assert [name for tier in TIERS for name in tier] == list(LayerName)


@given(st.text(max_size=30), st.text(max_size=30), st.floats(0, 1), st.floats(0, 1))
def test_a_higher_rate_only_adds_items(system: str, prediction_id: str, one: float, other: float) -> None:
    """The draw depends on key, system and id alone; who is in at a low rate is in at every higher one."""
    low, high = sorted((one, other))
    drawn = [is_drawn(system, prediction_id, key=b"k", rate=rate) for rate in (low, high)]
    assert drawn != [True, False]
    assert drawn[0] == is_drawn(system, prediction_id, key=b"k", rate=low)


def test_the_sample_has_about_the_size_that_was_asked_for() -> None:
    """Rate 0 draws none, rate 1 all, and between them the share is the rate; another key draws others."""
    ids = [f"txn-{n}" for n in range(20_000)]
    drawn = {name for name in ids if is_drawn("s", name, key=b"k", rate=0.02)}
    assert 320 < len(drawn) < 480
    assert not any(is_drawn("s", name, key=b"k", rate=0.0) for name in ids)
    assert all(is_drawn("s", name, key=b"k", rate=1.0) for name in ids)
    assert drawn != {name for name in ids if is_drawn("s", name, key=b"another", rate=0.02)}


def test_the_border_between_system_and_id_counts() -> None:
    """The system `a` with id `bc` and the system `ab` with id `c` are drawn independently."""
    draws = [
        is_drawn(f"{n}a", "bc", key=b"k", rate=0.5) == is_drawn(f"{n}ab", "c", key=b"k", rate=0.5) for n in range(200)
    ]
    assert not all(draws)
