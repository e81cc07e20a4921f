"""What a critic did, from its audit trail alone: the known failure replayed, the known figures, trails that lie."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.critic.audit import read_audit
from app.critic.decide import Facts, Pairs, challenge_rate, decide, effects
from app.critic.figures import CriticReport
from app.critic.model import Adopt, Cluster, CriticRules
from app.critic.replay import replay
from app.critic.rows import AuditError
from layers.model import EvalExample
from tests.critics import (
    EVERYWHERE,
    RESTRAINED,
    Models,
    accept,
    alone,
    challenge,
    example,
    header,
    labels,
    plan,
    trail_of,
    under_critic,
)

pytestmark = pytest.mark.anyio

GAP = "the message says what it is about"
CLUSTER = Cluster(name="fees taken for refunds", axis="category", pointer="/input/kind", value="target")


# --- the known failure ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replay:
    """80 rows with the outcomes of an all-axes critic: it challenged 46 (57 %), fixed 6 of the 7 rows of its target
    cluster, and broke 12 others: 4.15 calls a row.

    `target`: wrong on `category`, with the signal. `breaks_category`, `breaks_domain`: right, and wrong after a bounce.
    `idle`: challenged to no effect. The rest is accepted.
    """

    kinds: tuple[str, ...]

    @classmethod
    def seeded(cls, seed: int) -> Replay:
        kinds = ["target"] * 6 + ["stubborn"] + ["breaks_category"] * 4 + ["breaks_domain"] * 8 + ["idle"] * 27
        kinds += ["quiet"] * (80 - len(kinds))
        random.Random(seed).shuffle(kinds)
        return cls(tuple(kinds))

    def rows(self) -> list[EvalExample]:
        return [
            example(f"e{number}", kind={"stubborn": "target"}.get(kind, kind), real=kind)
            for number, kind in enumerate(self.kinds)
        ]

    def models(self) -> Models:
        return Models(triage=_signals, classify=_first, again=_second, review=_challenges, second=lambda _: accept())


def _signals(case: Any) -> str:
    # One row that the critic breaks on another axis has the signal too: only its axis protects it.
    has = case["kind"] == "target" or case["real"] == "breaks_domain"
    return json.dumps({"signals": {"mentions_fee": has}})


def _first(case: Any) -> str:
    return labels("refund") if case["kind"] == "target" else labels()


def _second(case: Any) -> str:
    wrong = {"stubborn": labels("refund"), "breaks_category": labels("other"), "breaks_domain": labels("fee", "loans")}
    return wrong.get(case["real"], labels())


def _challenges(case: Any) -> str:
    if case["real"] == "quiet":
        return accept()
    return challenge("domain" if case["real"] == "breaks_domain" else "category", gap=GAP)


async def replayed(rules: CriticRules, control: bool = True) -> tuple[CriticReport, bytes]:
    known = Replay.seeded(57)
    made = plan(rules, CLUSTER)
    trail = await trail_of(under_critic(known.models(), rules), header(made, 80), known.rows())
    if not control:
        return replay(trail.splitlines()), trail
    quiet = [example(f"c{number}", kind="quiet", real="quiet") for number in range(40)]
    second = await trail_of(
        under_critic(known.models(), rules), header(made, 40, run_id="c", dataset_id="other"), quiet
    )
    arm = await trail_of(alone(known.models()), header(made, 40, "offline", run_id="b", dataset_id="other"), quiet)
    return replay(trail.splitlines(), control=second.splitlines(), baseline=arm.splitlines()), trail


async def test_the_known_failure_unrestrained_is_declined() -> None:
    report, _ = await replayed(EVERYWHERE)
    assert report.calls_per_row == pytest.approx(4.15)
    assert report.challenges_admitted.rate == pytest.approx(0.575)
    assert report.challenges_admitted.red_flag
    (account,) = report.clusters
    assert (account.n, account.wrong_before, account.corrected.count, account.still_wrong) == (7, 7, 6, 1)
    assert sum(axis.broke.count for axis in report.axes) == 12
    assert sum(axis.broke.count for axis in report.outside_clusters) == 4
    assert report.outcome == "DECLINE"
    assert "domain" in report.reasons[0]


async def test_the_gate_keeps_the_fixes_of_the_known_failure_and_prevents_its_breakage() -> None:
    """The same models, the same 57 % of challenges: axes and a condition on triage's signals make the difference."""
    report, _ = await replayed(RESTRAINED)
    (account,) = report.clusters
    assert (account.corrected.count, account.broke.count, account.still_wrong) == (6, 0, 1)
    assert sum(axis.broke.count for axis in report.axes) == 0
    assert [(axis.axis, axis.accuracy_before, axis.accuracy_after) for axis in report.axes] == [
        ("category", 73 / 80, 79 / 80),
        ("domain", 1.0, 1.0),
    ]
    assert report.challenges_raised.rate == pytest.approx(0.575)
    assert report.challenges_raised.red_flag
    assert report.challenges_admitted.challenges == 7
    assert not report.challenges_admitted.red_flag
    assert report.discarded == {"axis_closed": 8, "condition_not_met": 31}
    assert report.calls_per_row == pytest.approx(3 + 2 * 7 / 80)
    assert (report.outcome, report.axes[0].p_exact) == ("ADOPT", pytest.approx(0.03125))


async def test_without_a_control_nothing_is_adopted() -> None:
    report, _ = await replayed(RESTRAINED, control=False)
    assert report.outcome == "INCONCLUSIVE"
    assert "second dataset" in report.reasons[0]


# --- by rule ----------------------------------------------------------------------------------------------------------


def axes_of(**counts: tuple[int, int]) -> Any:
    named = {}
    for axis, (corrected, broke) in counts.items():
        pairs = named[axis] = Pairs()
        for number in range(100):
            before, after = number >= corrected, number >= corrected + broke or number < corrected
            pairs.add(str(number), before=before, after=after)
    return effects(named, 0.05, named)


def facts(axes: Any, **fields: Any) -> Facts:
    quiet = challenge_rate(10, 100, 0.13, Adopt())
    return Facts(**{"axes": axes, "control": axes_of(category=(0, 0)), "admitted": quiet, "unreviewed": 0.0, **fields})


def test_the_known_figures_decline() -> None:
    """Category 20 corrected, 26 broke: p = 0.46. Domain 8 and 22: p = 0.016, a significant harm."""
    category, domain = axes_of(category=(20, 26), domain=(8, 22))
    assert (category.corrected.count, category.broke.count, round(category.p_exact, 2)) == (20, 26, 0.46)
    assert (domain.corrected.count, domain.broke.count, round(domain.p_exact, 3)) == (8, 22, 0.016)
    outcome, reasons = decide(facts((category, domain)), Adopt())
    assert outcome == "DECLINE"
    assert reasons == ("domain: harm, 8 corrected and 22 broke (McNemar p = 0.016)",)


GOOD = (12, 1)


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        pytest.param(facts(axes_of(category=GOOD)), "ADOPT", id="a benefit"),
        pytest.param(
            facts(axes_of(category=GOOD, domain=(0, 6))), "DECLINE", id="one axis harmed, however good another"
        ),
        pytest.param(
            facts(axes_of(category=GOOD), control=axes_of(category=(0, 6))), "DECLINE", id="the control harmed"
        ),
        pytest.param(facts(axes_of(category=(6, 2))), "INCONCLUSIVE", id="a benefit that may be chance"),
        pytest.param(facts(axes_of(category=(0, 0))), "INCONCLUSIVE", id="nothing happened"),
        pytest.param(facts(axes_of(category=(2, 6))), "INCONCLUSIVE", id="a harm that may be chance"),
        pytest.param(facts(axes_of(category=GOOD), control=None), "INCONCLUSIVE", id="no control"),
        pytest.param(facts(axes_of(category=GOOD), finished=False), "INCONCLUSIVE", id="unfinished"),
        pytest.param(facts(axes_of(category=GOOD), unreviewed=0.06), "INCONCLUSIVE", id="too few reviewed"),
        pytest.param(
            facts(axes_of(category=GOOD), admitted=challenge_rate(27, 100, 0.13, Adopt())),
            "INCONCLUSIVE",
            id="red flag",
        ),
    ],
)
def test_the_outcome_follows_by_rule(given: Facts, outcome: str) -> None:
    assert decide(given, Adopt())[0] == outcome


def test_an_axis_is_better_only_after_adjustment_and_worse_without() -> None:
    assert [axis.effect for axis in axes_of(a=(6, 0), b=(0, 6))] == ["no_difference_shown", "worse"]


def test_the_red_flag_goes_up_above_twice_the_expectation() -> None:
    assert not challenge_rate(26, 100, 0.13, Adopt()).red_flag
    assert challenge_rate(27, 100, 0.13, Adopt()).red_flag
    assert challenge_rate(1, 100, 0.0, Adopt()).red_flag
    assert challenge_rate(0, 0, 0.1, Adopt()).rate is None


@given(st.integers(0, 60), st.integers(0, 39))
def test_a_significant_harm_declines_whatever_else_holds(corrected: int, broke: int) -> None:
    axes = axes_of(category=(corrected, broke), domain=GOOD)
    harmed = axes[0].p_exact < 0.05 and broke > corrected
    assert (decide(facts(axes), Adopt())[0] == "DECLINE") == harmed


# --- the trail --------------------------------------------------------------------------------------------------------


async def mixed() -> tuple[Any, bytes]:
    """A trail in which every end occurs, and a failed row."""
    reviews = {"fix": challenge(), "contest": challenge(), "closed": challenge(rule="no")}
    models = Models(
        classify=lambda case: {"lost": "well", "dead": RuntimeError("x")}.get(case["id"], labels()),
        review=lambda case: reviews.get(case["id"], accept()),
        second=lambda case: accept() if case["id"] == "fix" else challenge(),
    )
    names = ("ok", "fix", "contest", "closed", "lost", "dead")
    made = plan(EVERYWHERE, Cluster(name="named", axis="category", ids=("ok", "fix", "missing")))
    head = header(made, len(names))
    rows = [example(name, "refund" if name == "fix" else "fee") for name in names]
    return head, await trail_of(under_critic(models, EVERYWHERE), head, rows)


async def test_a_trail_tells_every_end_and_every_figure() -> None:
    _, trail = await mixed()
    report = replay(trail.splitlines())
    assert {state.value: count for state, count in report.states.items()} == dict.fromkeys(
        ("accepted", "fixed", "contested", "fail_closed", "salvaged"), 1
    )
    assert (report.n_rows, report.n_failed, report.failures_by_kind) == (6, 1, {"internal": 1})
    assert (report.contested.ids, report.salvaged.ids) == (("contest",), ("lost",))
    assert (report.moved, report.discarded, report.n_reviewed) == ({"category": 1}, {"no_such_rule": 1}, 4)
    category = report.axes[0]
    assert (category.n, category.corrected.ids, category.broke.count) == (5, ("fix",), 0)
    (account,) = report.clusters
    assert (account.n, account.absent, account.corrected.count) == (2, 1, 1)
    assert report.outcome == "INCONCLUSIVE"


async def test_a_trail_replays_to_the_same_report_and_of_retried_rows_the_last_attempt_counts() -> None:
    head, trail = await mixed()
    report = replay(trail.splitlines())
    again = b"".join(
        line.replace(b'"attempt":1', b'"attempt":2') + b"\n"
        for line in trail.splitlines()[1:]
        if b'"example_id":"ok"' in line
    )
    failed = (
        b'{"attempt":1,"clusters":["named"],"event":"row","example_id":"ok","expected":{"category":"fee"},"repeat":0,"seq":0}\n'
        b'{"attempt":1,"event":"failed","example_id":"ok","kind":"timeout","repeat":0,"seq":1}\n'
    )
    first, *rest = trail.splitlines(keepends=True)
    others = b"".join(line for line in rest if b'"example_id":"ok"' not in line)
    assert replay((first + failed + again + others).splitlines()) == report
    assert read_audit(trail.splitlines())[0] == head


def edited(change: Callable[[list[dict[str, Any]]], None]) -> Callable[[bytes], list[bytes]]:
    def apply(trail: bytes) -> list[bytes]:
        events = [json.loads(line) for line in trail.splitlines()]
        change(events)
        return [json.dumps(event).encode() for event in events]

    return apply


def _at(events: list[dict[str, Any]], kind: str, name: str = "fix", nth: int = 0) -> dict[str, Any]:
    return [event for event in events if event["event"] == kind and event["example_id"] == name][nth]


def _of(events: list[dict[str, Any]], name: str = "fix") -> list[dict[str, Any]]:
    return [event for event in events if event.get("example_id") == name]


def _drop(events: list[dict[str, Any]], event: dict[str, Any]) -> None:
    events.remove(event)
    for seq, other in enumerate(_of(events, event["example_id"])):
        other["seq"] = seq


def _second_bounce(events: list[dict[str, Any]]) -> None:
    verdict = _at(events, "verdict")
    at = events.index(verdict)
    more = [dict(_at(events, "bounce")), dict(_at(events, "label", nth=1)), dict(_at(events, "review", nth=1))]
    events[at:at] = more
    for seq, event in enumerate(_of(events)):
        event["seq"] = seq
    verdict["calls"] += 2


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(lambda e: _at(e, "verdict").update(state="accepted"), id="another end"),
        pytest.param(lambda e: _at(e, "verdict").update(calls=3), id="fewer calls"),
        pytest.param(lambda e: _at(e, "verdict")["labels"].update(domain="loans"), id="another axis moved"),
        pytest.param(lambda e: _at(e, "review").update(rule="C99"), id="another rule"),
        pytest.param(lambda e: _at(e, "review").update(admitted=False), id="another ruling"),
        pytest.param(
            lambda e: _at(e, "review", "closed").update(discarded=None, admitted=True), id="a ruling too kind"
        ),
        pytest.param(lambda e: _at(e, "review", nth=1).update(decision="challenge"), id="another second review"),
        pytest.param(lambda e: _at(e, "bounce").update(rule="C2"), id="a bounce about something else"),
        pytest.param(lambda e: _at(e, "label", nth=1)["labels"].update(category="spam"), id="a label never offered"),
        pytest.param(lambda e: _at(e, "label")["labels"].pop("domain"), id="an axis lost"),
        pytest.param(lambda e: _drop(e, _at(e, "bounce")), id="no bounce"),
        pytest.param(lambda e: _drop(e, _at(e, "review", "ok")), id="no review"),
        pytest.param(lambda e: _drop(e, _at(e, "verdict")), id="no verdict"),
        pytest.param(_second_bounce, id="a second bounce"),
        pytest.param(lambda e: e.remove(_at(e, "review", "ok")), id="a line lost"),
        pytest.param(lambda e: e.extend(_of(e)), id="a row twice"),
        pytest.param(lambda e: _at(e, "row").update(extra=1), id="an unknown field"),
        pytest.param(lambda e: e[0].update(pipeline="offline"), id="no critic"),
        pytest.param(lambda e: e[0]["plan"]["critic"].update(axes=["domain"]), id="another restraint"),
        pytest.param(lambda e: e[0]["plan"].update(rules=["D1"]), id="another rubric"),
        pytest.param(lambda e: e.pop(0), id="no header"),
    ],
)
async def test_a_trail_that_does_not_follow_from_itself_is_refused(lie) -> None:
    _, trail = await mixed()
    with pytest.raises(AuditError):
        replay(edited(lie)(trail))


@pytest.mark.parametrize("lines", [[], [b"\n"], [b"{"], [b"[]"], [b"\xff"], [b"x" * 1_000_001]])
def test_what_is_no_trail_is_refused(lines: list[bytes]) -> None:
    with pytest.raises(AuditError):
        replay(lines)


# --- control ----------------------------------------------------------------------------------------------------------


async def test_the_control_is_measured_against_the_fresh_arm_and_not_against_itself() -> None:
    """The critic's own first answers were right; a fresh arm was not, and that is what counts."""
    made = plan(EVERYWHERE)
    rows = [example(f"e{number}", domain=None) for number in range(3)]
    main = await trail_of(under_critic(Models(), EVERYWHERE), header(made, 3), rows)
    second = await trail_of(under_critic(Models(), EVERYWHERE), header(made, 3, run_id="c", dataset_id="o"), rows)
    other = Models(classify=lambda case: labels("other"))
    arm = await trail_of(alone(other), header(made, 2, "offline", run_id="b", dataset_id="o"), rows[:2])
    with pytest.raises(AuditError, match="same examples"):
        replay(main.splitlines(), control=second.splitlines(), baseline=arm.splitlines())
    arm = await trail_of(alone(other), header(made, 3, "offline", run_id="b", dataset_id="o"), rows[:2])
    report = replay(main.splitlines(), control=second.splitlines(), baseline=arm.splitlines())
    assert report.control is not None
    assert (report.control.n_paired, report.control.unpaired) == (2, 1)
    assert report.control.axes[0].corrected.count == 2


@pytest.mark.parametrize(
    ("control", "arm", "said"),
    [
        pytest.param({"dataset_id": "d"}, {"dataset_id": "d"}, "second dataset", id="the same dataset"),
        pytest.param({}, {"dataset_id": "else"}, "same examples", id="two datasets"),
        pytest.param({}, {"created_at": "2025-12-31T00:00:00.000000Z"}, "not fresh", id="an old arm"),
        pytest.param({}, {"plan": plan(EVERYWHERE)}, "same classifier", id="another critic"),
        pytest.param({"pipeline": "offline"}, {}, "with the critic", id="no critic in the control"),
    ],
)
async def test_runs_that_can_show_nothing_are_no_control(control, arm, said: str) -> None:
    def lines(**fields: Any) -> list[bytes]:
        made = (
            header(plan(), 0, fields.pop("pipeline", "critic"), **{"dataset_id": "o", **fields})
            if ("plan" not in fields)
            else header(fields.pop("plan"), 0, fields.pop("pipeline"), **{"dataset_id": "o", **fields})
        )
        return [made.model_dump_json().encode()]

    with pytest.raises(AuditError, match=said):
        replay(lines(dataset_id="d"), control=lines(**control), baseline=lines(**{"pipeline": "offline", **arm}))
