"""`/runs`: submit, watch, stop, and read what came out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from app.api.body import JSON, NDJSON
from app.api.examples import RUN_REQUEST
from app.api.negotiation import negotiate
from app.api.operation import Answer, Content, Header, Operation, json_response, services_of
from app.api.query import LabelText, Paged, Text, Truth, parse_query, path_id
from app.api.submission import RunSubmission, submitted
from app.api.uploads import MULTIPART
from app.errors import Conflict, NotAcceptable, NotFound, Overloaded, Unavailable
from app.runs.model import Record, RecordFilters, Run, RunFilters, RunStatus
from app.runs.service import RunService

CSV = "text/csv"
Steer: TypeAlias = Callable[[RunService, str], Awaitable[Run]]


class RunsQuery(Paged):
    """Which runs to list; all conditions hold at once."""

    system: Text | None = None
    status: RunStatus | None = None
    dataset_id: Text | None = None
    name: Text | None = None


class RecordsQuery(Paged):
    """Which records to show; `limit` and `cursor` concern the JSON page alone, the streams hold all."""

    status: Literal["scored", "failed"] | None = None
    correct: Truth | None = None
    expected_label: LabelText | None = None
    scored_label: LabelText | None = None
    error_kind: Text | None = None
    current: Annotated[Truth, Field(description="Leave out attempts that a later one replaced")] = True


class RunPage(BaseModel):
    """Runs, newest first."""

    items: list[Run]
    next_cursor: str | None


class RecordPage(BaseModel):
    """Records in the order of the dataset."""

    items: list[Record]
    next_cursor: str | None


async def post_run(request: Request) -> Response:
    """Store the dataset and start the run."""
    services = services_of(request)
    async with submitted(request, services.settings) as submission:
        run = await services.runs.submit(
            submission.request, submission.dataset, idempotency_key=submission.idempotency_key
        )
    return json_response(run, 202, {"location": f"/runs/{run.run_id}"})


async def list_runs(request: Request) -> Response:
    """Runs, newest first."""
    query = parse_query(request, RunsQuery)
    filters = RunFilters(**query.model_dump(exclude={"limit", "cursor"}))
    return json_response(await services_of(request).runs.list(filters, limit=query.limit, cursor=query.cursor))


async def get_run(request: Request) -> Response:
    """One run with its progress."""
    return json_response(await services_of(request).runs.get(path_id(request, "run")))


async def get_records(request: Request) -> Response:
    """The run's records: a page of JSON, or all of them as NDJSON or CSV."""
    written = negotiate(request.scope, (JSON, NDJSON, CSV))
    query = parse_query(request, RecordsQuery)
    filters = RecordFilters(**query.model_dump(exclude={"limit", "cursor"}))
    runs, run_id = services_of(request).runs, path_id(request, "run")
    if written == JSON:
        return json_response(await runs.records(run_id, filters, limit=query.limit, cursor=query.cursor))
    await runs.get(run_id)  # a missing run is found out before the answer begins
    if written == CSV:
        return _stream(runs.export(run_id, filters, "csv"), f"{CSV}; charset=utf-8", f"{run_id}.csv")
    return _stream(runs.export(run_id, filters, "ndjson"), NDJSON, f"{run_id}.ndjson")


def _stream(pieces: AsyncIterator[bytes], media_type: str, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"', "vary": "Accept"}
    return StreamingResponse(pieces, media_type=media_type, headers=headers)


def _steer(act: Steer) -> Callable[[Request], Awaitable[Response]]:
    async def handler(request: Request) -> Response:
        return json_response(await act(services_of(request).runs, path_id(request, "run")))

    return handler


_RUN = {JSON: Content(Run)}
_UPLOAD = {
    "type": "object",
    "properties": {
        "dataset": {"type": "string", "format": "binary", "description": "A .json, .ndjson or .csv file"},
        "request": {"type": "string", "description": "The JSON of a run without its dataset"},
    },
    "required": ["dataset", "request"],
    "additionalProperties": False,
}

_STEERING: tuple[tuple[str, Steer, str], ...] = (
    ("cancel", lambda runs, run_id: runs.cancel(run_id), "Stop a run; what was recorded stays"),
    ("pause", lambda runs, run_id: runs.pause(run_id), "Pause a run"),
    ("resume", lambda runs, run_id: runs.resume(run_id), "Go on with a paused run"),
    ("retry", lambda runs, run_id: runs.retry(run_id), "Ask again about what failed, as a new attempt"),
)

OPERATIONS = (
    Operation(
        "POST",
        "/runs",
        post_run,
        "Start a run",
        needs="submit",
        tag="runs",
        description=(
            "Send JSON with the dataset inside, or a form whose part `dataset` is a file and whose part `request` is "
            "the same JSON without it. CSV columns: `expected_label`, `id`, `group`, and `input.<path>` or `input` "
            "holding JSON. With an `Idempotency-Key` the same post again answers the run that the first one made."
        ),
        body={JSON: Content(RunSubmission, RUN_REQUEST), MULTIPART: Content(_UPLOAD)},
        headers=(
            Header(
                "Idempotency-Key",
                "Names this post, so that a repeat makes no second run",
                {"type": "string", "pattern": r"^[!-~]{1,255}$"},
            ),
        ),
        answers={202: Answer("Accepted; it survives a restart", _RUN, {"Location": "The run"})},
        refuses=(NotFound, Conflict, Overloaded, Unavailable),
    ),
    Operation(
        "GET",
        "/runs",
        list_runs,
        "List runs, newest first",
        needs="read",
        tag="runs",
        query=RunsQuery,
        answers={200: Answer("A page", {JSON: Content(RunPage)})},
    ),
    Operation(
        "GET",
        "/runs/{id}",
        get_run,
        "Show a run and its progress",
        needs="read",
        tag="runs",
        answers={200: Answer("The run", _RUN)},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/runs/{id}/records",
        get_records,
        "Read a run's records",
        needs="read",
        tag="runs",
        description="By `Accept`: a page of JSON, or all records as a stream of NDJSON or CSV.",
        query=RecordsQuery,
        answers={
            200: Answer(
                "Records in the order of the dataset",
                {
                    JSON: Content(RecordPage),
                    NDJSON: Content({"type": "string", "description": "One record on each line"}),
                    CSV: Content({"type": "string", "description": "A header line, then one line for each record"}),
                },
            )
        },
        refuses=(NotFound, NotAcceptable),
    ),
    *(
        Operation(
            "POST",
            f"/runs/{{id}}/{name}",
            _steer(act),
            summary,
            needs="submit",
            tag="runs",
            answers={200: Answer("The run as it stands now", _RUN)},
            refuses=(NotFound, Conflict),
        )
        for name, act, summary in _STEERING
    ),
)
