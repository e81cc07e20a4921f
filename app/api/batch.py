"""`POST /evaluate/batch`: many predictions in one request, answered in order, and batches accepted for later."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import anyio
from anyio.abc import TaskGroup
from pydantic import BaseModel, Field, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.batch_items import Bytes, Item, index_items
from app.api.body import JSON, NDJSON, NDJSON_TYPES, media_type, parse
from app.api.evaluate import ASYNC_HEADERS, PREFER, wants_async
from app.api.examples import EVALUATE_REQUEST, NDJSON_BATCH
from app.api.operation import Answer, Content, Operation, json_response, services_of
from app.api.problems import MAX_ERRORS, Problem, problem_body
from app.api.query import path_id
from app.api.resource import log_unexpected
from app.api.spool import mapped, spooled
from app.errors import FieldError, NotFound, Overloaded, ServiceError, TooLarge, Unavailable, Unprocessable
from app.evaluation.model import BatchStatus, EvaluateRequest
from app.evaluation.service import EvaluationService
from app.services import Services

_REQUEST = TypeAdapter(EvaluateRequest)
WINDOW = 64
"""Items of one batch under way at once."""
MAX_ACCEPTED_BYTES = 64_000_000
"""Size of a batch accepted for later, which is stored in one piece."""


class LineProblem(BaseModel):
    """Why an item has no evaluation. `line` counts from 1: lines of NDJSON, elements of an array."""

    line: int = Field(ge=1)
    problem: Problem


class AcceptedBatch(BaseModel):
    """Where an accepted batch will be found, and which of its items were refused at once."""

    batch_id: str
    status: str = Field("accepted", pattern="^accepted$")
    n_accepted: int
    evaluation_ids: list[str] = Field(description="In the order of the accepted items")
    problems: list[LineProblem]


class BatchReader:
    """Decodes the items of a batch; a refusal is the item's own."""

    def __init__(self, text: Bytes, path: str, max_item: int) -> None:
        self._text, self._path, self._max_item = text, path, max_item

    def request(self, item: Item) -> EvaluateRequest:
        """The item's request. Raises `ServiceError`."""
        if item.end - item.start > self._max_item:
            raise TooLarge(f"an item has at most {self._max_item:,} bytes")
        return parse(_REQUEST, self._text[item.start : item.end])

    def problem(self, item: Item, exc: ServiceError) -> dict[str, Any]:
        """The item's line in the answer when it has no evaluation."""
        return {"line": item.number, "problem": problem_body(exc, f"{self._path}#{item.number}")}


class _Slot:
    """One item under way: `answer` is set when `done`."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.answer = b""


class BatchAnswer(Response):
    """Evaluates and writes NDJSON as it goes, in the order of the items; a caller that hangs up stops it."""

    def __init__(self, reader: BatchReader, items: Iterable[Item], evaluations: EvaluationService) -> None:
        super().__init__(media_type=NDJSON)
        del self.headers["content-length"]
        self._reader, self._items, self._evaluations = reader, items, evaluations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Start the answer, then keep `WINDOW` items under way until all are written."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with anyio.create_task_group() as group:
            group.start_soon(self._stop_when_gone, receive, group.cancel_scope)
            await self._work(group, send)
            group.cancel_scope.cancel()

    async def _work(self, group: TaskGroup, send: Send) -> None:
        under_way: deque[_Slot] = deque()
        for item in self._items:
            if len(under_way) == WINDOW:
                await self._write_ready(under_way, send)
            under_way.append(slot := _Slot())
            group.start_soon(self._fill, slot, item)
        while under_way:
            await self._write_ready(under_way, send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write_ready(self, under_way: deque[_Slot], send: Send) -> None:
        """Wait for the oldest item, then write it and those after it that are done as well."""
        await under_way[0].done.wait()
        lines = []
        while under_way and under_way[0].done.is_set():
            lines += [under_way.popleft().answer, b"\n"]
        await send({"type": "http.response.body", "body": b"".join(lines), "more_body": True})

    async def _fill(self, slot: _Slot, item: Item) -> None:
        try:
            slot.answer = (await self._evaluations.evaluate_bytes(self._reader.request(item), wait=True)).body
        except ServiceError as exc:
            slot.answer = _line(self._reader.problem(item, exc))
        except Exception as exc:
            slot.answer = _line(self._reader.problem(item, log_unexpected(exc, f"batch item {item.number}")))
        slot.done.set()

    async def _stop_when_gone(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


async def post_batch(request: Request) -> Response:
    """Read the whole batch to a file first: a caller that sends and reads in turn can't be blocked that way."""
    services = services_of(request)
    array = media_type(request.scope, {JSON, *NDJSON_TYPES}) == JSON
    later = wants_async(request)
    limit = services.settings.server.max_upload_bytes
    async with spooled(request, min(limit, MAX_ACCEPTED_BYTES) if later else limit) as file:
        text = mapped(file)
    items = await asyncio.to_thread(index_items, text, array=array, limit=services.settings.server.max_batch)
    reader = BatchReader(text, "/evaluate/batch", services.settings.server.max_body_bytes)
    if later:
        return await _accept(reader, items, services)
    return BatchAnswer(reader, items, services.evaluations)


async def _accept(reader: BatchReader, items: list[Item], services: Services) -> Response:
    requests, problems = await asyncio.to_thread(_read_all, reader, items)
    if not requests:
        errors = [FieldError(f"/{problem.line - 1}", problem.problem.detail) for problem in problems[:MAX_ERRORS]]
        raise Unprocessable("none of the batch's items can be read", errors)
    batch_id, ids = await services.evaluations.accept_batch(requests)
    reply = AcceptedBatch(
        batch_id=batch_id, status="accepted", n_accepted=len(ids), evaluation_ids=list(ids), problems=problems
    )
    return json_response(reply, 202, {"location": f"/batches/{batch_id}", **ASYNC_HEADERS})


def _read_all(reader: BatchReader, items: list[Item]) -> tuple[list[EvaluateRequest], list[LineProblem]]:
    requests, problems = [], []
    for item in items:
        try:
            requests.append(reader.request(item))
        except ServiceError as exc:
            problems.append(LineProblem.model_validate(reader.problem(item, exc)))
    return requests, problems


async def get_batch(request: Request) -> Response:
    """How far an accepted batch is."""
    return json_response(await services_of(request).evaluations.get_batch(path_id(request, "batch")))


_LINES = {
    "type": "string",
    "description": "NDJSON: one evaluation, or one `{line, problem}`, for each item, in the order of the items",
}
_NDJSON_BODY = {"type": "string", "description": "NDJSON: one body of POST /evaluate on each line"}

OPERATIONS = (
    Operation(
        "POST",
        "/evaluate/batch",
        post_batch,
        "Evaluate many predictions",
        needs="submit",
        tag="evaluations",
        description=(
            "At most 10,000 bodies of `POST /evaluate`, as NDJSON or a JSON array. Answers come in the same order "
            "while the work goes on; a bad item is answered by a problem in its place and spoils no other. "
            "With `Prefer: respond-async` the batch is stored and worked off afterwards."
        ),
        body={
            NDJSON: Content(_NDJSON_BODY, NDJSON_BATCH),
            JSON: Content(list[EvaluateRequest], [EVALUATE_REQUEST]),
        },
        headers=PREFER,
        answers={
            200: Answer("One line for each item", {NDJSON: Content(_LINES)}),
            202: Answer(
                "Accepted; it survives a restart",
                {JSON: Content(AcceptedBatch)},
                {"Location": "Where the batch's progress is"},
            ),
        },
        refuses=(Overloaded, Unavailable),
    ),
    Operation(
        "GET",
        "/batches/{id}",
        get_batch,
        "Show how far an accepted batch is",
        needs="read",
        tag="evaluations",
        answers={200: Answer("Its progress and the ids of its evaluations", {JSON: Content(BatchStatus)})},
        refuses=(NotFound,),
    ),
)
