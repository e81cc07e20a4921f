"""Telemetry of runs: figures of the harness, progress, and the trace that all work on a run shares."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runs.model import Record, RecordError, RunOptions, RunStatus
from app.runs.observe import UnderWay
from app.runs.store import RunConfig, StoredRun
from app.runs.tally import Tally
from app.telemetry.decisions import DecisionTelemetry
from app.telemetry.place import trace_id_now
from app.telemetry.runs import harness_figures
from layers.ports import Pipeline, System
from tests.critics import PROFILE as TICKETS
from tests.critics import Models, alone, challenge, example, record_of, under_critic
from tests.telemetry.kit import PROFILE, Kit

TALLY = Tally(10, {("high", "high"): 3, ("high", "low"): 1, ("low", "low"): 4, ("low", "odd"): 1}, {})


@pytest.fixture
def kit() -> Iterator[Kit]:
    made = Kit()
    yield made
    made.telemetry.shutdown()


def run(status: RunStatus, system: str = "sentinel-l7") -> StoredRun:
    config = RunConfig(
        system=system,
        options=RunOptions(),
        labels={},
        concurrency=1,
        max_failed_share=0.5,
        unreachable_limit=5,
        profile=PROFILE,
        code_version="t",
    )
    return StoredRun(
        no=1,
        run_id=str(uuid.uuid4()),
        name=None,
        system=system,
        status=status,
        failure=None,
        dataset_no=1,
        dataset_id="sha256:0",
        n_total=10,
        attempts=1,
        generation=0,
        executor=None,
        config=config,
        created_at="",
        started_at=None,
        finished_at=None,
    )


def record(error: str | None = None) -> Record:
    return Record(
        example_id="1",
        status="failed" if error else "scored",
        expected_label="high",
        error=RecordError(kind=error, message="m") if error else None,
        elapsed_ms=1,
    )


def test_a_run_that_succeeded_shows_its_figures(kit: Kit) -> None:
    kit.runs.ended(run(RunStatus.SUCCEEDED), TALLY)
    shown = {
        (point.attributes["metric"], point.attributes["label"]): point.value
        for point in kit.points("arbiter_l8.harness.metric")
    }
    assert shown["accuracy", "overall"] == pytest.approx(7 / 9)
    assert shown["precision", "high"] == 1.0
    assert shown["recall", "high"] == pytest.approx(3 / 4)
    assert shown["f1", "low"] == pytest.approx(8 / 10)
    assert kit.counts("arbiter_l8.runs") == {("succeeded", "sentinel-l7"): 1}


@pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.CANCELLED])
def test_a_run_that_did_not_succeed_leaves_the_last_figures_alone(kit: Kit, status: RunStatus) -> None:
    kit.runs.ended(run(status), TALLY)
    assert kit.points("arbiter_l8.harness.metric") == []
    assert kit.counts("arbiter_l8.runs") == {(status.value, "sentinel-l7"): 1}


def test_labels_outside_the_profile_are_counted_together() -> None:
    tally = Tally(4, {("a", "a"): 1, ("a", "b"): 1, ("b", "b"): 1, ("high", "high"): 1}, {})
    figures = {(metric, label): value for metric, label, value in harness_figures(tally, {"high", "low"})}
    assert {label for _, label in figures} == {"overall", "high", "other"}
    assert figures["precision", "other"] == pytest.approx(2 / 3)
    assert figures["recall", "other"] == pytest.approx(2 / 3)


@given(
    st.dictionaries(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), st.integers(1, 50), max_size=9),
    st.sets(st.sampled_from("abc")),
)
def test_a_figure_lies_in_0_to_1_and_an_undefined_one_is_left_out(scored: dict, labels: set[str]) -> None:
    figures = harness_figures(Tally(sum(scored.values()), scored, {}), labels)
    assert all(0 <= value <= 1 for _, _, value in figures)
    assert len({(metric, label) for metric, label, _ in figures}) == len(figures)
    if not scored:
        assert figures == []


def test_examples_are_counted_as_they_are_recorded(kit: Kit) -> None:
    kit.runs.recorded("sentinel-l7", record())
    kit.runs.recorded("sentinel-l7", record("timeout"))
    kit.runs.recorded("made-up", record("made-up"))
    assert kit.counts("arbiter_l8.run.examples") == {
        ("scored", "sentinel-l7"): 1,
        ("failed", "sentinel-l7"): 1,
        ("failed", "other"): 1,
    }
    assert kit.counts("arbiter_l8.run.errors") == {("timeout", "sentinel-l7"): 1, ("other", "other"): 1}


def test_progress_is_that_of_the_runs_under_way_and_nothing_without_any(kit: Kit) -> None:
    under_way: list[UnderWay] = []
    kit.runs.follow(lambda: under_way)
    assert kit.points("arbiter_l8.run.progress") == []
    under_way += [UnderWay("sentinel-l7", 100, 30, None), UnderWay("sentinel-l7", 100, 10, 2.0)]
    assert kit.counts("arbiter_l8.run.progress") == {("sentinel-l7",): 0.2}
    assert kit.counts("arbiter_l8.run.remaining") == {("sentinel-l7",): 160}
    assert kit.counts("arbiter_l8.run.active") == {("sentinel-l7",): 2}


def test_all_work_on_a_run_belongs_to_the_trace_that_its_id_names(kit: Kit) -> None:
    run_id = str(uuid.uuid4())
    for _ in range(2):
        with kit.runs.step(run_id):
            assert trace_id_now() == run_id.replace("-", "")


def test_binding_verdicts_are_counted_and_there_are_two(kit: Kit) -> None:
    decisions = DecisionTelemetry(kit.metrics, {"sentinel-l7"})
    for verdict in ("accept", "block", "block", "maybe"):
        decisions.verdict(verdict)
    assert kit.counts("arbiter_l8.verdicts") == {("accept",): 1, ("block",): 2, ("other",): 1}


# --- rows under a critic ----------------------------------------------------------------------------------------------


@pytest.fixture
def tickets() -> Iterator[Kit]:
    pipeline = Pipeline(lambda _: under_critic(Models()), {})
    made = Kit(systems={"tickets": System(TICKETS, pipelines={"critic": pipeline}), "recorded": System(TICKETS)})
    yield made
    made.telemetry.shutdown()


@pytest.mark.anyio
async def test_rows_under_a_critic_are_counted_by_how_they_ended_and_what_they_took(tickets: Kit) -> None:
    """A row that is accepted takes three questions, one with a bounce five; the gate's ruling counts once a row."""
    accepted, fixed = Models(), Models(review=lambda _: challenge())
    contested = Models(review=lambda _: challenge(), second=lambda _: challenge())
    discarded = Models(review=lambda _: challenge(rule="C9"))
    for models in (accepted, fixed, contested, discarded):
        tickets.runs.recorded("tickets", await record_of(under_critic(models), example()))
    rows = {state: n for (_, state, _), n in tickets.counts("arbiter_l8.critic.rows").items()}
    assert rows == {"accepted": 1, "fixed": 1, "contested": 1, "fail_closed": 1}
    bounces = {state: n for (_, state, _), n in tickets.counts("arbiter_l8.critic.bounces").items()}
    assert bounces == {"fixed": 1, "contested": 1}
    reviews = {ruling: n for (_, ruling, _), n in tickets.counts("arbiter_l8.critic.reviews").items()}
    assert reviews == {"accepted": 1, "admitted": 2, "no_such_rule": 1}
    calls = {role: n for (_, role, _), n in tickets.counts("arbiter_l8.critic.calls").items()}
    assert calls == {"triage": 4, "classifier": 6, "critic": 6}
    asked = sum(len(models.asked) for models in (accepted, fixed, contested, discarded))
    assert sum(calls.values()) == asked


@pytest.mark.anyio
async def test_only_a_critics_own_rows_are_counted_and_no_text_of_theirs_becomes_a_label(tickets: Kit) -> None:
    """The arm without a critic, a failed row, and recorded predictions that look like a critic's count for nothing."""
    row = await record_of(under_critic(Models()), example())
    assert row.prediction is not None
    tickets.runs.recorded("recorded", row)
    tickets.runs.recorded("tickets", await record_of(alone(Models()), example()))
    tickets.runs.recorded("tickets", record("timeout"))
    assert tickets.counts("arbiter_l8.critic.rows") == {}
    for value in ("new\n", ["x"], 7):
        metadata, audit = (
            {"state": value, "instrument_path": value},
            {"audit": [value, {"event": value}, {"event": "review"}]},
        )
        odd = row.prediction.model_copy(update={"metadata": metadata, "raw_output": audit})
        tickets.runs.recorded("tickets", row.model_copy(update={"prediction": odd}))
    assert tickets.counts("arbiter_l8.critic.rows") == {("other", "other", "tickets"): 3}


def test_the_series_of_a_classifier_exist_from_the_start(tickets: Kit) -> None:
    """So that the first bounce is a rise, and no birth of a series."""
    data = tickets.reader.get_metrics_data()
    assert data is not None
    names = {m.name: m for resource in data.resource_metrics for scope in resource.scope_metrics for m in scope.metrics}
    for name in ("rows", "bounces", "reviews", "calls"):
        points = names[f"arbiter_l8.critic.{name}"].data.data_points
        assert {point.attributes["system"] for point in points} == {"tickets"}
        assert {point.attributes["instrument"] for point in points} >= {"ollama", "gemini_flash"}
