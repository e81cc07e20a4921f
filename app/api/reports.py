"""`/runs/{id}/report`: figures for programs, a page for people, Markdown for pull requests."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import JSON
from app.api.negotiation import negotiate
from app.api.operation import Answer, Content, Operation, json_response, services_of
from app.api.query import Query, ReportPath, Truth, parse_query, path_id
from app.errors import NotAcceptable, NotFound, Unavailable, Unprocessable
from app.reports.html import POLICY
from app.reports.view import ComparedReport
from app.runs.analysis import MAX_PATHS
from app.runs.model import EvalReport

MARKDOWN = "text/markdown"
HTML = "text/html"
_FORMS: dict[str, Literal["html", "markdown"]] = {MARKDOWN: "markdown", HTML: "html"}
_HEADERS = {"vary": "Accept", "x-content-type-options": "nosniff", "content-security-policy": POLICY}


class ReportQuery(Query):
    """How much to report."""

    predictions: Annotated[Truth, Field(description="Include every prediction; in JSON only")] = False
    binary: Annotated[
        Truth | None, Field(description="Also read the labels collapsed to two; by default as the run was asked")
    ] = None
    slice: Annotated[
        tuple[ReportPath, ...],
        Field(
            max_length=MAX_PATHS,
            description=(
                "JSON Pointer into an example along which to cut: `/input/category`, or into the scored prediction: "
                "`/prediction/metadata/instrument_path`. HTML and Markdown choose some fields with few values where "
                "none is given and the run is not too large."
            ),
        ),
    ] = ()
    baseline: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=128,
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
            description=(
                "The id of a run, or the name of a baseline, to compare with. In JSON the comparison is the field "
                "`comparison`, which is left out where there is no baseline."
            ),
        ),
    ] = None


async def get_report(request: Request) -> Response:
    """The run's metrics so far."""
    written = negotiate(request.scope, (JSON, MARKDOWN, HTML))
    query = parse_query(request, ReportQuery)
    run_id, services = path_id(request, "run"), services_of(request)
    if written == JSON and query.baseline is None:
        return _as_json(
            await services.runs.report(run_id, predictions=query.predictions, slices=query.slice, binary=query.binary)
        )
    if services.reports is None:
        raise Unavailable("this service writes no reports")
    if written == JSON and query.baseline is not None:
        return _as_json(
            await services.reports.figures(
                run_id,
                baseline=query.baseline,
                predictions=query.predictions,
                slices=query.slice,
                binary=query.binary,
            )
        )
    text = await services.reports.write(
        run_id, _FORMS[written], slices=query.slice, binary=query.binary, baseline=query.baseline
    )
    # Encoded here: whatever a text may hold, the page must come.
    return Response(text.encode("utf-8", "replace"), 200, _HEADERS, f"{written}; charset=utf-8")


def _as_json(report: EvalReport) -> Response:
    response = json_response(report)
    response.headers["vary"] = "Accept"
    return response


OPERATIONS = (
    Operation(
        "GET",
        "/runs/{id}/report",
        get_report,
        "Report a run's metrics",
        needs="read",
        tag="runs",
        description=(
            "Derived from the records; of an unfinished run the rest counts as unscored. By `Accept`: JSON, GitHub's "
            "Markdown, or one self-contained page of HTML with plots, slices, the gravest errors and the failures."
        ),
        query=ReportQuery,
        answers={
            200: Answer(
                "The report",
                {
                    JSON: Content(ComparedReport),
                    MARKDOWN: Content({"type": "string"}),
                    HTML: Content({"type": "string"}),
                },
            )
        },
        refuses=(NotFound, NotAcceptable, Unprocessable, Unavailable),
    ),
)
