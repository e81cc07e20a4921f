"""Syntheses, and adjudication as one file."""

from __future__ import annotations

from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from app.adjudication.snapshot_lines import SnapshotRefused
from app.adjudication.synthesis_model import SynthesisRecord, SynthesisRequest, SynthesisView
from app.api.adjudication import adjudications_of
from app.api.body import JSON, NDJSON, NDJSON_TYPES, media_type, parse_body, read_body
from app.api.operation import Answer, Content, Operation, json_response, services_of
from app.api.query import Paged, parse_query, path_id
from app.errors import Conflict, NotFound

_REQUEST = TypeAdapter(SynthesisRequest)
MAX_SNAPSHOT_BYTES = 256_000_000
"""Bytes of a snapshot, which has to be held in memory to be checked as a whole."""


class SynthesisPage(BaseModel):
    """Syntheses, newest first."""

    items: list[SynthesisRecord]
    next_cursor: str | None


class Imported(BaseModel):
    """How many facts of each kind a snapshot held."""

    counts: dict[str, int]


async def post_synthesis(request: Request) -> Response:
    """Look for patterns."""
    service = adjudications_of(request).syntheses
    body = await parse_body(request, _REQUEST, services_of(request).settings.server.max_body_bytes)
    view = await service.synthesise(body)
    return json_response(view, 200 if view.reused else 201, {"location": f"/syntheses/{view.synthesis_id}"})


async def list_syntheses(request: Request) -> Response:
    """Syntheses, newest first."""
    query = parse_query(request, Paged)
    return json_response(await adjudications_of(request).syntheses.page(limit=query.limit, cursor=query.cursor))


async def get_synthesis(request: Request) -> Response:
    """One synthesis."""
    return json_response(await adjudications_of(request).syntheses.get(path_id(request, "synthesis")))


async def get_snapshot(request: Request) -> Response:
    """All of adjudication."""
    lines = await adjudications_of(request).snapshots.export()
    headers = {"content-disposition": 'attachment; filename="adjudication.ndjson"'}
    return Response(b"".join(lines), headers=headers, media_type=NDJSON)


async def post_snapshot(request: Request) -> Response:
    """Take over a snapshot."""
    snapshots = adjudications_of(request).snapshots
    media_type(request.scope, NDJSON_TYPES)
    limit = min(services_of(request).settings.server.max_upload_bytes, MAX_SNAPSHOT_BYTES)
    return json_response(Imported(counts=await snapshots.take_over(await read_body(request, limit))))


_LINES = {"type": "string", "description": "One fact on each line, and a last line that seals them"}

OPERATIONS = (
    Operation(
        "POST",
        "/syntheses",
        post_synthesis,
        "Look for patterns in failures or evidence",
        needs="submit",
        tag="adjudication",
        description=(
            "Clusters are counted; with `llm` or `hybrid` a model may add themes and draft hypotheses, which start "
            "without support. The same input is answered with what is stored, a fallback included."
        ),
        body={JSON: Content(SynthesisRequest)},
        answers={
            200: Answer("It was there already", {JSON: Content(SynthesisView)}, {"Location": "The synthesis"}),
            201: Answer("Stored", {JSON: Content(SynthesisView)}, {"Location": "The synthesis"}),
        },
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/syntheses",
        list_syntheses,
        "List syntheses",
        needs="read",
        tag="adjudication",
        query=Paged,
        answers={200: Answer("A page", {JSON: Content(SynthesisPage)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/syntheses/{id}",
        get_synthesis,
        "Show a synthesis",
        needs="read",
        tag="adjudication",
        answers={200: Answer("The synthesis", {JSON: Content(SynthesisView)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/adjudication-snapshot",
        get_snapshot,
        "Export all of adjudication",
        needs="read",
        tag="adjudication",
        answers={200: Answer("NDJSON; the same facts give the same bytes", {NDJSON: Content(_LINES)})},
        refuses=(NotFound,),
    ),
    Operation(
        "POST",
        "/adjudication-snapshot",
        post_snapshot,
        "Take over an export",
        needs="operate",
        tag="adjudication",
        description="Whole or not at all, by a store without other facts; every score is computed again.",
        body={NDJSON: Content(_LINES)},
        answers={200: Answer("What was stored", {JSON: Content(Imported)})},
        refuses=(NotFound, Conflict, SnapshotRefused),
    ),
)
