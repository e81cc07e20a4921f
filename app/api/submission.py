"""Reading what `POST /runs` is sent: JSON with the dataset inside, or a form with the dataset as a file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from pydantic import Field, TypeAdapter
from starlette.requests import Request

from app.api.body import JSON, decode, header, media_type, parse, read_body
from app.api.uploads import MULTIPART, uploaded
from app.errors import BadRequest, FieldError, Unprocessable
from app.runs.dataset import Source, check_unique, examples_of
from app.runs.model import RunOptions, RunRequest
from app.runs.parsing import DatasetError
from app.settings import Settings
from layers.model import EvalDataset, EvalExample, Value

MAX_INLINE = 64_000_000
"""Bytes of a JSON body with the dataset inside, which has to be held in memory; larger ones are uploaded."""

Dataset: TypeAlias = EvalDataset | Source | None


class InlineDataset(Value):
    """Labelled examples, at least one; ids must differ."""

    examples: Annotated[list[EvalExample], Field(min_length=1)]


class RunSubmission(RunRequest):
    """A run with its dataset, or with the id of a stored one."""

    dataset: InlineDataset | None = None


_REQUEST = TypeAdapter(RunRequest)


@dataclass(frozen=True)
class Submission:
    """What to run, on what, and the key under which a repeat of the same post is recognised."""

    request: RunRequest
    dataset: Dataset
    idempotency_key: str | None


@asynccontextmanager
async def submitted(request: Request, settings: Settings) -> AsyncIterator[Submission]:
    """The body, whichever form it has; an uploaded file is there until the context ends."""
    key = idempotency_key(request)
    upload_limit = settings.server.max_upload_bytes
    if media_type(request.scope, (JSON, MULTIPART)) == MULTIPART:
        async with uploaded(request, upload_limit) as upload:
            body = _read_request(upload.request)
            if body.dataset_id is not None:
                raise _one_dataset()
            yield Submission(body, Source(upload.file, upload.format), key)
    else:
        data = await read_body(request, min(upload_limit, MAX_INLINE))
        body, dataset = await asyncio.to_thread(_inline, data, settings.runs.max_examples)
        yield Submission(body, dataset, key)


def _inline(data: bytes, max_examples: int) -> tuple[RunRequest, Dataset]:
    value = decode(data)
    given: Any = value.pop("dataset", None) if isinstance(value, dict) else None
    body = _read_request(json.dumps(value).encode())
    if (given is None) == (body.dataset_id is None):
        raise _one_dataset()
    return body, None if given is None else _examples(given, max_examples)


def _read_request(data: bytes) -> RunRequest:
    """The request; an option that stands beside `options` is told where it belongs."""
    try:
        return parse(_REQUEST, data)
    except Unprocessable as exc:
        strays = [error.pointer[1:] for error in exc.errors if error.pointer[1:] in RunOptions.model_fields]
        if not strays:
            raise
        message = f'write {{"options": {{"{strays[0]}": ...}}}}'
        fields = [
            FieldError(error.pointer, f"it belongs inside `options`: {message}")
            if error.pointer[1:] in strays
            else error
            for error in exc.errors
        ]
        raise Unprocessable(f"`{strays[0]}` belongs inside `options`: {message}", fields) from None


def _examples(given: Any, max_examples: int) -> EvalDataset:
    try:
        examples = tuple(examples_of(given, max_examples=max_examples))
        check_unique(example.id or "" for example in examples)
    except DatasetError as exc:
        exc.errors = tuple(FieldError(f"/dataset{error.pointer}", error.message) for error in exc.errors)
        raise
    return EvalDataset(examples=examples)


def _one_dataset() -> Unprocessable:
    message = "give either the dataset or the dataset_id of a stored one"
    return Unprocessable(f"which dataset? {message}", [FieldError("/dataset", message)])


def idempotency_key(request: Request) -> str | None:
    """The `Idempotency-Key` header. Raises `BadRequest` unless it is 1 to 255 visible ASCII characters."""
    value = header(request.scope, b"idempotency-key")
    if value is None:
        return None
    if not 1 <= len(value) <= 255 or not all(33 <= byte <= 126 for byte in value):
        raise BadRequest("the header Idempotency-Key must be 1 to 255 visible ASCII characters")
    return value.decode("ascii")
