"""`/datasets`: store, name, list, read in several forms, and compare."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from pydantic import BaseModel, Field, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from app.api.body import JSON, NDJSON, media_type, parse_body
from app.api.examples import DATASET
from app.api.negotiation import negotiate
from app.api.operation import Answer, Content, Operation, json_response, services_of
from app.api.query import Paged, Query, parse_query
from app.api.spool import spooled
from app.api.submission import InlineDataset
from app.api.uploads import FORMATS, MULTIPART, uploaded_dataset
from app.datasets.model import (
    AddedDataset,
    Change,
    Dataset,
    DatasetDiff,
    DatasetName,
    DatasetVersion,
    Form,
    NamedDataset,
    NameRequest,
    StoredExample,
)
from app.datasets.service import DatasetService
from app.errors import NotAcceptable, NotFound, Unavailable
from app.runs.dataset import Source

CSV = "text/csv"
PARQUET = "application/vnd.apache.parquet"
_FORMS: dict[str, Form] = {NDJSON: "ndjson", CSV: "csv", PARQUET: "parquet"}
_ID = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NAME_REQUEST = TypeAdapter(NameRequest)


class AddQuery(Query):
    """What to call the dataset."""

    name: Annotated[
        DatasetName | None, Field(description="Make this content the newest version of a name, if it is not already")
    ] = None


class DiffQuery(Paged):
    """Which differences to list; the counts are always of all."""

    change: Annotated[Change | None, Field(description="List only one kind of difference")] = None


class DatasetPage(BaseModel):
    """Datasets, newest first."""

    items: list[Dataset]
    next_cursor: str | None


class NamePage(BaseModel):
    """Names with their newest versions, or the versions of one name, newest first."""

    items: list[NamedDataset]
    next_cursor: str | None


class ExamplePage(BaseModel):
    """Examples in the order of the dataset."""

    items: list[StoredExample]
    next_cursor: str | None


async def post_dataset(request: Request) -> Response:
    """Store a dataset while it comes in."""
    query = parse_query(request, AddQuery)
    async with _sent(request, services_of(request).settings.server.max_upload_bytes) as source:
        added = await _datasets(request).add(source, name=query.name)
    return json_response(added, 201 if added.created else 200, {"location": f"/datasets/{added.dataset_id}"})


@asynccontextmanager
async def _sent(request: Request, limit: int) -> AsyncIterator[Source]:
    """The file, whether it is the body or a part of a form."""
    given = media_type(request.scope, (*FORMATS, MULTIPART))
    if given == MULTIPART:
        async with uploaded_dataset(request, limit) as source:
            yield source
    else:
        async with spooled(request, limit) as file:
            yield Source(file, FORMATS[given])


async def list_datasets(request: Request) -> Response:
    """Datasets, newest first."""
    query = parse_query(request, Paged)
    return json_response(await _datasets(request).list(limit=query.limit, cursor=query.cursor))


async def get_dataset(request: Request) -> Response:
    """One dataset."""
    return json_response(await _datasets(request).get(_path_hash(request, "id")))


async def get_examples(request: Request) -> Response:
    """A page of JSON, or all examples in another form."""
    written = negotiate(request.scope, (JSON, *_FORMS))
    query = parse_query(request, Paged)
    datasets, dataset_id = _datasets(request), _path_hash(request, "id")
    if written == JSON:
        return json_response(await datasets.examples(dataset_id, limit=query.limit, cursor=query.cursor))
    form = _FORMS[written]
    pieces = await datasets.export(dataset_id, form)
    name = f"{dataset_id.removeprefix('sha256:')[:16]}.{form}"
    headers = {"content-disposition": f'attachment; filename="{name}"', "vary": "Accept"}
    kind = f"{CSV}; charset=utf-8" if written == CSV else written
    return StreamingResponse(pieces, media_type=kind, headers=headers)


async def get_diff(request: Request) -> Response:
    """How two datasets differ."""
    query = parse_query(request, DiffQuery)
    diff = await _datasets(request).diff(
        _path_hash(request, "id"),
        _path_hash(request, "other"),
        change=query.change,
        limit=query.limit,
        cursor=query.cursor,
    )
    return json_response(diff)


async def list_names(request: Request) -> Response:
    """Every name with its newest version."""
    query = parse_query(request, Paged)
    return json_response(await _datasets(request).names(limit=query.limit, cursor=query.cursor))


async def get_name(request: Request) -> Response:
    """The versions of a name."""
    query = parse_query(request, Paged)
    page = await _datasets(request).versions(_path_name(request), limit=query.limit, cursor=query.cursor)
    return json_response(page)


async def post_name(request: Request) -> Response:
    """Let a name point at a stored dataset."""
    name = _path_name(request)
    limit = services_of(request).settings.server.max_body_bytes
    body = await parse_body(request, _NAME_REQUEST, limit)
    version, made = await _datasets(request).name(name, body.dataset_id)
    return json_response(version, 201 if made else 200)


def _datasets(request: Request) -> DatasetService:
    datasets = services_of(request).datasets
    if datasets is None:
        raise Unavailable("this service keeps no datasets")
    return datasets


def _path_hash(request: Request, part: str) -> str:
    text: str = request.path_params[part]
    if not _ID.fullmatch(text):
        raise NotFound("there is no dataset with this id; an id is sha256: and 64 hexadecimal digits")
    return text


def _path_name(request: Request) -> str:
    text: str = request.path_params["name"]
    if not _NAME.fullmatch(text):
        raise NotFound("no dataset can have this name; a name is 1 to 128 letters, digits, dots, dashes, underscores")
    return text


_FILE = {
    "type": "object",
    "properties": {"dataset": {"type": "string", "format": "binary", "description": "A .json, .ndjson or .csv file"}},
    "required": ["dataset"],
    "additionalProperties": False,
}
_TEXT = {"type": "string"}
_ADDED = {JSON: Content(AddedDataset)}
_LOCATION = {"Location": "The dataset"}

OPERATIONS = (
    Operation(
        "POST",
        "/datasets",
        post_dataset,
        "Store a dataset",
        needs="submit",
        tag="datasets",
        description=(
            "Send the file as the body (JSON, NDJSON or CSV) or as the part `dataset` of a form. It is read while it "
            "comes in and stored once by its content, so the same post again changes nothing. CSV columns as for runs."
        ),
        query=AddQuery,
        body={
            JSON: Content(InlineDataset, DATASET),
            NDJSON: Content({**_TEXT, "description": "One example on each line"}),
            CSV: Content({**_TEXT, "description": "A header line, then one line for each example"}),
            MULTIPART: Content(_FILE),
        },
        answers={
            201: Answer("Stored", _ADDED, _LOCATION),
            200: Answer("The content was there already", _ADDED, _LOCATION),
        },
        refuses=(Unavailable,),
    ),
    Operation(
        "GET",
        "/datasets",
        list_datasets,
        "List datasets, newest first",
        needs="read",
        tag="datasets",
        query=Paged,
        answers={200: Answer("A page", {JSON: Content(DatasetPage)})},
    ),
    Operation(
        "GET",
        "/datasets/names",
        list_names,
        "List names with their newest versions",
        needs="read",
        tag="datasets",
        query=Paged,
        answers={200: Answer("A page", {JSON: Content(NamePage)})},
    ),
    Operation(
        "GET",
        "/datasets/names/{name}",
        get_name,
        "List the versions of a name, newest first",
        needs="read",
        tag="datasets",
        query=Paged,
        answers={200: Answer("A page", {JSON: Content(NamePage)})},
        refuses=(NotFound,),
    ),
    Operation(
        "POST",
        "/datasets/names/{name}",
        post_name,
        "Let a name point at a stored dataset",
        needs="submit",
        tag="datasets",
        description="Adds a version, unless the newest one is that dataset already.",
        body={JSON: Content(NameRequest)},
        answers={
            201: Answer("A new version", {JSON: Content(DatasetVersion)}),
            200: Answer("The newest version is this dataset already", {JSON: Content(DatasetVersion)}),
        },
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/datasets/{id}",
        get_dataset,
        "Show a dataset and its names",
        needs="read",
        tag="datasets",
        answers={200: Answer("The dataset", {JSON: Content(Dataset)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/datasets/{id}/examples",
        get_examples,
        "Read a dataset's examples",
        needs="read",
        tag="datasets",
        description=(
            "By `Accept`: a page of JSON, or all examples as a stream of NDJSON, CSV or Parquet. NDJSON holds the very "
            "bytes whose hash is the dataset's id. CSV is safe in a spreadsheet and comes back as the same dataset: "
            "its empty column `csv_quoting=apostrophe` tells that one apostrophe in front of a text is not part of it. "
            "Parquet needs the extra `parquet`."
        ),
        query=Paged,
        answers={
            200: Answer(
                "Examples in the order of the dataset",
                {
                    JSON: Content(ExamplePage),
                    NDJSON: Content({**_TEXT, "description": "One example on each line"}),
                    CSV: Content({**_TEXT, "description": "A header line, then one line for each example"}),
                    PARQUET: Content({**_TEXT, "format": "binary", "description": "One row for each example"}),
                },
            )
        },
        refuses=(NotFound, NotAcceptable),
    ),
    Operation(
        "GET",
        "/datasets/{id}/diff/{other}",
        get_diff,
        "Compare two datasets",
        needs="read",
        tag="datasets",
        description="Examples are paired by id. `added`, `removed` and `changed` lead from the first to the second.",
        query=DiffQuery,
        answers={200: Answer("Counts of all differences, and a page of them", {JSON: Content(DatasetDiff)})},
        refuses=(NotFound,),
    ),
)
