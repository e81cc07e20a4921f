"""The dashboards: generated, current, parsed, and asking only for what the service says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs.grafana import dashboards
from docs.grafana.dashboards import BOARDS, FOLDER, ONLINE, Panel
from tests.telemetry.observed import Observed
from tests.telemetry.promql import as_rules, check, names_in, needs_promtool, plain

PANELS = [panel for board in BOARDS.values() for panel in board.panels]
EXPRESSIONS = [query.expr for panel in PANELS for query in panel.queries]
TRACES = [panel for panel in PANELS if panel.trace is not None]
ROOT = Path(__file__).parents[2]
HISTOGRAM = re.compile(r"_(bucket|sum|count)$")


@pytest.mark.parametrize("name", BOARDS)
def test_the_files_are_what_the_code_makes_of_them(name: str) -> None:
    """`uv run python -m docs.grafana.dashboards` brings them up to date."""
    assert (FOLDER / f"{name}.json").read_text() == BOARDS[name].json()
    assert {path.stem for path in FOLDER.glob("*.json")} == set(BOARDS)


def test_the_panels_that_operators_know_keep_their_names() -> None:
    titles = [panel.title for panel in ONLINE.panels]
    assert titles[:8] == [
        "Judge Outcome Rate by source",
        "% Scored by Judge",
        "Per-Layer Latency p95",
        "Evaluation Throughput",
        "Evaluation Latency p50/p95/p99",
        "Judge Outcome cumulative",
        "Judge Chain Errors",
        "Recent Evaluations",
    ]


@pytest.mark.parametrize("name", BOARDS)
def test_every_panel_has_a_place_a_source_and_a_reason(name: str) -> None:
    board = json.loads(BOARDS[name].json())
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] in {"prometheus", "tempo"}
            assert panel["description"]
            assert panel["targets"]


def test_no_two_panels_of_a_dashboard_have_one_title() -> None:
    for board in BOARDS.values():
        titles = [panel.title for panel in board.panels]
        assert len(titles) == len(set(titles))


@needs_promtool
def test_every_query_parses(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(as_rules(EXPRESSIONS))
    said = check("rules.yaml", folder=str(tmp_path))
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"{len(EXPRESSIONS)} rules found" in said.stdout


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_a_query_asks_only_for_what_the_service_emits(expr: str, observed: Observed) -> None:
    """Names, labels and exact label values: a renamed metric or label breaks this."""
    named = names_in(expr)
    assert named.metrics
    for metric, matchers in named.metrics.items():
        labels = observed.labels_of(metric)
        assert labels, f"{metric} is not emitted"
        for label, operator, value in matchers:
            assert label in labels, f"{metric} has no label {label}"
            if operator in {"=", "!="}:
                assert value in labels[label], f"{metric} never has {label}={value}"
        assert named.groups - {"le"} <= set(labels), metric
        is_histogram = observed.types.get(HISTOGRAM.sub("", metric)) == "histogram"
        assert ("histogram_quantile" in expr) <= (is_histogram and metric.endswith("_bucket"))


def test_counters_are_asked_for_their_rise_and_gauges_for_what_they_are(observed: Observed) -> None:
    for expr in EXPRESSIONS:
        for metric in names_in(expr).metrics:
            rises = re.search(rf"\b(?:rate|increase)\({metric}\b", expr) is not None
            assert rises == (metric.endswith("_total") or HISTOGRAM.search(metric) is not None), expr


def test_what_the_service_emits_is_looked_at_by_some_panel(observed: Observed) -> None:
    """Beside what only alerts or a search by hand use."""
    shown = {HISTOGRAM.sub("", metric) for expr in EXPRESSIONS for metric in names_in(expr).metrics}
    emitted = {HISTOGRAM.sub("", sample.name) for sample in observed.samples if sample.name.startswith("arbiter_l8")}
    assert emitted - shown <= {
        "arbiter_l8_dependency_calls_total",
        "arbiter_l8_gate_rules_total",
        "arbiter_l8_run_active",
    }


# --- traces -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("panel", TRACES, ids=lambda panel: panel.title)
def test_a_trace_query_asks_only_for_what_spans_really_carry(panel: Panel, observed: Observed) -> None:
    query = plain(str(panel.trace))
    assert re.fullmatch(r"\{ .+ \} \| select\((span\.[a-z_.]+(, )?)+\)", query), query
    spans = list(observed.spans)
    wanted = re.search(r'&& name (=~|=) "([^"]+)"', query)
    assert wanted is not None
    names = set(wanted[2].split("|"))
    emitted = {span.name for span in spans}
    assert names & emitted
    assert names <= emitted | {"openai_attempt"}  # no such judge is configured in the test run
    matching = [span for span in spans if span.name in names]
    if "status = error" in query:
        matching = [span for span in matching if not span.status.is_ok]
    carried = {name for span in matching for name in span.attributes or {}}
    assert set(re.findall(r"span\.([a-z_.]+)", query)) <= carried
    for name in re.findall(r"resource\.([a-z_.]+)", query):
        assert all(name in span.resource.attributes for span in spans)


def test_the_evaluation_span_carries_what_operators_search_for(observed: Observed) -> None:
    carried = {name for span in observed.spans if span.name == "evaluate_item" for name in span.attributes or {}}
    assert {"prediction_id", "system", "disposition", "degraded", "instrument_path", "flags"} <= carried


def test_every_verdict_of_the_service_left_one_event(observed: Observed) -> None:
    for span in observed.spans:
        if span.name == "evaluate_item" and span.attributes and "disposition" in span.attributes:
            assert [event.name for event in span.events] == ["gen_ai.evaluation.result"]


def test_every_span_has_its_parent_in_its_own_trace(observed: Observed) -> None:
    by_id = {span.context.span_id: span for span in observed.spans}
    children = [span for span in observed.spans if span.parent is not None]
    assert len(children) > len(observed.spans) / 4
    for span in children:
        assert by_id[span.parent.span_id].context.trace_id == span.context.trace_id


def test_a_remote_that_is_asked_is_told_the_trace_that_is_kept(observed: Observed) -> None:
    items = {
        f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"
        for span in observed.spans
        if span.name in {"evaluate_item", "run_step"}
    }
    assert observed.told
    assert set(observed.told) <= items


def test_an_event_stream_was_seen(observed: Observed) -> None:
    sent = [sample.value for sample in observed.samples if sample.name == "arbiter_l8_sse_events_total"]
    assert max(sent) > 0


def test_the_handbook_names_what_there_is(observed: Observed) -> None:
    """Every metric in docs/observability.md is emitted, and every metric of ours is in it."""
    text = (ROOT / "docs" / "observability.md").read_text()
    table = text[text.index("## Metrics") : text.index("## Logs")]
    emitted = {HISTOGRAM.sub("", sample.name) for sample in observed.samples}
    named = set()
    for row in re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE):
        first, *rest = re.findall(r"`([a-z0-9_]+)`", row)
        named.add(first)
        stem = first.removesuffix("_degraded_total").removesuffix("_commits_total").removesuffix("_active")
        named |= {name if name.startswith("arbiter") else stem + name for name in rest}
    assert named <= emitted
    assert {name for name in emitted if name.startswith("arbiter_l8")} <= named


def test_the_generator_writes_one_file_for_each_dashboard(tmp_path: Path) -> None:
    dashboards.main(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"online.json", "offline.json", "service.json"}
