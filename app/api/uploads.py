"""`multipart/form-data` with the parts `dataset` (a file) and `request` (JSON), streamed and bounded."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from python_multipart.exceptions import MultipartParseError
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from app.api.body import chunks
from app.errors import BadRequest, FieldError, TooLarge, Unprocessable

MULTIPART = "multipart/form-data"
MAX_REQUEST_PART = 1_000_000
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Upload:
    """The two parts. `file` stands at its start; `body_hash` identifies both parts whatever the boundary was."""

    request: bytes
    file: BinaryIO
    file_name: str
    body_hash: str


@asynccontextmanager
async def uploaded(request: Request, limit: int) -> AsyncIterator[Upload]:
    """The parts of the body, of at most `limit` bytes in all.

    Raises `TooLarge`, `BadRequest` for a broken form, `Unprocessable` naming the part that is missing or one too many.
    """
    parser = MultiPartParser(
        request.headers, chunks(request, limit), max_files=2, max_fields=2, max_part_size=MAX_REQUEST_PART
    )
    try:
        form = await parser.parse()
    except (MultiPartException, MultipartParseError, KeyError) as exc:
        raise BadRequest(f"the form can't be read: {getattr(exc, 'message', None) or 'broken parts'}") from None
    try:
        yield await _parts(form)
    finally:
        await form.close()


async def _parts(form: FormData) -> Upload:
    for name in form:
        if name not in {"dataset", "request"}:
            raise _wrong(name, "is not known; the parts are dataset and request")
        if len(form.getlist(name)) > 1:
            raise _wrong(name, "is given more than once")
    dataset = form.get("dataset")
    if not isinstance(dataset, UploadFile):
        raise _wrong("dataset", "must be a file, with a name that ends in .json, .ndjson or .csv")
    text = await _request_text(form.get("request"))
    digest = hashlib.sha256(len(text).to_bytes(8) + text)
    while block := await dataset.read(_BLOCK):
        digest.update(block)
    await dataset.seek(0)
    return Upload(text, cast(BinaryIO, dataset.file), dataset.filename or "", f"sha256:{digest.hexdigest()}")


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
