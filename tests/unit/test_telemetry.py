"""Telemetry of evaluations: what is kept, what it says, and what never leaves."""

from __future__ import annotations

import logging
import math
import random
import socket
import time
from collections.abc import Iterator

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.trace import SpanKind

from app.evaluation.observe import Ending
from app.settings import TelemetrySettings
from app.telemetry.labels import bounded
from app.telemetry.place import Place, SpanRef, current, placed
from app.telemetry.setup import Telemetry, _Seldom
from app.telemetry.traces import parse_traceparent, propagate, written
from app.telemetry.values import attributes
from layers.model import (
    Cause,
    DisagreementResult,
    Disposition,
    Failed,
    InstrumentPath,
    LayerName,
    ProviderError,
    Scored,
    Skipped,
    SkipReason,
)
from tests.telemetry.kit import (
    NARRATIVE,
    Kit,
    call,
    cheap,
    ended,
    escalated,
    failed,
    item,
    judged,
)


@pytest.fixture
def kit() -> Iterator[Kit]:
    made = Kit(trace_ratio=0.0)
    yield made
    made.telemetry.shutdown()


# --- spans ------------------------------------------------------------------------------------------------------------


def test_an_escalated_evaluation_leaves_its_whole_trace(kit: Kit) -> None:
    escalated(kit)
    spans = kit.by_name()
    top, judge = spans["evaluate_item"], spans["judge_call"]
    assert top.parent is None
    assert spans["heuristics_check"].parent.span_id == top.context.span_id
    assert judge.parent.span_id == top.context.span_id
    assert spans["ollama_attempt"].parent.span_id == judge.context.span_id
    assert spans["flash_attempt"].parent.span_id == judge.context.span_id
    wanted = {
        "prediction_id": "txn-1",
        "system": "sentinel-l7",
        "disposition": "flag",
        "degraded": False,
        "escalated": True,
        "instrument_path": "gemini_flash",
        "flags": ("heuristics:low_confidence",),
        "audit_sample": False,
        "arbiter.sampling.ratio": 1.0,
    }
    assert wanted.items() <= dict(top.attributes).items()


def test_a_call_to_a_model_is_named_by_the_genai_conventions(kit: Kit) -> None:
    escalated(kit)
    span = kit.by_name()["flash_attempt"]
    wanted = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gemini-2.0-flash",
        "gen_ai.usage.input_tokens": 90,
        "gen_ai.usage.output_tokens": 7,
    }
    assert wanted.items() <= dict(span.attributes).items()
    assert span.kind is SpanKind.CLIENT
    assert kit.by_name()["ollama_attempt"].attributes["gen_ai.request.model"] == "qwen3.5:9b-q4_K_M"


def test_a_failed_attempt_names_its_cause_where_a_table_can_show_it(kit: Kit) -> None:
    escalated(kit)
    values = kit.by_name()["ollama_attempt"].attributes
    assert (values["error.type"], values["exception.type"]) == ("timeout", "DependencyUnavailable")
    assert values["exception.message"] == "no answer to *** in time"


def test_every_verdict_is_one_evaluation_event(kit: Kit) -> None:
    escalated(kit)
    (event,) = [event for span in kit.finished() for event in span.events]
    assert event.name == "gen_ai.evaluation.result"
    assert dict(event.attributes) == {
        "gen_ai.evaluation.name": "arbiter_l8.verdict",
        "gen_ai.evaluation.score.value": 0.7,
        "gen_ai.evaluation.score.label": "flag",
        "gen_ai.evaluation.explanation": "flagged_and_confirmed: heuristics:low_confidence",
    }


def test_a_verdict_without_a_judge_says_so_in_its_event(kit: Kit) -> None:
    escalated(kit, judged(InstrumentPath.HEURISTICS_FALLBACK), degraded=True)
    spans = kit.by_name()
    assert spans["evaluate_item"].events[0].attributes["error.type"] == "heuristics_fallback"
    assert spans["judge_call"].attributes["error.type"] == "heuristics_fallback"
    assert spans["heuristics_fallback"].parent.span_id == spans["judge_call"].context.span_id


def test_a_judge_out_of_time_leaves_the_attempts_that_were_made(kit: Kit) -> None:
    escalated(kit, failed(), degraded=True)
    spans = kit.by_name()
    assert {"ollama_attempt", "flash_attempt"} <= set(spans)
    assert (spans["judge_call"].attributes["error.type"], spans["judge_call"].attributes["dependency"]) == (
        "timeout",
        "ollama.judge",
    )


def test_nothing_of_what_was_judged_leaves_by_default(kit: Kit) -> None:
    escalated(kit)
    said = repr([(dict(span.attributes), [dict(e.attributes) for e in span.events]) for span in kit.finished()])
    for text in ("bob@", "Paid by", "12345678901", "hunter2", "abcdef123456"):
        assert text not in said


def test_what_was_judged_leaves_redacted_where_that_is_switched_on() -> None:
    kit = Kit(content=True)
    escalated(kit)
    values = kit.by_name()["evaluate_item"].attributes
    assert values["arbiter.narrative"] == "Paid by *** from account ***, token=***"
    assert '"risk_level": "high"' in values["arbiter.raw_output"]
    said = repr([(dict(span.attributes), [dict(e.attributes) for e in span.events]) for span in kit.finished()])
    assert "The customer *** is known." in said
    for text in ("bob@", "12345678901", "hunter2", "abcdef123456"):
        assert text in NARRATIVE + "abcdef123456"
        assert text not in said


def test_a_bad_value_costs_that_value_and_the_batch_is_sent(kit: Kit) -> None:
    for bad in ("\ud800", "x" * 1_000_000, "\x00", "fine"):
        kit.observer.begin(item(prediction_id=bad)).end(ended({}, disposition=Disposition.PASS))
    kit.telemetry.tracer.start_span("own", attributes=attributes({"nan": math.nan, "none": None, "big": 2**80})).end()
    encoded = encode_spans(kit.finished())
    assert len(encoded.resource_spans[0].scope_spans[0].spans) == 5
    assert 3_000 < len(encoded.SerializeToString()) < 20_000


# --- sampling ---------------------------------------------------------------------------------------------------------


def test_a_cheap_evaluation_outside_the_ratio_leaves_metrics_and_no_span(kit: Kit) -> None:
    cheap(kit)
    assert not kit.finished()
    assert kit.counts("arbiter_l8.evaluations") == {("pass", "sentinel-l7"): 1}
    assert kit.points("arbiter_l8.layer.latency")[0].attributes == {"layer": "heuristics_check"}


def test_counts_can_be_had_back_from_a_sample_of_spans() -> None:
    """Each kept span weighs 1 / ratio: cheap ones are a sample, escalated ones are all there."""
    random.seed(7)
    kit = Kit(trace_ratio=0.25)
    for _ in range(800):
        cheap(kit)
    for _ in range(50):
        escalated(kit)
    ratios = [span.attributes["arbiter.sampling.ratio"] for span in kit.finished() if span.name == "evaluate_item"]
    assert ratios.count(1.0) == 50
    assert sum(1 / ratio for ratio in ratios) == pytest.approx(850, rel=0.1)


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(Ending(), id="given up"),
        pytest.param(ended({}, reasons=("audit_sample",), disposition=Disposition.PASS), id="audit sample"),
        pytest.param(ended({LayerName.NARRATIVE_GROUNDING: failed()}, degraded=True, reasons=()), id="failed"),
    ],
)
def test_what_matters_is_always_kept(kit: Kit, ending: Ending) -> None:
    kit.observer.begin(item()).end(ending)
    assert kit.by_name()["evaluate_item"].attributes["arbiter.sampling.ratio"] == 1.0


def test_a_slow_evaluation_is_kept() -> None:
    kit = Kit(trace_ratio=0.0, slow_ms=1e-6)
    cheap(kit)
    assert "evaluate_item" in kit.by_name()


def test_what_a_caller_keeps_is_kept_and_weighs_one(kit: Kit) -> None:
    with placed(Place(SpanRef(7, 8, sampled=True))):
        cheap(kit)
    span = kit.by_name()["evaluate_item"]
    assert (span.context.trace_id, span.attributes["arbiter.sampling.ratio"]) == (7, 1.0)


# --- traces and their neighbours --------------------------------------------------------------------------------------


def test_a_remote_is_told_the_span_that_is_created_afterwards(kit: Kit) -> None:
    headers: dict[str, str] = {}
    watch = kit.observer.begin(item())
    propagate(headers)
    watch.end(ended({}))
    context = kit.by_name()["evaluate_item"].context
    assert headers["traceparent"] == f"00-{context.trace_id:032x}-{context.span_id:016x}-01"


def test_outside_any_work_no_trace_is_passed_on() -> None:
    headers: dict[str, str] = {}
    propagate(headers)
    assert headers == {}


def test_within_a_request_the_evaluation_hangs_beneath_the_requests_span(kit: Kit) -> None:
    with placed(Place()) as request:
        escalated(kit)
        assert current.get() is request
    assert request.kept
    span = kit.by_name()["evaluate_item"]
    assert (span.context.trace_id, span.parent.span_id) == (request.trace_id, request.span_id)


def test_each_evaluation_of_a_batch_is_a_trace_of_its_own_that_links_to_the_request(kit: Kit) -> None:
    with placed(Place(splits=True)) as request:
        escalated(kit)
        escalated(kit)
    tops = [span for span in kit.finished() if span.name == "evaluate_item"]
    assert len({span.context.trace_id for span in tops} | {request.trace_id}) == 3
    assert {span.links[0].context.span_id for span in tops} == {request.span_id}
    assert request.kept


def test_accepted_work_is_a_trace_of_its_own(kit: Kit) -> None:
    with kit.observer.job("w-1"):
        escalated(kit)
        job = current.get()
    assert job is not None
    assert kit.by_name()["evaluate_item"].context.trace_id == job.trace_id
    assert not kit.by_name()["accepted_work"].links


@pytest.mark.parametrize("sampled", [True, False])
def test_accepted_work_links_to_its_callers_span_and_is_kept_where_the_caller_keeps(sampled: bool) -> None:
    """Nothing is odd about it and no chance is left to luck: only the caller's flag decides."""
    kit, asked = Kit(trace_ratio=0.0), SpanRef(5, 7, sampled)
    with kit.observer.job("w-1", written(asked)):
        cheap(kit)
    spans = kit.by_name()
    assert set(spans) == ({"accepted_work", "evaluate_item", "heuristics_check"} if sampled else set())
    if sampled:
        (link,) = spans["accepted_work"].links
        assert (link.context.trace_id, link.context.span_id, link.context.is_remote) == (5, 7, True)
        assert spans["evaluate_item"].context.trace_id == spans["accepted_work"].context.trace_id != 5
    kit.telemetry.shutdown()


@pytest.mark.parametrize("caller", ["", "nonsense", "00-" + "0" * 32 + "-" + "1" * 16 + "-01"])
def test_accepted_work_of_a_caller_that_can_not_be_read_links_to_nobody(kit: Kit, caller: str) -> None:
    with kit.observer.job("w-1", caller):
        escalated(kit)
    assert not kit.by_name()["accepted_work"].links


def test_the_caller_is_found_through_whatever_lies_between(kit: Kit) -> None:
    """Through the request, the evaluation, and work that was itself accepted; a batch keeps nothing for its caller."""
    assert kit.observer.caller() is None
    asked = SpanRef(5, 7)
    with placed(Place(asked)) as request, placed(request.beneath()):
        assert kit.observer.caller() == written(asked)
    with placed(Place(asked, splits=True)) as batch, placed(batch.beneath()):
        assert kit.observer.caller() == written(SpanRef(5, 7, sampled=False))
    with kit.observer.job("w-1", written(asked)):
        assert kit.observer.caller() == written(asked)
    with placed(Place()):
        assert kit.observer.caller() is None


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
    assert parse_traceparent("01-" + "1" * 32 + "-" + "2" * 16 + "-01-future") == SpanRef(
        int("1" * 32, 16), int("2" * 16, 16), sampled=True
    )


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_an_escalated_evaluation_is_counted_in_every_respect(kit: Kit) -> None:
    escalated(kit)
    assert kit.counts("arbiter_l8.judge.outcome") == {("gemini_flash",): 1}
    assert kit.counts("arbiter_l8.escalations") == {("heuristics:low_confidence", "sentinel-l7"): 1}
    assert kit.counts("arbiter_l8.evaluations.escalated") == {("sentinel-l7",): 1}
    assert kit.counts("arbiter_l8.grounding.rungs") == {
        ("answer", "ANCHOR-WARRANTED"): 1,
        ("claim", "ANCHOR-WARRANTED"): 1,
    }
    assert kit.counts("arbiter_l8.judge.attempts") == {
        ("timeout", "failed", "ollama"): 1,
        ("none", "answered", "gemini_flash"): 1,
    }
    assert kit.counts("arbiter_l8.judge.tokens") == {
        ("input", "judge", "gemini_flash"): 90,
        ("output", "judge", "gemini_flash"): 7,
    }


def test_an_answer_from_the_cache_is_counted_as_such_and_spends_nothing(kit: Kit) -> None:
    kit.calls(call(cached=True, input_tokens=90, output_tokens=7))
    assert kit.counts("arbiter_l8.model.calls") == {("true", "answered", "judge", "ollama"): 1}
    assert kit.counts("arbiter_l8.judge.tokens") == {}


def test_what_degraded_an_answer_is_counted_by_layer_and_cause(kit: Kit) -> None:
    outcomes = {
        LayerName.DISAGREEMENT: Skipped(reason=SkipReason.NOT_CONFIGURED, version="1"),
        LayerName.CONSISTENCY: Skipped(reason=SkipReason.NO_INPUT, version="1"),
        LayerName.JUDGE: judged(InstrumentPath.HEURISTICS_FALLBACK),
        LayerName.NARRATIVE_GROUNDING: failed("weather"),
    }
    kit.observer.begin(item()).end(ended(outcomes, degraded=True))
    assert kit.counts("arbiter_l8.degraded") == {
        ("not_configured", "disagreement"): 1,
        ("heuristics_fallback", "judge"): 1,
        ("other", "narrative_grounding"): 1,
    }
    assert kit.counts("arbiter_l8.evaluations.degraded") == {("sentinel-l7",): 1}


@pytest.mark.parametrize("all_failed", [False, True])
def test_each_providers_error_is_counted_also_when_no_provider_answered(kit: Kit, all_failed: bool) -> None:
    errors = {"gemini": ProviderError(kind="server_error", message="500")}
    panel = DisagreementResult(
        labels_by_provider={} if all_failed else {"other": "low"},
        confidence_by_provider={},
        errors_by_provider=errors,
        agreed=None,
        confidence_spread=None,
    )
    cause = Cause(kind="server_error", message="500", dependency="sentinel")
    outcome = (
        Failed(cause=cause, elapsed_ms=1.0, version="1", finding=panel)
        if all_failed
        else Scored(finding=panel, elapsed_ms=1.0, version="1")
    )
    kit.observer.begin(item()).end(ended({LayerName.DISAGREEMENT: outcome}, degraded=all_failed))
    assert kit.counts("arbiter_l8.provider.errors") == {("server_error", "gemini"): 1}


def test_the_audit_sample_is_weighted_by_its_chances(kit: Kit) -> None:
    for disposition in (Disposition.FLAG, Disposition.PASS, Disposition.PASS):
        kit.observer.begin(item()).end(ended({}, reasons=("audit_sample",), probability=0.02, disposition=disposition))
    assert kit.counts("arbiter_l8.audit.examined") == {("flag", "sentinel-l7"): 1, ("pass", "sentinel-l7"): 2}
    assert kit.counts("arbiter_l8.audit.estimated") == {("flag", "sentinel-l7"): 50, ("pass", "sentinel-l7"): 100}


def test_a_replay_and_a_given_up_evaluation_are_no_dispositions(kit: Kit) -> None:
    kit.observer.begin(item()).end(Ending("e-1"))
    kit.observer.begin(item()).end(Ending())
    assert kit.counts("arbiter_l8.evaluations") == {("replayed", "sentinel-l7"): 1, ("given_up", "sentinel-l7"): 1}


def test_what_a_caller_made_up_becomes_other_and_no_time_series_of_its_own(kit: Kit) -> None:
    kit.observer.begin(item("made-up")).end(ended({}, reasons=("heuristics:made_up",)))
    assert kit.counts("arbiter_l8.evaluations") == {("flag", "other"): 1}
    assert kit.counts("arbiter_l8.escalations") == {("other", "other"): 1}
    kit.calls(call(outcome="made_up", source="made_up"))
    assert set(kit.counts("arbiter_l8.model.calls")) == {("false", "other", "judge", "other")}
    assert bounded(None, {"a"}) == "other"


def test_series_that_can_occur_exist_before_they_do(kit: Kit) -> None:
    """A counter that is born at 1 shows no rise."""
    data = kit.reader.get_metrics_data()
    metrics = {m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    zeros = {tuple(p.attributes.values()): p.value for p in metrics["arbiter_l8.judge.outcome"].data.data_points}
    assert zeros == {(source.value,): 0 for source in InstrumentPath}


def test_a_kept_evaluation_is_an_exemplar_of_its_latency(kit: Kit) -> None:
    cheap(kit)
    escalated(kit)
    (point,) = kit.points("arbiter_l8.evaluation.latency")
    (exemplar,) = point.exemplars
    assert exemplar.trace_id == kit.by_name()["evaluate_item"].context.trace_id


def test_everything_that_is_measured_stands_under_one_resource_and_scope(kit: Kit) -> None:
    escalated(kit)
    (resource,) = kit.reader.get_metrics_data().resource_metrics
    (scope,) = resource.scope_metrics
    assert {"arbiter_l8.layer.latency", "arbiter_l8.evaluations"} <= {metric.name for metric in scope.metrics}
    encoded = encode_metrics(kit.reader.get_metrics_data())
    assert len(encoded.resource_metrics[0].scope_metrics[0].metrics) == len(scope.metrics)


def test_a_model_asked_outside_an_evaluation_has_a_span_at_once(kit: Kit) -> None:
    with placed(Place()) as place:
        kit.calls(call(prompt="critic", outcome="not_a_label", error="VerdictNotOffered"))
    (span,) = kit.finished()
    assert (span.name, span.parent.span_id) == ("chat qwen3.5:9b-q4_K_M", place.span_id)
    assert span.attributes["error.type"] == "not_a_label"


# --- the end ----------------------------------------------------------------------------------------------------------


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

    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if getattr(each, "cause", None) == "export failed"]

    with caplog.at_level(logging.WARNING, "arbiter.telemetry"):
        for _ in range(500):
            handler.emit(record)
        assert len(told()) == 1
        now = 601.0
        handler.emit(record)
    assert len(told()) == 2
    assert "499 more" in told()[1]
