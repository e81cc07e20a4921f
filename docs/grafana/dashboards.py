"""The Grafana dashboards, as code: `python -m docs.grafana.dashboards` writes `dashboards/*.json` beside this file.

Names are those that Prometheus shows: the collector turns `arbiter_l8.layer.latency` (ms) into
`arbiter_l8_layer_latency_milliseconds_bucket`, and a counter gets `_total`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import (
    bargauge,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    tempo,
    timeseries,
)
from grafana_foundation_sdk.builders.common import (
    ReduceDataOptions,
    StackingConfig,
    VizLegendOptions,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, StackingMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    GridPos,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.tempo import SearchTableType

FOLDER = Path(__file__).with_name("dashboards")
PROMETHEUS = DataSourceRef(type_val="prometheus", uid="prometheus")
TEMPO = DataSourceRef(type_val="tempo", uid="tempo")
SERVICE, SYSTEM = 'job=~"$service"', 'system=~"$system"'
VERDICTS = 'disposition=~"pass|flag|review|inconclusive"'
NOT_FALLBACK = 'source!="heuristics_fallback"'


# --- queries ----------------------------------------------------------------------------------------------------------


def series(name: str, *matchers: str) -> str:
    """The series of a metric, of the services and (where `SYSTEM` is among the matchers) systems that were chosen."""
    return name + "{" + ", ".join((SERVICE, *matchers)) + "}"


def rate(name: str, *matchers: str) -> str:
    """Events per second."""
    return f"rate({series(name, *matchers)}[$__rate_interval])"


def total(name: str, *matchers: str, by: str = "") -> str:
    """Events per second, summed up, by a label where one is given."""
    return f"sum{f' by ({by})' if by else ''} ({rate(name, *matchers)})"


def over_range(name: str, *matchers: str, by: str = "") -> str:
    """Events in the range that the dashboard shows."""
    return f"sum{f' by ({by})' if by else ''} (increase({series(name, *matchers)}[$__range]))"


def quantile(q: float, histogram: str, *matchers: str, by: str = "") -> str:
    """A quantile of a histogram, in its own unit."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({labels}) ({rate(histogram + '_bucket', *matchers)}))"


def traces(where: str, *columns: str) -> str:
    """A TraceQL search whose result is a table with these columns."""
    select = f" | select({', '.join(columns)})" if columns else ""
    return f'{{ resource.service.name =~ "${{service:pipe}}" && {where} }}{select}'


# --- panels -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    """One PromQL expression and how its series are called."""

    expr: str
    legend: str = "__auto"


@dataclass(frozen=True)
class Panel:
    """What a panel asks, why one would look, and how it is drawn. `trace` is TraceQL, for a table of spans."""

    title: str
    why: str
    queries: tuple[Query, ...] = ()
    unit: str = "short"
    kind: str = "lines"
    width: int = 8
    height: int = 8
    limit: float | None = None
    trace: str | None = None
    states: tuple[tuple[str, str], ...] = field(default=())
    no_value: str = "no data"


_KINDS: dict[str, Any] = {
    "lines": timeseries.Panel, "stack": timeseries.Panel, "steps": timeseries.Panel, "stat": stat.Panel,
    "bars": bargauge.Panel, "states": statetimeline.Panel, "table": table.Panel,
}  # fmt: skip


def build(panel: Panel, position: GridPos) -> Any:
    """The panel as Grafana's own builders make it."""
    made = _KINDS[panel.kind]().title(panel.title).description(panel.why).grid_pos(position).no_value(panel.no_value)
    if panel.trace is not None:
        made = made.datasource(TEMPO)
        query = tempo.TempoQuery().query_type("traceql").query(panel.trace).table_type(SearchTableType.SPANS).limit(50)
        return made.with_target(query.ref_id("A").datasource(TEMPO))
    made = made.datasource(PROMETHEUS).unit(panel.unit)
    for ref, query in zip("ABCDEFGH", panel.queries, strict=False):
        target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref).datasource(PROMETHEUS)
        target = target.instant() if panel.kind in {"stat", "bars"} else target.range()
        made = made.with_target(target.exemplar(exemplar="_bucket" in query.expr))
    return _drawn(made, panel)


def _drawn(made: Any, panel: Panel) -> Any:
    if panel.kind in {"lines", "stack", "steps"}:
        legend = VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
        made = made.legend(legend.show_legend(True)).min(0).fill_opacity(40 if panel.kind == "stack" else 8)
        if panel.kind == "stack":
            made = made.stacking(StackingConfig().mode(StackingMode.NORMAL))
        if panel.kind == "steps":
            made = made.line_interpolation("stepAfter").span_nulls(True)
    if panel.kind in {"stat", "bars"}:
        made = made.reduce_options(ReduceDataOptions().calcs(["lastNotNull"]))
    if panel.limit is not None:
        steps = [Threshold(value=None, color="green"), Threshold(value=panel.limit, color="red")]
        if panel.title.startswith("% Scored"):  # here more is better
            steps = [Threshold(value=None, color="red"), Threshold(value=panel.limit, color="green")]
        made = made.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    if panel.states:
        options = {
            str(value): ValueMappingResult(text=text, color=color, index=value)
            for value, (text, color) in enumerate(panel.states)
        }
        made = made.mappings([ValueMap(options=options)])
    return made


@dataclass(frozen=True)
class Board:
    """A dashboard: rows of panels under headings."""

    uid: str
    title: str
    about: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    by_system: bool = True

    @property
    def panels(self) -> tuple[Panel, ...]:
        return tuple(panel for _, panels in self.rows for panel in panels)

    def json(self) -> str:
        """As Grafana imports it."""
        board = dashboard.Dashboard(self.title).uid(self.uid).description(self.about).tags(["arbiter-l8"])
        board = board.time("now-6h", "now").refresh("30s").timezone("browser").tooltip(DashboardCursorSync.CROSSHAIR)
        board = board.with_variable(variable("service", "Service", "arbiter_l8_evaluations_total", "job"))
        if self.by_system:
            board = board.with_variable(variable("system", "System", "arbiter_l8_evaluations_total", "system"))
        y, ids = 0, itertools.count(1)
        for heading, panels in self.rows:
            board = board.with_row(dashboard.Row(heading).id(next(ids)).grid_pos(GridPos(h=1, w=24, x=0, y=y)))
            y += 1
            x = tallest = 0
            for panel in panels:
                if x + panel.width > 24:
                    x, y, tallest = 0, y + tallest, 0
                made = build(panel, GridPos(h=panel.height, w=panel.width, x=x, y=y))
                board = board.with_panel(made.id(next(ids)))
                x, tallest = x + panel.width, max(tallest, panel.height)
            y += tallest
        return JSONEncoder(sort_keys=True, indent=1).encode(board.build()) + "\n"


def variable(name: str, label: str, metric: str, of: str) -> dashboard.QueryVariable:
    """A choice among the values of a label; all of them at first."""
    everything = VariableOption(text="All", value="$__all", selected=True)
    made = dashboard.QueryVariable(name).label(label).datasource(PROMETHEUS).query(f"label_values({metric}, {of})")
    made = made.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
    return made.multi(True).include_all(True).all_value(".*").current(everything)


# --- online -----------------------------------------------------------------------------------------------------------

JUDGE = "arbiter_l8_judge_outcome_total"
EVALUATIONS = "arbiter_l8_evaluations_total"
ATTEMPT = 'name =~ "ollama_attempt|flash_attempt|openai_attempt" && status = error'

KNOWN_PANELS = (
    Panel(
        "Judge Outcome Rate by source",
        "Who gives the judge's verdicts. `heuristics_fallback` rising means that no model answers.",
        (Query(total(JUDGE, by="source"), "{{source}}"),),
        unit="ops",
        kind="stack",
        width=9,
    ),
    Panel(
        "% Scored by Judge",
        "Share of judge verdicts that a model gave. Without any verdict there is no share, and none is shown.",
        (Query(f"100 * {over_range(JUDGE, NOT_FALLBACK)} / {over_range(JUDGE)}"),),
        unit="percent",
        kind="stat",
        width=5,
        limit=80,
        no_value="no verdicts",
    ),
    Panel(
        "Per-Layer Latency p95",
        "Which layer makes escalated evaluations slow. Points lead to a trace.",
        (Query(quantile(0.95, "arbiter_l8_layer_latency_milliseconds", by="layer"), "{{layer}}"),),
        unit="ms",
        width=10,
    ),
    Panel(
        "Evaluation Throughput",
        "Evaluations by what came of them; replayed = answered from the store.",
        (Query(total(EVALUATIONS, SYSTEM, by="disposition"), "{{disposition}}"),),
        unit="ops",
        kind="stack",
        width=9,
    ),
    Panel(
        "Evaluation Latency p50/p95/p99",
        "What a caller waits for. The p99 is that of escalated items, whose judges take seconds.",
        tuple(
            Query(quantile(q, "arbiter_l8_evaluation_latency_milliseconds", SYSTEM), f"p{round(q * 100)}")
            for q in (0.5, 0.95, 0.99)
        ),
        unit="ms",
        width=9,
    ),
    Panel(
        "Judge Outcome cumulative",
        "Judge verdicts in the range shown, by who gave them.",
        (Query(over_range(JUDGE, by="source"), "{{source}}"),),
        kind="bars",
        width=6,
    ),
    Panel(
        "Judge Chain Errors",
        "Attempts that gave no verdict, newest first: our cause, the exception and what it said.",
        kind="table",
        width=24,
        trace=traces(
            ATTEMPT,
            "span.error.type",
            "span.exception.type",
            "span.exception.message",
            "span.gen_ai.provider.name",
            "span.gen_ai.request.model",
        ),
    ),
    Panel(
        "Recent Evaluations",
        "What was kept: everything escalated, failed, slow or sampled, and a share of the rest.",
        kind="table",
        width=24,
        height=10,
        trace=traces(
            'name = "evaluate_item"',
            "span.prediction_id",
            "span.system",
            "span.disposition",
            "span.decision",
            "span.degraded",
            "span.instrument_path",
            "span.flags",
        ),
    ),
)


def share(part: str, whole: str) -> str:
    """A percentage; nothing over nothing shows nothing."""
    return f"100 * {part} / {whole}"


BREAKER = "arbiter_l8_breaker_state"
_OPEN = f"""max by (breaker) ({series(BREAKER, 'state="open"')})"""
_HALF_OPEN = f"""max by (breaker) ({series(BREAKER, 'state="half_open"')})"""
_WHOLE = total(EVALUATIONS, SYSTEM, VERDICTS)
_ESTIMATED = "arbiter_l8_audit_estimated_total"
_FLAGGED = 'disposition=~"flag|review"'

ONLINE = Board(
    "arbiter-l8-online",
    "Arbiter-L8 / Online pipeline",
    "What /evaluate says, how fast, and on whose word.",
    (
        ("Verdicts", KNOWN_PANELS),
        (
            "Dependencies",
            (
                Panel(
                    "Breakers",
                    "Which remotes are not asked at present, and since when. One process each; the worst is shown.",
                    (Query(f"{_OPEN} * 2 + {_HALF_OPEN}", "{{breaker}}"),),
                    kind="states",
                    width=12,
                    states=(("closed", "green"), ("half-open", "yellow"), ("open", "red")),
                ),
                Panel(
                    "Breaker transitions",
                    "Flapping: a remote that is up long enough to close the circuit and then fails again.",
                    (
                        Query(
                            over_range("arbiter_l8_breaker_transitions_total", by="breaker, state"),
                            "{{breaker}} {{state}}",
                        ),
                    ),
                    kind="bars",
                    width=12,
                ),
                Panel(
                    "Dependency errors by cause",
                    "Attempts that failed. `rejected` is our fault (a key, a request), the rest is theirs.",
                    (
                        Query(
                            total("arbiter_l8_dependency_errors_total", by="dependency, cause"),
                            "{{dependency}} {{cause}}",
                        ),
                    ),
                    unit="ops",
                ),
                Panel(
                    "Dependency latency p95",
                    "Time of one attempt, waiting for the budget included.",
                    (
                        Query(
                            quantile(0.95, "arbiter_l8_dependency_latency_milliseconds", by="dependency"),
                            "{{dependency}}",
                        ),
                    ),
                    unit="ms",
                ),
                Panel(
                    "Provider errors",
                    "Providers that gave no label when they were asked again, by cause.",
                    (Query(total("arbiter_l8_provider_errors_total", by="provider, cause"), "{{provider}} {{cause}}"),),
                    unit="ops",
                ),
            ),
        ),
        (
            "Honesty",
            (
                Panel(
                    "Degraded share",
                    "Share of new verdicts in which a layer that should have spoken did not.",
                    (Query(share(total("arbiter_l8_evaluations_degraded_total", SYSTEM), _WHOLE), "degraded"),),
                    unit="percent",
                    limit=20,
                ),
                Panel(
                    "Degraded by layer and cause",
                    "Which layer was silent, and why. `not_configured` is a setting, the rest are failures.",
                    (Query(total("arbiter_l8_degraded_total", by="layer, cause"), "{{layer}} {{cause}}"),),
                    unit="ops",
                    kind="stack",
                ),
                Panel(
                    "Escalated share",
                    "Share of new verdicts for which the costlier layers ran.",
                    (Query(share(total("arbiter_l8_evaluations_escalated_total", SYSTEM), _WHOLE), "escalated"),),
                    unit="percent",
                ),
                Panel(
                    "Escalations by reason",
                    "What the free checks flagged; one item may have several reasons.",
                    (Query(total("arbiter_l8_escalations_total", SYSTEM, by="reason"), "{{reason}}"),),
                    unit="ops",
                    kind="stack",
                ),
                Panel(
                    "Missed, by the audit sample",
                    "Estimated share of unflagged items that a full look would flag or send to review.",
                    (
                        Query(
                            share(over_range(_ESTIMATED, SYSTEM, _FLAGGED), over_range(_ESTIMATED, SYSTEM)),
                            "missed",
                        ),
                    ),
                    unit="percent",
                    kind="stat",
                    width=4,
                    no_value="no sample",
                ),
                Panel(
                    "Audit sample",
                    "How many items that estimate rests on.",
                    (
                        Query(
                            over_range("arbiter_l8_audit_examined_total", SYSTEM, by="disposition"), "{{disposition}}"
                        ),
                    ),
                    kind="bars",
                    width=4,
                    no_value="no sample",
                ),
                Panel(
                    "Grounding rungs",
                    "How much of the judge's claims code could check; `UNGROUNDED` claims convince nobody.",
                    (Query(over_range("arbiter_l8_grounding_rungs_total", 'of="claim"', by="rung"), "{{rung}}"),),
                    kind="bars",
                ),
            ),
        ),
        (
            "Cost",
            (
                Panel(
                    "Judge attempts",
                    "Models asked, by outcome. Two for a verdict means that the first of the chain fails.",
                    (Query(total("arbiter_l8_judge_attempts_total", by="source, outcome"), "{{source}} {{outcome}}"),),
                    unit="ops",
                ),
                Panel(
                    "Tokens",
                    "Tokens spent per second, by prompt and direction.",
                    (
                        Query(
                            total("arbiter_l8_judge_tokens_total", by="prompt, direction"), "{{prompt}} {{direction}}"
                        ),
                    ),
                    kind="stack",
                ),
                Panel(
                    "Cache hits",
                    "Share of questions to models that were answered from memory or the store.",
                    (
                        Query(
                            share(
                                total("arbiter_l8_model_calls_total", 'cached="true"', by="prompt"),
                                total("arbiter_l8_model_calls_total", by="prompt"),
                            ),
                            "{{prompt}}",
                        ),
                    ),
                    unit="percent",
                ),
            ),
        ),
    ),
)


# --- offline ----------------------------------------------------------------------------------------------------------

HARNESS = "arbiter_l8_harness_metric"


def harness(metric: str) -> str:
    """The figures of the latest run, whichever process did it last."""
    return f"""max by (system, label) ({series(HARNESS, f'metric="{metric}"', SYSTEM)})"""


OFFLINE = Board(
    "arbiter-l8-offline",
    "Arbiter-L8 / Offline evaluation",
    "What runs over labelled data say. A changed prompt or model is a step in these lines.",
    (
        (
            "Figures of the latest run",
            (
                Panel(
                    "Accuracy",
                    "Share right of the scored examples. It stays until the next run of its system has succeeded.",
                    (Query(harness("accuracy"), "{{system}}"),),
                    unit="percentunit",
                    kind="steps",
                    width=12,
                ),
                Panel(
                    "F1 by label",
                    "Precision and recall in one number.",
                    (Query(harness("f1"), "{{system}} {{label}}"),),
                    unit="percentunit",
                    kind="steps",
                    width=12,
                ),
                Panel(
                    "Precision by label",
                    "Of those called so, how many were.",
                    (Query(harness("precision"), "{{system}} {{label}}"),),
                    unit="percentunit",
                    kind="steps",
                    width=12,
                ),
                Panel(
                    "Recall by label",
                    "Of those that were, how many were called so.",
                    (Query(harness("recall"), "{{system}} {{label}}"),),
                    unit="percentunit",
                    kind="steps",
                    width=12,
                ),
            ),
        ),
        (
            "Decisions",
            (
                Panel(
                    "Gate verdicts",
                    "What gates said of runs in the range shown.",
                    (Query(over_range("arbiter_l8_gate_verdicts_total", SYSTEM, by="verdict"), "{{verdict}}"),),
                    kind="bars",
                ),
                Panel(
                    "Fixed and broke",
                    "Against its baseline: examples that the latest judged run got right again, and wrong anew.",
                    (
                        Query(
                            f"max by (system, change) ({series('arbiter_l8_run_changes', SYSTEM)})",
                            "{{system}} {{change}}",
                        ),
                    ),
                    kind="steps",
                ),
                Panel(
                    "Binding verdicts",
                    "Artifacts accepted and blocked.",
                    (Query(over_range("arbiter_l8_verdicts_total", by="verdict"), "{{verdict}}"),),
                    kind="bars",
                ),
            ),
        ),
        (
            "Critic",
            (
                Panel(
                    "Rows under a critic by end",
                    "`fixed`: the second answer stands. `contested`: the critic did not accept that one either, and "
                    "the first answer stands. `fail_closed`: no admissible challenge. `salvaged`: no answer to read.",
                    (
                        Query(
                            over_range("arbiter_l8_critic_rows_total", SYSTEM, by="instrument, state"),
                            "{{instrument}} {{state}}",
                        ),
                    ),
                    kind="bars",
                ),
                Panel(
                    "Reviews by ruling",
                    "What the gate made of first reviews: nothing to say, a challenge admitted, or why one was not.",
                    (
                        Query(
                            over_range("arbiter_l8_critic_reviews_total", SYSTEM, by="instrument, ruling"),
                            "{{instrument}} {{ruling}}",
                        ),
                    ),
                    kind="bars",
                ),
                Panel(
                    "Bounces by end",
                    "Rows that the classifier was asked about once more.",
                    (
                        Query(
                            over_range("arbiter_l8_critic_bounces_total", SYSTEM, by="instrument, state"),
                            "{{instrument}} {{state}}",
                        ),
                    ),
                    kind="bars",
                ),
                Panel(
                    "Questions of a critic's runs",
                    "By who was asked. A row takes three, one with a bounce five.",
                    (
                        Query(
                            over_range("arbiter_l8_critic_calls_total", SYSTEM, by="instrument, role"),
                            "{{instrument}} {{role}}",
                        ),
                    ),
                    kind="bars",
                ),
            ),
        ),
        (
            "Runs",
            (
                Panel(
                    "Runs ended",
                    "By how they ended. `failed`: the system could not be reached, or too many examples failed.",
                    (Query(over_range("arbiter_l8_runs_total", SYSTEM, by="status"), "{{status}}"),),
                    kind="bars",
                    width=6,
                ),
                Panel(
                    "Progress",
                    "Share done of the runs under way; nothing where there is none.",
                    (Query(f"avg by (system) ({series('arbiter_l8_run_progress', SYSTEM)})", "{{system}}"),),
                    unit="percentunit",
                    width=6,
                    no_value="no run",
                ),
                Panel(
                    "Examples per second",
                    "Scored and failed. Flat while examples remain: the system is down or throttled.",
                    (
                        Query(
                            total("arbiter_l8_run_examples_total", SYSTEM, by="system, status"), "{{system}} {{status}}"
                        ),
                        Query(
                            f"sum by (system) ({series('arbiter_l8_run_remaining', SYSTEM)})", "{{system}} remaining"
                        ),
                    ),
                    width=6,
                ),
                Panel(
                    "Failed examples by cause",
                    "They are no wrong answers: no figure counts them as such.",
                    (Query(over_range("arbiter_l8_run_errors_total", SYSTEM, by="cause"), "{{cause}}"),),
                    kind="bars",
                    width=6,
                ),
            ),
        ),
    ),
)


# --- the service itself -----------------------------------------------------------------------------------------------

HTTP = "http_server_request_duration_seconds"
REQUESTS = f"{HTTP}_count"
ROUTE, STATUS = "http_route", "http_response_status_code"
_FAILED = f'{STATUS}=~"5.."'

SERVICE_BOARD = Board(
    "arbiter-l8-service",
    "Arbiter-L8 / Service",
    "Requests, the queue, the store, event streams.",
    (
        (
            "Requests",
            (
                Panel(
                    "Request rate",
                    "By route.",
                    (Query(total(REQUESTS, by=ROUTE), "{{http_route}}"),),
                    unit="reqps",
                    kind="stack",
                ),
                Panel(
                    "Failed share",
                    "Share of requests answered 5xx, refusals for overload (503) included.",
                    (
                        Query(
                            share(
                                # A route that never failed has no such series: its share is 0 and not unknown.
                                f"({total(REQUESTS, _FAILED, by=ROUTE)} or {total(REQUESTS, by=ROUTE)} * 0)",
                                total(REQUESTS, by=ROUTE),
                            ),
                            "{{http_route}}",
                        ),
                    ),
                    unit="percent",
                    limit=1,
                ),
                Panel(
                    "Duration p50/p95/p99",
                    "Of all requests but event streams.",
                    tuple(Query(quantile(q, HTTP), f"p{round(q * 100)}") for q in (0.5, 0.95, 0.99)),
                    unit="s",
                ),
                Panel(
                    "Answers by status",
                    "4xx is the caller's doing; a wall of 429 or 503 is ours.",
                    (Query(total(REQUESTS, by=STATUS), "{{http_response_status_code}}"),),
                    unit="reqps",
                    kind="stack",
                    width=12,
                ),
                Panel(
                    "Requests under way",
                    "At most ARBITER_MAX_IN_FLIGHT evaluations; beyond that callers are sent away.",
                    (Query(f"sum ({series('http_server_active_requests')})", "under way"),),
                    width=12,
                ),
            ),
        ),
        (
            "Queue",
            (
                Panel(
                    "Accepted and not done",
                    "Work that was promised: asynchronous requests and the audit sample. All processes see one queue.",
                    (Query(f"max by (queue) ({series('arbiter_l8_queue_depth')})", "{{queue}}"),),
                    width=12,
                ),
                Panel(
                    "Age of that count",
                    "Above a minute the store does not answer, and the depth is an old one.",
                    (Query(f"max by (queue) ({series('arbiter_l8_queue_observed_age_seconds')})", "{{queue}}"),),
                    unit="s",
                    limit=60,
                    width=12,
                ),
            ),
        ),
        (
            "Store",
            (
                Panel(
                    "Transactions",
                    "Commits per second, and those that failed.",
                    (
                        Query(total("arbiter_l8_store_commits_total"), "committed"),
                        Query(total("arbiter_l8_store_failures_total"), "failed"),
                    ),
                    unit="ops",
                ),
                Panel(
                    "Work per transaction",
                    "How many writes share a commit: it grows with the load, and spares the disk.",
                    (
                        Query(
                            f"{total('arbiter_l8_store_jobs_total')} / {total('arbiter_l8_store_commits_total')}",
                            "writes",
                        ),
                    ),
                ),
                Panel(
                    "Writer busy",
                    "Share of the time the one writer is at work. Near 100 % the disk is the limit.",
                    (Query(f"100 * max ({rate('arbiter_l8_store_busy_seconds_total')})", "busy"),),
                    unit="percent",
                    limit=90,
                ),
            ),
        ),
        (
            "Event streams",
            (
                Panel(
                    "Open streams",
                    "Who watches runs.",
                    (Query(f"sum by (route) ({series('arbiter_l8_sse_streams')})", "{{route}}"),),
                    width=12,
                ),
                Panel(
                    "Events sent",
                    "Heartbeats included.",
                    (Query(total("arbiter_l8_sse_events_total", by="route"), "{{route}}"),),
                    unit="ops",
                    width=12,
                ),
            ),
        ),
    ),
    by_system=False,
)

BOARDS = {"online": ONLINE, "offline": OFFLINE, "service": SERVICE_BOARD}


def main(folder: Path = FOLDER) -> None:
    """Write every dashboard."""
    folder.mkdir(exist_ok=True)
    for name, board in BOARDS.items():
        (folder / f"{name}.json").write_text(board.json(), encoding="utf-8")


if __name__ == "__main__":
    main()
