"""What leaves in an attribute or a log line: clean, short, and without what must stay."""

from __future__ import annotations

import json
import logging
import math
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from app.telemetry.histogram import Histogram
from app.telemetry.labels import CAUSES, RULES
from app.telemetry.logs import JsonFormatter, PrettyFormatter
from app.telemetry.model_calls import model_of
from app.telemetry.place import Place, SpanRef, placed
from app.telemetry.redact import Redactor
from app.telemetry.values import MAX_TEXT, attributes, clean

ROOT = Path(__file__).parents[2]
redact = Redactor()


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


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("mail bob.smith@example.co.uk now", "mail *** now"),
        ("card 4111 1111 1111 1111 ok", "card *** ok"),
        ("card 4111-1111-1111-1111 ok", "card *** ok"),
        ("IBAN DE89 3704 0044 0532 0130 00 ok", "IBAN *** ok"),
        ("call +49 170 1234567", "call ***"),
        ('{"api_key": "abc def"}', '{"api_key": "***"}'),
        ("Authorization: Bearer abcdef123456", "Authorization: ***"),
        ("digest 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "digest ***"),
        ("12,500.00 EUR on 2024-05-01 at 10:30", "12,500.00 EUR on 2024-05-01 at 10:30"),
        ("risk_level high, elapsed_ms 5120", "risk_level high, elapsed_ms 5120"),
    ],
)
def test_what_must_not_leave_is_taken_out_and_the_rest_stays(text: str, left: str) -> None:
    assert redact(text) == left


@given(st.text(), st.text("0123456789", min_size=9, max_size=20), st.text())
def test_no_run_of_nine_digits_gets_through(before: str, digits: str, after: str) -> None:
    assert not re.search(r"[0-9]{9}", redact(before + digits + after))


@pytest.mark.parametrize(
    "text", ["a" * 10**6, "1 " * 10**6, "a." * 10**6, "password " * 10**5, "x-" * 10**6, "@" * 10**6]
)
def test_redaction_takes_no_time_worth_attacking(text: str) -> None:
    began = time.perf_counter()
    redact(text)
    assert time.perf_counter() - began < 0.5


def test_every_cause_in_the_code_is_known_to_the_metrics() -> None:
    """A cause that was added and not listed would be counted as `other`."""
    raised = re.compile(
        r"(?:Unavailable|Rejected|Malformed|NotOffered|NotAVerdict|ToolFailed|ReplyFailure|OverBudget|DependencyError"
        r"|no_verdict|\berror)\(([^)]*)"
    )
    tabled = re.compile(r'Dependency\w+, "([a-z_]+)"')
    found = set()
    for folder in ("layers", "adapters"):
        for path in (ROOT / folder).glob("*.py"):
            source = path.read_text()
            found |= set(tabled.findall(source))
            for arguments in raised.findall(source):
                kinds = re.findall(r'"([a-z][a-z_]{3,30})"', arguments)
                found |= set(kinds[:1]) - {"pointer", "status", "reply", "embedder"}
    assert found >= {"malformed", "timeout", "not_a_label"}
    assert found - CAUSES == set()


def test_every_rule_of_the_heuristics_is_known_to_the_metrics() -> None:
    rules = re.findall(r'Flag\(\s*rule="([a-z_]+)"', (ROOT / "layers" / "heuristics.py").read_text())
    assert rules
    assert {f"heuristics:{rule}" for rule in rules} <= RULES


@pytest.mark.parametrize(
    ("identity", "model"),
    [
        ("ollama:qwen3.5:9b-q4_K_M:num_ctx=8192", "qwen3.5:9b-q4_K_M"),
        ("gemini:gemini-2.0-flash", "gemini-2.0-flash"),
        ("openai:http://127.0.0.1:8080/v1:local-model", "local-model"),
        ("openai:https://llm.example/api/v1:org/model:free", "org/model:free"),
        ("scripted:1", "1"),
    ],
)
def test_a_models_name_is_read_from_its_identity(identity: str, model: str) -> None:
    assert model_of(identity) == model


# --- logs -------------------------------------------------------------------------------------------------------------


def test_a_log_line_is_one_json_object_whatever_stands_in_it() -> None:
    record = logging.makeLogRecord(
        {"msg": "bad \ud800 \n text", "levelname": "WARNING", "name": "x", "system": {"odd": object(), (1,): 2}}
    )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line.encode("utf-8"))["level"] == "warning"


def test_a_log_line_names_the_trace_that_the_work_belongs_to() -> None:
    record = logging.makeLogRecord({"msg": "m"})
    assert json.loads(JsonFormatter().format(record))["trace_id"] is None
    with placed(Place(trace_id=0xABC)):
        assert json.loads(JsonFormatter().format(record))["trace_id"] == f"{0xABC:032x}"
        assert f"trace={0xABC:032x}" in PrettyFormatter().format(record)


def test_an_extra_field_can_not_pass_for_one_of_ours() -> None:
    record = logging.makeLogRecord({"msg": "m", "trace_id": "forged", "level": "forged"})
    line = json.loads(JsonFormatter().format(record))
    assert (line["trace_id"], line["trace_id_"], line["level_"]) == (None, "forged", "forged")


# --- histograms -------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(0, 200), min_size=1, max_size=60),
    st.lists(st.floats(0.1, 150), min_size=1, max_size=8, unique=True),
)
def test_a_histogram_of_ours_counts_as_the_sdks_does(values: list[float], bounds: list[float]) -> None:
    """Buckets hold their upper bound; count, sum, least and largest are those of the values."""
    bounds = sorted(bounds)
    reader, ours = InMemoryMetricReader(), Histogram("h", "ms", "d", bounds, ("layer",))
    provider = MeterProvider([reader], shutdown_on_exit=False)
    theirs = provider.get_meter("m").create_histogram("h", explicit_bucket_boundaries_advisory=bounds)
    for value in values:
        theirs.record(value, {"layer": "a"})
        ours.at("a").record(value)
    data = reader.get_metrics_data()
    assert data is not None
    expected = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points[0]
    (found,) = ours.metric(1, 2).data.data_points
    assert found.attributes == {"layer": "a"}
    assert (list(found.bucket_counts), found.count) == (list(expected.bucket_counts), expected.count)
    assert (found.min, found.max) == (expected.min, expected.max)
    assert found.sum == pytest.approx(expected.sum)


def test_an_example_is_handed_out_once_and_is_the_latest_of_its_bucket() -> None:
    histogram = Histogram("h", "ms", "d", (1.0, 10.0), ("layer",))
    for value, span_id in ((0.5, 1), (0.6, 2), (5.0, 3)):
        histogram.at("a").record(value, SpanRef(7, span_id))
    (point,) = histogram.metric(1, 2).data.data_points
    assert [(each.value, each.span_id) for each in point.exemplars] == [(0.6, 2), (5.0, 3)]
    (point,) = histogram.metric(1, 3).data.data_points
    assert point.exemplars == []
    assert point.count == 3
