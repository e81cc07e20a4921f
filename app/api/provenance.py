"""Proofs: the record behind an evaluation, and the append-only log it stands in."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import JSON
from app.api.evaluate import RevisionQuery
from app.api.operation import Answer, Content, Operation, json_response, services_of
from app.api.query import Query, Size, parse_query, path_id
from app.errors import NotFound
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
