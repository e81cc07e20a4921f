"""The embedded vector index: what is in it, and putting more in."""

from __future__ import annotations

from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import JSON, parse_body
from app.api.examples import INDEX_REQUEST
from app.api.operation import Answer, Content, Operation, json_response, services_of
from app.errors import Conflict, NotFound
from app.index.model import IndexRequest, Ingested, NamespaceInfo
from app.index.service import IndexService

_REQUEST = TypeAdapter(IndexRequest)
MAX_BYTES = 64_000_000
"""Bytes of one body, which has to be held in memory."""


class NamespacePage(BaseModel):
    """Every namespace there is; never more than one page."""

    items: list[NamespaceInfo]
    next_cursor: str | None = None


def _index(request: Request) -> IndexService:
    index = services_of(request).index
    if index is None:
        raise NotFound("this service has no embedded index")
    return index


async def post_items(request: Request) -> Response:
    """Put items in; those of an id that is there already are replaced."""
    limit = min(services_of(request).settings.server.max_upload_bytes, MAX_BYTES)
    body = await parse_body(request, _REQUEST, limit)
    return json_response(await _index(request).upsert(request.path_params["name"], body.items))


async def get_namespaces(request: Request) -> Response:
    """Every namespace."""
    return json_response(NamespacePage(items=await _index(request).namespaces()))


async def get_namespace(request: Request) -> Response:
    """One namespace."""
    return json_response(await _index(request).describe(request.path_params["name"]))


OPERATIONS = (
    Operation(
        "POST",
        "/index/{name}",
        post_items,
        "Put items into the index",
        needs="operate",
        tag="index",
        description="Policy texts and past verdicts are evidence, so this is an operator's business.",
        body={JSON: Content(IndexRequest, INDEX_REQUEST)},
        answers={200: Answer("What was put in", {JSON: Content(Ingested)})},
        refuses=(NotFound, Conflict),
    ),
    Operation(
        "GET",
        "/index",
        get_namespaces,
        "List the index's namespaces",
        needs="read",
        tag="index",
        answers={200: Answer("Every namespace", {JSON: Content(NamespacePage)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/index/{name}",
        get_namespace,
        "Show a namespace of the index",
        needs="read",
        tag="index",
        answers={200: Answer("The namespace", {JSON: Content(NamespaceInfo)})},
        refuses=(NotFound,),
    ),
)
