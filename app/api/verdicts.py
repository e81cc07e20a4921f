"""Having a run judged by the arbiter, and what it decided."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import JSON, parse_body
from app.api.operation import Answer, Content, Operation, json_response, services_of
from app.api.query import Paged, parse_query, path_id
from app.errors import Conflict, Forbidden, NotFound, Overloaded, TimedOut
from app.verdicts.model import ArtifactState, GivenVerdict, Verdict, VerdictRequest
from app.verdicts.service import VerdictService

_REQUEST = TypeAdapter(VerdictRequest)


class VerdictQuery(Paged):
    """Which verdicts to list."""

    artifact: Annotated[
        str | None,
        Field(pattern=r"^sha256:[0-9a-f]{64}$", description="Only those on the artifact with this hash"),
    ] = None


class VerdictPage(BaseModel):
    """Verdicts, newest first."""

    items: list[GivenVerdict]
    next_cursor: str | None


def _verdicts(request: Request) -> VerdictService:
    verdicts = services_of(request).verdicts
    if verdicts is None:
        raise NotFound("this service has no arbiter")
    return verdicts


async def post_verdict(request: Request) -> Response:
    """Judge an artifact now."""
    asked = await parse_body(request, _REQUEST, services_of(request).settings.server.max_body_bytes)
    return json_response(await _verdicts(request).ask(asked))


async def list_verdicts(request: Request) -> Response:
    """Earlier verdicts."""
    query = parse_query(request, VerdictQuery)
    page = await _verdicts(request).list(artifact=query.artifact, limit=query.limit, cursor=query.cursor)
    return json_response(page)


async def get_verdict(request: Request) -> Response:
    """One verdict."""
    return json_response(await _verdicts(request).get(path_id(request, "verdict")))


async def get_record(request: Request) -> Response:
    """A verdict's record as it was hashed."""
    return json_response(await _verdicts(request).record(path_id(request, "verdict")))


async def get_artifact(request: Request) -> Response:
    """How a run stands with the arbiter."""
    return json_response(await _verdicts(request).state(path_id(request, "run")))


OPERATIONS = (
    Operation(
        "POST",
        "/verdicts",
        post_verdict,
        "Have an artifact judged by the arbiter",
        needs="submit",
        tag="verdicts",
        description=(
            "The checks are run now, those alone that the operator allowed by name. A block is an answer, not an "
            "error; the same artifact gets the same block again."
        ),
        body={JSON: Content(VerdictRequest, {"artifact": "0192f0c1-0000-7000-8000-000000000000"})},
        answers={200: Answer("The verdict", {JSON: Content(GivenVerdict)})},
        refuses=(NotFound, Conflict, Forbidden, Overloaded, TimedOut),
    ),
    Operation(
        "GET",
        "/verdicts",
        list_verdicts,
        "List verdicts",
        needs="read",
        tag="verdicts",
        query=VerdictQuery,
        answers={200: Answer("A page, newest first", {JSON: Content(VerdictPage)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/verdicts/{id}",
        get_verdict,
        "Show a verdict",
        needs="read",
        tag="verdicts",
        answers={200: Answer("The verdict", {JSON: Content(GivenVerdict)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/verdicts/{id}/record",
        get_record,
        "Show a verdict's record as it was logged",
        needs="read",
        tag="verdicts",
        description="The SHA-256 of exactly these bytes is the `root` that the log holds at `log_index`.",
        answers={200: Answer("The record", {JSON: Content(Verdict)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/runs/{id}/artifact",
        get_artifact,
        "Show how a run stands with the arbiter",
        needs="read",
        tag="verdicts",
        description="Its hash over what it predicted, and the verdict that holds for it under any run's id.",
        answers={200: Answer("The artifact", {JSON: Content(ArtifactState)})},
        refuses=(NotFound,),
    ),
)
