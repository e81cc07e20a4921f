"""The only table of HTTP statuses: every refusal as a problem of RFC 9457."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from app import errors
from app.adjudication.snapshot_lines import SnapshotRefused
from app.errors import FieldError, ServiceError, Unprocessable
from app.gates.policy import PolicyError
from app.runs.dataset import DuplicateExampleIds, EmptyDataset
from app.runs.keys import KeyReused
from app.runs.parsing import DatasetError

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 100
"""Fields named in one problem; what lies beyond is counted, not listed."""
_MAX_POINTER = 512


class InternalError(ServiceError):
    """Something of ours broke; the caller learns no more than the id under which it was logged."""

    def __init__(self, instance: str) -> None:
        super().__init__("the failure was logged under this problem's instance")
        self.instance = instance


class MethodNotAllowed(ServiceError):
    """The resource exists and doesn't know this method."""


@dataclass(frozen=True)
class Kind:
    """One kind of problem: its status, the last part of its `type` URI, and its title."""

    status: int
    slug: str
    title: str

    @property
    def uri(self) -> str:
        """The stable relative URI that clients may compare."""
        return f"/problems/{self.slug}"


KINDS: dict[type[ServiceError], Kind] = {
    errors.BadRequest: Kind(400, "bad-request", "The request can't be read"),
    errors.Unauthorized: Kind(401, "unauthorized", "A valid API key is needed"),
    errors.Forbidden: Kind(403, "forbidden", "Not allowed"),
    errors.NotFound: Kind(404, "not-found", "There is no such resource"),
    MethodNotAllowed: Kind(405, "method-not-allowed", "The resource doesn't know this method"),
    errors.NotAcceptable: Kind(406, "not-acceptable", "None of the accepted media types can be written"),
    errors.Conflict: Kind(409, "conflict", "The request contradicts what is stored or going on"),
    errors.Blocked: Kind(409, "blocked-by-verdict", "The arbiter blocked this artifact"),
    errors.TooSlow: Kind(408, "too-slow", "The body did not come in time"),
    errors.TooLarge: Kind(413, "too-large", "The body is too large"),
    errors.UnsupportedMedia: Kind(415, "unsupported-media-type", "The content type can't be read here"),
    errors.Unprocessable: Kind(422, "unprocessable", "The request makes no sense"),
    DatasetError: Kind(422, "invalid-dataset", "The dataset can't be used"),
    EmptyDataset: Kind(422, "empty-dataset", "The dataset has no examples"),
    DuplicateExampleIds: Kind(422, "duplicate-example-id", "Example ids must be unique"),
    PolicyError: Kind(422, "invalid-policy", "The gate policy can't be used"),
    KeyReused: Kind(422, "idempotency-key-reused", "The idempotency key was used for another request"),
    SnapshotRefused: Kind(422, "snapshot-refused", "The snapshot can't be taken over"),
    InternalError: Kind(500, "internal-error", "Something broke inside the service"),
    errors.Overloaded: Kind(503, "overloaded", "Too much work is in flight"),
    errors.Unavailable: Kind(503, "unavailable", "A part of the service is out of reach"),
    errors.TimedOut: Kind(504, "timed-out", "The deadline passed without an answer"),
}


class ProblemField(BaseModel):
    """What is wrong with one field."""

    pointer: str = Field(description="JSON Pointer into the body; empty = the whole body")
    message: str


class Problem(BaseModel):
    """A refusal (RFC 9457)."""

    model_config = ConfigDict(title="Problem")

    type: str = Field(description="Stable relative URI of the kind of problem", examples=["/problems/not-found"])
    title: str
    status: int = Field(ge=400, le=599)
    detail: str
    instance: str = Field(description="The resource asked for, or the id under which a failure was logged")
    errors: list[ProblemField] | None = Field(default=None, description="The fields concerned")
    verdict: dict[str, Any] | None = Field(default=None, description="The block, where the arbiter gave one")


def kind_of(error: type[ServiceError]) -> Kind:
    """The kind of the nearest class that has one."""
    for base in error.__mro__:
        if (kind := KINDS.get(base)) is not None:
            return kind
    raise TypeError(f"{error.__name__} has no HTTP status; add it to the table")


def problem_body(exc: ServiceError, instance: str) -> dict[str, Any]:
    """The problem as JSON-ready values, fields that don't apply left out."""
    kind = kind_of(type(exc))
    body: dict[str, Any] = {
        "type": kind.uri,
        "title": kind.title,
        "status": kind.status,
        "detail": exc.detail,
        "instance": getattr(exc, "instance", instance),
    }
    if fields := getattr(exc, "errors", ()):
        body["errors"] = [{"pointer": field.pointer, "message": field.message} for field in fields]
    if isinstance(exc, errors.Blocked):
        body["verdict"] = exc.verdict
    return body


def problem_response(exc: ServiceError, instance: str, headers: Mapping[str, str] | None = None) -> Response:
    """The problem as a response, with the headers that its kind calls for."""
    body = problem_body(exc, instance)
    # ASCII escapes, because a refused text may hold what UTF-8 can't carry.
    return Response(
        json.dumps(body).encode("ascii"),
        status_code=body["status"],
        headers={**_headers_for(exc), **(headers or {})},
        media_type=MEDIA_TYPE,
    )


def _headers_for(exc: ServiceError) -> dict[str, str]:
    if isinstance(exc, errors.Unauthorized):
        return {"www-authenticate": 'Bearer realm="arbiter-l8"'}
    if isinstance(exc, errors.TooSlow):  # else the rest would be read on for as long as it drips
        return {"connection": "close"}
    retry_after = getattr(exc, "retry_after", None)
    if retry_after is not None and math.isfinite(retry_after):
        return {"retry-after": str(max(1, math.ceil(retry_after)))}
    return {}


def instance_of(path: str) -> str:
    """A request path as the URI reference of a problem's `instance`."""
    return quote(path[:_MAX_POINTER], safe="/-._~:@!$&'()*+,;=", errors="replace")


def from_validation(exc: ValidationError, what: str = "body") -> Unprocessable:
    """What pydantic refused, field by field, without the values themselves."""
    found = exc.errors(include_url=False, include_context=False, include_input=False)
    fields = [FieldError(pointer(error["loc"]), _message(error["msg"])) for error in found[:MAX_ERRORS]]
    first = fields[0]
    where = f" at {first.pointer}" if first.pointer else ""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Unprocessable(f"the {what} is not valid{where}: {first.message}{more}", fields)


def pointer(location: tuple[int | str, ...]) -> str:
    """A JSON Pointer (RFC 6901) of a location."""
    tokens = (str(part).replace("~", "~0").replace("/", "~1") for part in location)
    return "".join(f"/{token}" for token in tokens)[:_MAX_POINTER]


def _message(text: str) -> str:
    return text.removeprefix("Value error, ")[:500]
