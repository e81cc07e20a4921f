"""`multipart/form-data` with the parts `dataset` (a file) and `request` (JSON), streamed and bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import BinaryIO

from python_multipart.exceptions import MultipartParseError
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from app.api.body import JSON, NDJSON_TYPES, chunks
from app.errors import BadRequest, FieldError, TooLarge, Unprocessable
from app.runs.dataset import Format, Source, format_of

MULTIPART = "multipart/form-data"
MAX_REQUEST_PART = 1_000_000
FORMATS: dict[str, Format] = {"text/csv": "csv", JSON: "json", **dict.fromkeys(NDJSON_TYPES, "ndjson")}
"""What a dataset may be sent as, by media type."""


@dataclass(frozen=True)
class Upload:
    """The two parts; `file` stands at its start."""

    request: bytes
    file: BinaryIO
    format: Format


@asynccontextmanager
async def uploaded(request: Request, limit: int) -> AsyncIterator[Upload]:
    """The parts of the body, of at most `limit` bytes in all.

    Raises `TooLarge`, `BadRequest` for a broken form, `Unprocessable` naming the part that is missing or one too many.
    """
    async with _form(request, limit) as form:
        dataset = _dataset(form, ("dataset", "request"))
        text = await _request_text(form.get("request"))
        yield Upload(text, dataset.file, _format(dataset))


@asynccontextmanager
async def uploaded_dataset(request: Request, limit: int) -> AsyncIterator[Source]:
    """The one part `dataset` of a form of at most `limit` bytes. Raises what `uploaded` raises."""
    async with _form(request, limit) as form:
        dataset = _dataset(form, ("dataset",))
        yield Source(dataset.file, _format(dataset))


@asynccontextmanager
async def _form(request: Request, limit: int) -> AsyncIterator[FormData]:
    parser = MultiPartParser(
        request.headers, chunks(request, limit), max_files=2, max_fields=2, max_part_size=MAX_REQUEST_PART
    )
    try:
        form = await parser.parse()
    except (MultiPartException, MultipartParseError, KeyError) as exc:
        raise BadRequest(f"the form can't be read: {getattr(exc, 'message', None) or 'broken parts'}") from None
    try:
        yield form
    finally:
        await form.close()


def _dataset(form: FormData, known: Sequence[str]) -> UploadFile:
    for name in form:
        if name not in known:
            raise _wrong(name, f"is not known; there {'is' if len(known) == 1 else 'are'} {' and '.join(known)}")
        if len(form.getlist(name)) > 1:
            raise _wrong(name, "is given more than once")
    dataset = form.get("dataset")
    if not isinstance(dataset, UploadFile):
        raise _wrong("dataset", "must be a file, with a name that ends in .json, .ndjson or .csv")
    return dataset


def _format(part: UploadFile) -> Format:
    """By the part's content type where that says it, else by the file name's ending."""
    name = (part.content_type or "").partition(";")[0].strip().lower()
    return FORMATS.get(name) or format_of(part.filename or "")


async def _request_text(part: UploadFile | str | None) -> bytes:
    if part is None:
        raise _wrong("request", "is missing; it holds the JSON that names the system")
    if isinstance(part, str):
        return part.encode("utf-8", "surrogatepass")
    if (part.size or 0) > MAX_REQUEST_PART:
        raise TooLarge(f"the part request has at most {MAX_REQUEST_PART:,} bytes")
    return await part.read()


def _wrong(name: str, message: str) -> Unprocessable:
    shown = name[:64].encode("utf-8", "replace").decode()
    return Unprocessable(f"the part {shown} {message}", [FieldError(f"/{shown}", message)])
