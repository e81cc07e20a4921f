"""Telemetry: clean values, kept traces, bounded ends."""

import json
import logging
import math
import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.settings import TelemetrySettings
from app.telemetry.evaluations import EvaluationTelemetry
from app.telemetry.logs import JsonFormatter
from app.telemetry.metrics import Metrics, bounded
from app.telemetry.setup import Telemetry, _Seldom
from app.telemetry.traces import Root, current, parse_traceparent, propagate, rooted
from app.telemetry.values import MAX_TEXT, attributes, clean
from layers.model import (
    Cause,
    Failed,
    Flag,
    HeuristicResult,
    InstrumentPath,
    JudgeAttempt,
    JudgeVerdict,
    LayerName,
    Scored,
)

NOW = 1_700_000_000_000_000_000


class Kit:
    """A telemetry whose spans and metrics can be read."""

    def __init__(self, **settings: object) -> None:
        self.spans = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.telemetry = Telemetry(TelemetrySettings(**settings), span_exporter=self.spans, metric_reader=self.reader)
        self.metrics = Metrics(self.telemetry.meter)
        self.observer = EvaluationTelemetry(self.telemetry, self.metrics, {"sentinel-l7"})

    def finished(self):
        self.telemetry.tracer_provider.force_flush()
        return {span.name: span for span in self.spans.get_finished_spans()}

    def points(self, name: str) -> list:
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def kit() -> Iterator[Kit]:
    made = Kit(trace_ratio=0.0)
    yield made
    made.telemetry.shutdown()


def heuristics(*, flagged: bool) -> Scored:
    flags = (Flag(rule="low_confidence", reason="low", severity=0.5, pointer="/confidence"),) if flagged else ()
    return Scored(finding=HeuristicResult(flagged=flagged, flags=flags), elapsed_ms=0.2, version="1")


def judged() -> Scored:
    attempts = (
        JudgeAttempt(source=InstrumentPath.OLLAMA, outcome="failed", error_type="timeout", elapsed_ms=20.0),
        JudgeAttempt(
            source=InstrumentPath.GEMINI_FLASH, outcome="answered", elapsed_ms=5.0, input_tokens=90, output_tokens=7
        ),
    )
    verdict = JudgeVerdict(
        source=InstrumentPath.GEMINI_FLASH,
        verdict_label="high",
        agrees=True,
        confidence=0.9,
        reasoning="",
        attempts=attempts,
    )
    return Scored(finding=verdict, elapsed_ms=25.0, version="1")


def escalated(kit: Kit) -> None:
    watch = kit.observer.begin("sentinel-l7", "txn-1")
    watch.layer(LayerName.HEURISTICS, heuristics(flagged=True), NOW, NOW + 200_000)
    watch.layer(LayerName.JUDGE, judged(), NOW, NOW + 25_000_000)
    watch.end(evaluation_id="e", disposition="flag", escalated=True, degraded=False)


def test_a_bad_value_costs_that_value_and_not_the_batch() -> None:
    kept = attributes({"a": None, "b": math.nan, "c": "\ud800x", "d": "y" * 1_000_000, "e": 2**70, "f": math.inf})
    assert set(kept) == {"c", "d", "e"}
    assert len(str(kept["d"])) < MAX_TEXT + 20
    assert json.dumps(kept).encode("utf-8")


@given(
    st.one_of(st.none(), st.floats(), st.integers(), st.text(), st.lists(st.text()), st.binary(), st.complex_numbers())
)
def test_whatever_is_cleaned_can_be_encoded(value: object) -> None:
    cleaned = clean(value)
    assert json.dumps(cleaned, allow_nan=False).encode("utf-8")


def test_an_escalated_evaluation_leaves_its_whole_trace(kit: Kit) -> None:
    escalated(kit)
    spans = kit.finished()
    item, judge = spans["evaluate_item"], spans["judge_call"]
    assert item.parent is None
    assert spans["heuristics_check"].parent.span_id == item.context.span_id
    assert judge.parent.span_id == item.context.span_id
    assert spans["ollama_attempt"].parent.span_id == judge.context.span_id
    assert spans["ollama_attempt"].attributes["error.type"] == "timeout"
    assert spans["flash_attempt"].attributes["gen_ai.usage.input_tokens"] == 90
    assert spans["flash_attempt"].start_time == spans["ollama_attempt"].end_time
    assert item.attributes["flags"] == ("heuristics:low_confidence",)
    assert item.attributes["instrument_path"] == "gemini_flash"
    assert item.attributes["arbiter.sampling.ratio"] == 1.0


def test_a_cheap_evaluation_outside_the_ratio_leaves_metrics_and_no_span(kit: Kit) -> None:
    watch = kit.observer.begin("sentinel-l7", "txn-1")
    watch.layer(LayerName.HEURISTICS, heuristics(flagged=False), NOW, NOW)
    watch.end(evaluation_id="e", disposition="pass", escalated=False, degraded=False)
    assert not kit.finished()
    assert [point.value for point in kit.points("arbiter_l8.evaluations")] == [1]
    assert kit.points("arbiter_l8.layer.latency")[0].attributes == {"layer": "heuristics_check"}


def test_a_ratio_of_one_keeps_all_and_says_so_on_the_span() -> None:
    kit = Kit(trace_ratio=1.0)
    watch = kit.observer.begin("sentinel-l7", "txn-1")
    watch.end(evaluation_id="e", disposition="pass", escalated=False, degraded=False)
    assert kit.finished()["evaluate_item"].attributes["arbiter.sampling.ratio"] == 1.0


def test_a_failed_layer_names_its_cause_where_a_table_can_show_it(kit: Kit) -> None:
    watch = kit.observer.begin("sentinel-l7", "txn-1")
    failed = Failed(
        cause=Cause(kind="timeout", message="no answer", dependency="ollama.judge"), elapsed_ms=1, version="1"
    )
    watch.layer(LayerName.JUDGE, failed, NOW, NOW + 5)
    watch.end(evaluation_id="e", disposition="flag", escalated=True, degraded=True)
    values = kit.finished()["judge_call"].attributes
    assert (values["error.type"], values["exception.message"]) == ("timeout", "no answer")
    assert kit.points("arbiter_l8.degraded")[0].attributes == {"layer": "judge", "cause": "timeout"}


def test_the_judge_counter_keeps_its_name_and_attribute(kit: Kit) -> None:
    escalated(kit)
    assert kit.points("arbiter_l8.judge.outcome")[0].attributes == {"source": "gemini_flash"}


def test_a_system_nobody_configured_becomes_other_and_no_time_series_of_its_own(kit: Kit) -> None:
    watch = kit.observer.begin("made-up-by-a-caller", "x")
    watch.end(evaluation_id="e", disposition="pass", escalated=False, degraded=False)
    assert kit.points("arbiter_l8.evaluations")[0].attributes["system"] == "other"
    assert bounded(None, {"a"}) == "other"


def test_a_remote_is_told_the_span_that_is_created_afterwards(kit: Kit) -> None:
    headers: dict[str, str] = {}
    watch = kit.observer.begin("sentinel-l7", "txn-1")
    propagate(headers)
    watch.end(evaluation_id="e", disposition="flag", escalated=True, degraded=False)
    context = kit.finished()["evaluate_item"].context
    assert headers["traceparent"] == f"00-{context.trace_id:032x}-{context.span_id:016x}-01"


def test_outside_an_evaluation_no_trace_is_passed_on() -> None:
    headers: dict[str, str] = {}
    propagate(headers)
    assert headers == {}


def test_within_a_request_the_evaluation_waits_for_the_requests_own_span(kit: Kit) -> None:
    with rooted(Root()) as root:
        escalated(kit)
        assert current.get() is root
    assert root.worth_keeping
    assert [step.name for step in root.steps] == ["evaluate_item"]
    assert not kit.finished()


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "garbage",
        "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "0" * 16 + "-01",
        "ff-" + "1" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "1" * 16 + "-01-more",
    ],
)
def test_a_broken_traceparent_is_no_parent(header: str | None) -> None:
    assert parse_traceparent(header) is None


def test_a_good_traceparent_is_read_whatever_its_version_adds() -> None:
    parsed = parse_traceparent("01-" + "1" * 32 + "-" + "2" * 16 + "-01-future")
    assert parsed is not None
    assert parsed.trace_flags.sampled


def test_shutdown_is_bounded_when_the_collector_swallows_everything() -> None:
    with socket.socket() as black_hole:
        black_hole.bind(("127.0.0.1", 0))
        black_hole.listen()
        endpoint = f"http://127.0.0.1:{black_hole.getsockname()[1]}"
        telemetry = Telemetry(TelemetrySettings(endpoint=endpoint, shutdown_timeout=0.5))
        telemetry.tracer.start_span("one").end()
        began = time.monotonic()
        telemetry.shutdown()
        assert time.monotonic() - began < 3


def test_a_flood_of_exporter_complaints_becomes_one_warning_in_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    handler = _Seldom(clock=lambda: now)
    record = logging.makeLogRecord({"msg": "export failed", "levelno": logging.ERROR, "levelname": "ERROR"})
    with caplog.at_level(logging.WARNING, "arbiter.telemetry"):
        for _ in range(500):
            handler.emit(record)
        assert len(caplog.records) == 1
        now = 601.0
        handler.emit(record)
    assert len(caplog.records) == 2
    assert "499 more" in caplog.records[1].getMessage()


def test_a_log_line_is_one_json_object_whatever_stands_in_it() -> None:
    record = logging.makeLogRecord(
        {"msg": "bad \ud800 \n text", "levelname": "WARNING", "name": "x", "system": {"odd": object()}}
    )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line.encode("utf-8"))["level"] == "warning"
