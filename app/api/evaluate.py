"""`POST /evaluate` and the evaluations that were stored."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import JSON, header, parse_body
from app.api.disconnect import unless_gone
from app.api.examples import EVALUATE_REQUEST
from app.api.operation import Answer, Content, Header, Operation, json_response, services_of
from app.api.query import Moment, Paged, Query, Revision, Text, Truth, parse_query, path_id
from app.errors import Conflict, NotFound, Overloaded, TimedOut, Unavailable
from app.evaluation.model import Accepted, EvaluateRequest, OnlineScoringResult
from app.evaluation.service import EvaluationFilter
from layers.model import Disposition

_REQUEST = TypeAdapter(EvaluateRequest)
ASYNC_HEADERS = {"preference-applied": "respond-async"}
PREFER = (Header("Prefer", "`respond-async`: answer 202 at once and work durably"),)
FRESH = (
    "Evaluate anew even if the same content has an answer: the layers run again. A question to a model that is equal "
    "to one whose answer the process keeps is not asked twice; `judge_verdict.cached` says so"
)


class EvaluateQuery(Query):
    """How to evaluate."""

    fresh: Annotated[Truth, Field(description=FRESH)] = False


class EvaluationsQuery(Paged):
    """Which evaluations to list; all conditions hold at once."""

    prediction_id: Text | None = None
    system: Text | None = None
    disposition: Disposition | None = None
    degraded: Truth | None = None
    since: Annotated[Moment | None, Field(description="Created at this time or later")] = None


class RevisionQuery(Query):
    """Which revision to show."""

    revision: Annotated[Revision | None, Field(description="The newest by default")] = None


class AcceptedReply(BaseModel):
    """Where accepted work will be found."""

    evaluation_id: str
    status: str = Field("accepted", pattern="^accepted$")


class EvaluationPage(BaseModel):
    """Evaluations, newest first."""

    items: list[OnlineScoringResult]
    next_cursor: str | None


_EVALUATE_DEFAULTS = EvaluateQuery()


def wants_async(request: Request) -> bool:
    """Whether the caller prefers an answer before the work is done (RFC 7240)."""
    prefer = header(request.scope, b"prefer")
    return prefer is not None and b"respond-async" in {part.strip() for part in prefer.lower().split(b",")}


async def post_evaluate(request: Request) -> Response:
    """Evaluate one prediction now, or accept it for later."""
    services = services_of(request)
    query = parse_query(request, EvaluateQuery) if request.scope["query_string"] else _EVALUATE_DEFAULTS
    body = await parse_body(request, _REQUEST, services.settings.server.max_body_bytes)
    if wants_async(request):
        evaluation_id = await services.evaluations.accept(body, fresh=query.fresh)
        headers = {"location": f"/evaluations/{evaluation_id}", **ASYNC_HEADERS}
        return json_response(AcceptedReply(evaluation_id=evaluation_id, status="accepted"), 202, headers)
    work = services.evaluations.evaluate_bytes(body, fresh=query.fresh)
    return json_response((await unless_gone(request.receive, work)).body)


async def list_evaluations(request: Request) -> Response:
    """Stored answers, as the bytes they were stored as."""
    query = parse_query(request, EvaluationsQuery)
    filters = EvaluationFilter(**query.model_dump(exclude={"limit", "cursor"}))
    page = await services_of(request).evaluations.list(filters, query.limit, query.cursor)
    cursor = TypeAdapter(str | None).dump_json(page.next_cursor)
    return json_response(b'{"items":[' + b",".join(page.items) + b'],"next_cursor":' + cursor + b"}")


async def get_evaluation(request: Request) -> Response:
    """One answer, or how its accepted work stands."""
    query = parse_query(request, RevisionQuery)
    return json_response(
        await services_of(request).evaluations.get_bytes(path_id(request, "evaluation"), query.revision)
    )


OPERATIONS = (
    Operation(
        "POST",
        "/evaluate",
        post_evaluate,
        "Evaluate one prediction",
        needs="submit",
        tag="evaluations",
        description=(
            "The same (system, id, content) again returns the stored answer with `replayed: true`; layers that failed "
            "run again and the revision goes up. A caller that hangs up cancels only a synchronous evaluation."
        ),
        body={JSON: Content(EvaluateRequest, EVALUATE_REQUEST)},
        query=EvaluateQuery,
        headers=PREFER,
        answers={
            200: Answer("The verdict", {JSON: Content(OnlineScoringResult)}),
            202: Answer(
                "Accepted; it survives a restart",
                {JSON: Content(AcceptedReply)},
                {"Location": "Where the answer will be"},
            ),
        },
        refuses=(Overloaded, Unavailable, TimedOut, Conflict),
    ),
    Operation(
        "GET",
        "/evaluations",
        list_evaluations,
        "List evaluations, newest first",
        needs="read",
        tag="evaluations",
        query=EvaluationsQuery,
        answers={200: Answer("A page", {JSON: Content(EvaluationPage)})},
    ),
    Operation(
        "GET",
        "/evaluations/{id}",
        get_evaluation,
        "Show one evaluation",
        needs="read",
        tag="evaluations",
        description="Of accepted work that is not done yet, or failed, the status is shown instead.",
        query=RevisionQuery,
        answers={200: Answer("The answer, or its status", {JSON: Content(OnlineScoringResult | Accepted)})},
        refuses=(NotFound,),
    ),
)
