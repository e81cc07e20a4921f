"""Comparing runs, gates on them, and named baselines."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import JSON, parse_body
from app.api.examples import GATE_REQUEST
from app.api.operation import Answer, Content, Operation, json_response, services_of
from app.api.query import Paged, Query, SlicePath, parse_query, path_id
from app.errors import BadRequest, Conflict, NotFound
from app.gates.model import Baseline, BaselineRequest, GateRequest, GateVerdict
from app.gates.service import GateService
from app.runs.analysis import MAX_PATHS
from app.runs.comparison import ALPHA
from app.runs.contrasts import Comparison

_GATE = TypeAdapter(GateRequest)
_BASELINE = TypeAdapter(BaselineRequest)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)


def _decimal(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"\d{1,3}(\.\d{1,15})?", value, re.ASCII):
        raise ValueError("must be a decimal number")
    return value


class ComparisonQuery(Query):
    """What to compare with, and how closely to look."""

    baseline: Annotated[
        str,
        Field(
            min_length=1,
            max_length=128,
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
            description="The id of a run, or the name of a baseline",
        ),
    ]
    slice: Annotated[
        tuple[SlicePath, ...],
        Field(max_length=MAX_PATHS, description="JSON Pointer into an example along which to cut: `/input/category`"),
    ] = ()
    alpha: Annotated[
        float,
        BeforeValidator(_decimal),
        Field(ge=0.0001, le=0.5, description="Share of false alarms that is put up with"),
    ] = ALPHA


class DecisionPage(BaseModel):
    """Gate decisions on one run, newest first."""

    items: list[GateVerdict]
    next_cursor: str | None


class BaselinePage(BaseModel):
    """Baselines by name, without their history."""

    items: list[Baseline]
    next_cursor: str | None


def _gates(request: Request) -> GateService:
    gates = services_of(request).gates
    if gates is None:
        raise NotFound("this service has no gates")
    return gates


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    if not _NAME.fullmatch(name):
        raise NotFound("a baseline's name is made of up to 128 letters, digits, '.', '_' and '-'")
    return name


async def get_comparison(request: Request) -> Response:
    """Two runs, paired by example id."""
    run_id, query = path_id(request, "run"), parse_query(request, ComparisonQuery)
    made = await _gates(request).compare(run_id, query.baseline, slices=query.slice, alpha=query.alpha)
    return json_response(made)


async def post_gate(request: Request) -> Response:
    """Judge a run by a policy."""
    run_id = path_id(request, "run")
    asked = await parse_body(request, _GATE, services_of(request).settings.server.max_body_bytes)
    if asked.baseline is not None and not _NAME.fullmatch(asked.baseline):
        raise BadRequest("baseline must be the id of a run or the name of a baseline")
    return json_response(await _gates(request).gate(run_id, asked))


async def list_decisions(request: Request) -> Response:
    """Earlier decisions on a run."""
    run_id, query = path_id(request, "run"), parse_query(request, Paged)
    return json_response(await _gates(request).decisions(run_id, limit=query.limit, cursor=query.cursor))


async def put_baseline(request: Request) -> Response:
    """Point a baseline at a run."""
    name = _name(request)
    asked = await parse_body(request, _BASELINE, services_of(request).settings.server.max_body_bytes)
    return json_response(await _gates(request).move_baseline(name, asked.run_id))


async def list_baselines(request: Request) -> Response:
    """Every baseline."""
    query = parse_query(request, Paged)
    return json_response(await _gates(request).baselines(limit=query.limit, cursor=query.cursor))


async def get_baseline(request: Request) -> Response:
    """One baseline and where it pointed before."""
    return json_response(await _gates(request).baseline(_name(request)))


OPERATIONS = (
    Operation(
        "GET",
        "/runs/{id}/comparison",
        get_comparison,
        "Compare a run with a baseline",
        needs="read",
        tag="gates",
        description=(
            "Pairs are made by example id. Both runs may still be going on: `sequential` may be looked at as often as "
            "one likes."
        ),
        query=ComparisonQuery,
        answers={200: Answer("What changed, and whether it is real", {JSON: Content(Comparison)})},
        refuses=(NotFound,),
    ),
    Operation(
        "POST",
        "/runs/{id}/gate",
        post_gate,
        "Judge a run by a policy",
        needs="submit",
        tag="gates",
        description="The decision is stored with its policy. A verdict of BLOCK is an answer, not an error.",
        body={JSON: Content(GateRequest, GATE_REQUEST)},
        answers={200: Answer("The verdict", {JSON: Content(GateVerdict)})},
        refuses=(NotFound, Conflict),
    ),
    Operation(
        "GET",
        "/runs/{id}/gate",
        list_decisions,
        "List the gate decisions on a run",
        needs="read",
        tag="gates",
        query=Paged,
        answers={200: Answer("A page, newest first", {JSON: Content(DecisionPage)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/baselines",
        list_baselines,
        "List baselines",
        needs="read",
        tag="gates",
        query=Paged,
        answers={200: Answer("A page, by name", {JSON: Content(BaselinePage)})},
    ),
    Operation(
        "GET",
        "/baselines/{name}",
        get_baseline,
        "Show a baseline and its history",
        needs="read",
        tag="gates",
        answers={200: Answer("The baseline", {JSON: Content(Baseline)})},
        refuses=(NotFound,),
    ),
    Operation(
        "PUT",
        "/baselines/{name}",
        put_baseline,
        "Point a baseline at a run",
        needs="operate",
        tag="gates",
        description="Only a run that succeeded and that no gate blocked, unless a later one by the same policy let it "
        "pass. Twice is as good as once.",
        body={JSON: Content(BaselineRequest)},
        answers={200: Answer("The baseline as it is now", {JSON: Content(Baseline)})},
        refuses=(NotFound, Conflict),
    ),
)
