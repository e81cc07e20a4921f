"""What a critic did in a run: its report, and the audit trail that the report can be derived from again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from app.api.body import JSON, NDJSON
from app.api.operation import Answer, Content, Operation, json_response, services_of
from app.api.query import Query, Text, parse_query, path_id
from app.critic.figures import CriticReport
from app.critic.service import CriticReports
from app.errors import NotFound, Unprocessable


class CriticQuery(Query):
    """Which runs show that the critic does no harm elsewhere; both or none."""

    control_run_id: Annotated[
        Text | None, Field(description="A run of the same classifier with its critic, over a second dataset")
    ] = None
    baseline_run_id: Annotated[
        Text | None, Field(description="A fresh run of the classifier alone, over the same second dataset")
    ] = None


def _critics(request: Request) -> CriticReports:
    critics = services_of(request).critics
    if critics is None:
        raise NotFound("this service has no critics")
    return critics


async def get_critic(request: Request) -> Response:
    """The critic's report so far."""
    query = parse_query(request, CriticQuery)
    report = await _critics(request).report(
        path_id(request, "run"), control_run_id=query.control_run_id, baseline_run_id=query.baseline_run_id
    )
    return json_response(report)


async def get_audit(request: Request) -> Response:
    """The audit trail as a stream."""
    run_id = path_id(request, "run")
    pieces = await _critics(request).audit(run_id)
    headers = {"content-disposition": f'attachment; filename="{run_id}.audit.ndjson"'}
    return StreamingResponse(pieces, media_type=NDJSON, headers=headers)


OPERATIONS = (
    Operation(
        "GET",
        "/runs/{id}/critic",
        get_critic,
        "Report what a critic did",
        needs="read",
        tag="runs",
        description=(
            "Labels corrected and broken by axis with McNemar's exact test, challenge rates, calls, named clusters and "
            "by rule ADOPT, DECLINE or INCONCLUSIVE. Of an unfinished run, so far."
        ),
        query=CriticQuery,
        answers={200: Answer("The report", {JSON: Content(CriticReport)})},
        refuses=(NotFound, Unprocessable),
    ),
    Operation(
        "GET",
        "/runs/{id}/critic/audit",
        get_audit,
        "Read a classifier's audit trail",
        needs="read",
        tag="runs",
        description="The report follows from these lines alone: `arbiter-l8 critic replay` derives it from them.",
        answers={
            200: Answer(
                "The run and its plan, then each triage note, label, review, bounce and verdict",
                {NDJSON: Content({"type": "string", "description": "One event on each line"})},
            )
        },
        refuses=(NotFound,),
    ),
)
