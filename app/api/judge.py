"""How the judges do."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import JSON
from app.api.operation import Answer, Content, Operation, json_response, services_of
from app.api.query import Moment, Query, Text, parse_query
from layers.judge import JudgeMetrics


class JudgeMetricsQuery(Query):
    """Which evaluations to count."""

    system: Text | None = None
    since: Annotated[Moment | None, Field(description="Created at this time or later")] = None


async def get_metrics(request: Request) -> Response:
    """How often a judge really answered."""
    query = parse_query(request, JudgeMetricsQuery)
    metrics = await services_of(request).evaluations.judge_metrics(system=query.system, since=query.since)
    return json_response(metrics)


OPERATIONS = (
    Operation(
        "GET",
        "/judge/metrics",
        get_metrics,
        "Count which judges answered",
        needs="read",
        tag="evaluations",
        description=(
            "Of the stored evaluations that asked a judge, those of the audit sample included, each by its newest "
            "revision. `heuristics_fallback` counts those that nobody answered; the percentage is null without any."
        ),
        query=JudgeMetricsQuery,
        answers={200: Answer("The figures", {JSON: Content(JudgeMetrics)})},
    ),
)
