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
