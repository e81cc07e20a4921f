"""Hypotheses, evidence and adjudications: state, show, assert, ask, read."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from app.adjudication.model import (
    AdjudicationRecord,
    AdjudicationRequest,
    Assertion,
    Evidence,
    HypothesisView,
    NewAssertion,
    NewEvidence,
    NewHypothesis,
    RecordFilters,
    RunView,
    Transition,
)
from app.adjudication.service import AdjudicationService
from app.api.body import JSON, parse_body
from app.api.examples import ADJUDICATION_REQUEST, EVIDENCE_REQUEST, HYPOTHESIS_REQUEST
from app.api.operation import Answer, Content, Operation, json_response, services_of
from app.api.query import Paged, Text, parse_query, path_id
from app.errors import NotFound
from layers.adjudication import Outcome
from layers.adjudication_rules import Qualification

_HYPOTHESIS, _EVIDENCE = TypeAdapter(NewHypothesis), TypeAdapter(NewEvidence)
_ASSERTION, _ADJUDICATION = TypeAdapter(NewAssertion), TypeAdapter(AdjudicationRequest)


class HypothesesQuery(Paged):
    """Which hypotheses to list."""

    qualification: Annotated[Qualification | None, Field(description="How they must stand")] = None


class RecordsQuery(Paged):
    """Which records to list; all conditions hold at once."""

    run_id: Text | None = None
    hypothesis_id: Text | None = None
    evidence_id: Text | None = None
    outcome: Outcome | None = None


class HypothesisPage(BaseModel):
    """Hypotheses as they stand, newest first."""

    items: list[HypothesisView]
    next_cursor: str | None


class EvidencePage(BaseModel):
    """Evidence, newest first."""

    items: list[Evidence]
    next_cursor: str | None


class TransitionPage(BaseModel):
    """How a hypothesis came to stand as it does, oldest first."""

    items: list[Transition]
    next_cursor: str | None


class AdjudicationPage(BaseModel):
    """Adjudications, newest first."""

    items: list[RunView]
    next_cursor: str | None


class AdjudicationRecordPage(BaseModel):
    """Records of pairs, newest first."""

    items: list[AdjudicationRecord]
    next_cursor: str | None


def adjudications_of(request: Request) -> AdjudicationService:
    """The service. Raises `NotFound` where there is none."""
    service = services_of(request).adjudications
    if service is None:
        raise NotFound("this service adjudicates nothing")
    return service


def _limit(request: Request) -> int:
    return services_of(request).settings.server.max_body_bytes


async def post_hypothesis(request: Request) -> Response:
    """Store a statement, or find the one that it matches."""
    view = await adjudications_of(request).add_hypothesis(await parse_body(request, _HYPOTHESIS, _limit(request)))
    headers = {"location": f"/hypotheses/{view.hypothesis_id}"}
    return json_response(view, 200 if view.existing else 201, headers)


async def list_hypotheses(request: Request) -> Response:
    """Hypotheses as they stand."""
    query = parse_query(request, HypothesesQuery)
    page = await adjudications_of(request).hypotheses(query.qualification, limit=query.limit, cursor=query.cursor)
    return json_response(page)


async def get_hypothesis(request: Request) -> Response:
    """One hypothesis with its links and assertions."""
    return json_response(await adjudications_of(request).hypothesis(path_id(request, "hypothesis")))


async def get_transitions(request: Request) -> Response:
    """How its score came about."""
    query = parse_query(request, Paged)
    hypothesis_id = path_id(request, "hypothesis")
    page = await adjudications_of(request).transitions(hypothesis_id, limit=query.limit, cursor=query.cursor)
    return json_response(page)


async def post_assertion(request: Request) -> Response:
    """Record what somebody declares."""
    service, hypothesis_id = adjudications_of(request), path_id(request, "hypothesis")
    new = await parse_body(request, _ASSERTION, _limit(request))
    return json_response(await service.add_assertion(hypothesis_id, new), 201)


async def post_evidence(request: Request) -> Response:
    """Store a piece of evidence."""
    piece = await adjudications_of(request).add_evidence(await parse_body(request, _EVIDENCE, _limit(request)))
    return json_response(piece, 201, {"location": f"/evidence/{piece.evidence_id}"})


async def list_evidence(request: Request) -> Response:
    """Evidence, newest first."""
    query = parse_query(request, Paged)
    return json_response(await adjudications_of(request).evidence_page(limit=query.limit, cursor=query.cursor))


async def get_evidence(request: Request) -> Response:
    """One piece of evidence."""
    return json_response(await adjudications_of(request).evidence(path_id(request, "evidence")))


async def post_adjudication(request: Request) -> Response:
    """Accept a run over every pair."""
    run = await adjudications_of(request).adjudicate(await parse_body(request, _ADJUDICATION, _limit(request)))
    return json_response(run, 202, {"location": f"/adjudications/{run.run_id}"})


async def list_adjudications(request: Request) -> Response:
    """Runs, newest first."""
    query = parse_query(request, Paged)
    return json_response(await adjudications_of(request).runs(limit=query.limit, cursor=query.cursor))


async def get_adjudication(request: Request) -> Response:
    """One run and how far it is."""
    return json_response(await adjudications_of(request).run(path_id(request, "adjudication")))


async def list_records(request: Request) -> Response:
    """Records of pairs."""
    query = parse_query(request, RecordsQuery)
    filters = RecordFilters(**query.model_dump(exclude={"limit", "cursor"}))
    return json_response(await adjudications_of(request).records(filters, limit=query.limit, cursor=query.cursor))


async def get_record(request: Request) -> Response:
    """One record in full."""
    return json_response(await adjudications_of(request).record(path_id(request, "adjudication record")))


OPERATIONS = (
    Operation(
        "POST",
        "/hypotheses",
        post_hypothesis,
        "State a hypothesis",
        needs="submit",
        tag="adjudication",
        description=(
            "It starts unresolved. Evidence named with it is recorded as an assertion of `by`, which never weighs in "
            "the score. A statement that matches a stored one (but for case and blanks) is that one."
        ),
        body={JSON: Content(NewHypothesis, HYPOTHESIS_REQUEST)},
        answers={
            200: Answer("It was there already", {JSON: Content(HypothesisView)}, {"Location": "The hypothesis"}),
            201: Answer("Stored", {JSON: Content(HypothesisView)}, {"Location": "The hypothesis"}),
        },
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/hypotheses",
        list_hypotheses,
        "List hypotheses as they stand",
        needs="read",
        tag="adjudication",
        query=HypothesesQuery,
        answers={200: Answer("A page", {JSON: Content(HypothesisPage)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/hypotheses/{id}",
        get_hypothesis,
        "Show a hypothesis with its links and assertions",
        needs="read",
        tag="adjudication",
        answers={200: Answer("The hypothesis", {JSON: Content(HypothesisView)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/hypotheses/{id}/transitions",
        get_transitions,
        "Show how a hypothesis came to stand as it does",
        needs="read",
        tag="adjudication",
        query=Paged,
        answers={200: Answer("A page, oldest first", {JSON: Content(TransitionPage)})},
        refuses=(NotFound,),
    ),
    Operation(
        "POST",
        "/hypotheses/{id}/assertions",
        post_assertion,
        "Declare how evidence relates to a hypothesis",
        needs="submit",
        tag="adjudication",
        description="Recorded with who says it, and never passed off as an inference: no score changes.",
        body={JSON: Content(NewAssertion)},
        answers={201: Answer("Recorded", {JSON: Content(Assertion)})},
        refuses=(NotFound,),
    ),
    Operation(
        "POST",
        "/evidence",
        post_evidence,
        "Store a piece of evidence",
        needs="submit",
        tag="adjudication",
        description="Before anybody interprets it. The same text of the same source is one piece.",
        body={JSON: Content(NewEvidence, EVIDENCE_REQUEST)},
        answers={201: Answer("Stored", {JSON: Content(Evidence)}, {"Location": "The evidence"})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/evidence",
        list_evidence,
        "List evidence",
        needs="read",
        tag="adjudication",
        query=Paged,
        answers={200: Answer("A page", {JSON: Content(EvidencePage)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/evidence/{id}",
        get_evidence,
        "Show a piece of evidence",
        needs="read",
        tag="adjudication",
        answers={200: Answer("The evidence", {JSON: Content(Evidence)})},
        refuses=(NotFound,),
    ),
    Operation(
        "POST",
        "/adjudications",
        post_adjudication,
        "Adjudicate hypotheses by evidence",
        needs="submit",
        tag="adjudication",
        description=(
            "Every hypothesis with every piece of evidence; finished adjudications of the same pair are reused. What "
            "the caller suggests or looks for is untrusted context."
        ),
        body={JSON: Content(AdjudicationRequest, ADJUDICATION_REQUEST)},
        answers={202: Answer("Accepted; it survives a restart", {JSON: Content(RunView)}, {"Location": "The run"})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/adjudications",
        list_adjudications,
        "List adjudications",
        needs="read",
        tag="adjudication",
        query=Paged,
        answers={200: Answer("A page", {JSON: Content(AdjudicationPage)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/adjudications/{id}",
        get_adjudication,
        "Show an adjudication and its progress",
        needs="read",
        tag="adjudication",
        answers={200: Answer("The adjudication", {JSON: Content(RunView)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/adjudication-records",
        list_records,
        "List what came of pairs",
        needs="read",
        tag="adjudication",
        query=RecordsQuery,
        answers={200: Answer("A page", {JSON: Content(AdjudicationRecordPage)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/adjudication-records/{id}",
        get_record,
        "Show a record in full",
        needs="read",
        tag="adjudication",
        answers={200: Answer("The record", {JSON: Content(AdjudicationRecord)})},
        refuses=(NotFound,),
    ),
)
