"""Proofs: the record behind an evaluation, and the append-only log it stands in."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import JSON, parse_body
from app.api.evaluate import RevisionQuery
from app.api.operation import Answer, Content, Operation, json_response, services_of
from app.api.query import Query, Size, parse_query, path_id
from app.errors import Conflict, NotFound, Unavailable
from app.evaluation.erasure import Erased
from app.log.model import ConsistencyProof, InclusionProof, LogKeys, ProvenanceBundle, TreeHead
from app.log.service import LogService


class BundleQuery(RevisionQuery):
    """Which revision to prove, and against which older head."""

    since: Annotated[Size | None, Field(description="Size of an older head, to prove that the log only grew")] = None


class ConsistencyQuery(Query):
    """Which two sizes of the log to compare."""

    first: Annotated[Size, Field(description="Size of the older head")]
    second: Annotated[Size | None, Field(description="Size of the newer head; now by default")] = None


class InclusionQuery(Query):
    """Which entry to prove, in the log of which size."""

    index: Annotated[Size, Field(description="`log_index` of the evaluation")]
    tree_size: Annotated[Size | None, Field(description="Now by default")] = None


StageName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]


class EraseRequest(BaseModel):
    """Which stages to erase, of which revision."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stages: Annotated[tuple[StageName, ...], Field(min_length=1, max_length=64, description="Names in the bundle")]
    revision: Annotated[int | None, Field(ge=1, le=1_000_000, description="Every one by default")] = None


_ERASE = TypeAdapter(EraseRequest)
ERASE_REQUEST = {"stages": ["input", "evidence", "prompt", "model_output", "verification", "verdict"]}


def _log(request: Request) -> LogService:
    log = services_of(request).log
    if log is None:
        raise NotFound("this service keeps no log")
    return log


async def get_provenance(request: Request) -> Response:
    """Everything needed to check one evaluation without the service."""
    query = parse_query(request, BundleQuery)
    bundle = await _log(request).bundle(path_id(request, "evaluation"), query.revision, since=query.since)
    return json_response(bundle)


async def post_erase(request: Request) -> Response:
    """Erase what was recorded; what proves it stays."""
    evaluation_id = path_id(request, "evaluation")
    services = services_of(request)
    body = await parse_body(request, _ERASE, services.settings.server.max_body_bytes)
    return json_response(await services.evaluations.erase(evaluation_id, body.stages, body.revision))


async def get_key(request: Request) -> Response:
    """The public key that signs heads."""
    return json_response(_log(request).keys())


async def get_head(request: Request) -> Response:
    """The log as it is now, signed."""
    return json_response(await _log(request).head())


async def get_consistency(request: Request) -> Response:
    """That the log only grew between two sizes."""
    query = parse_query(request, ConsistencyQuery)
    return json_response(await _log(request).consistency(query.first, query.second))


async def get_inclusion(request: Request) -> Response:
    """That an entry stands in the log."""
    query = parse_query(request, InclusionQuery)
    return json_response(await _log(request).inclusion(query.index, query.tree_size))


OPERATIONS = (
    Operation(
        "GET",
        "/evaluations/{id}/provenance",
        get_provenance,
        "Prove an evaluation",
        needs="read",
        tag="provenance",
        description="`arbiter-l8 verify` checks the bundle without the service.",
        query=BundleQuery,
        answers={200: Answer("Stages, commitments, and proofs", {JSON: Content(ProvenanceBundle)})},
        refuses=(NotFound,),
    ),
    Operation(
        "POST",
        "/evaluations/{id}/erase",
        post_erase,
        "Erase stages of an evaluation",
        needs="operate",
        tag="provenance",
        description=(
            "Payload and salt go, hashes, root and log stay. With `input` go the copies in accepted work, with "
            "`verdict` the content of the stored answer; after either, the same content is evaluated anew. Name all "
            "stages that hold what has to go. What is accepted and not done has its `input` alone: it then fails as "
            "`erased`, and nothing is stored for it. Evaluations that re-examine this one for the audit sample have an "
            "id of their own."
        ),
        body={JSON: Content(EraseRequest, ERASE_REQUEST)},
        answers={200: Answer("What was erased", {JSON: Content(Erased)})},
        refuses=(NotFound, Conflict, Unavailable),
    ),
    Operation(
        "GET",
        "/log/key",
        get_key,
        "Show the key that signs the log",
        needs="read",
        tag="provenance",
        answers={200: Answer("The public key, and earlier ones", {JSON: Content(LogKeys)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/log/head",
        get_head,
        "Show the log's signed head",
        needs="read",
        tag="provenance",
        description="Whoever keeps a head can prove later that nothing before it was changed.",
        answers={200: Answer("The head", {JSON: Content(TreeHead)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/log/consistency",
        get_consistency,
        "Prove that the log only grew",
        needs="read",
        tag="provenance",
        query=ConsistencyQuery,
        answers={200: Answer("The proof (RFC 9162, 2.1.4)", {JSON: Content(ConsistencyProof)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/log/inclusion",
        get_inclusion,
        "Prove that an entry stands in the log",
        needs="read",
        tag="provenance",
        query=InclusionQuery,
        answers={200: Answer("The proof (RFC 9162, 2.1.3)", {JSON: Content(InclusionProof)})},
        refuses=(NotFound,),
    ),
)
