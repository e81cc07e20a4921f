"""Query parameters: each given at most once unless it is a list, of the type it says, unknown ones ignored."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, TypeVar, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from starlette.requests import Request

from app.errors import BadRequest, NotFound
from app.store.ids import to_text
from app.store.paging import DEFAULT_LIMIT, MAX_LIMIT

M = TypeVar("M", bound=BaseModel)

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _number(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"\d{1,15}", value, re.ASCII):
        raise ValueError("must be a whole number")
    return value


def _truth(value: Any) -> Any:
    if isinstance(value, str) and value not in {"true", "false"}:
        raise ValueError("must be true or false")
    return value


def _moment(value: Any) -> Any:
    if isinstance(value, str) and not _DATE_TIME.fullmatch(value):
        raise ValueError("must be a time of RFC 3339, such as 2026-01-31T12:00:00Z")
    return value


def _on_record(moment: datetime) -> datetime:
    try:
        to_text(moment)
    except OverflowError:
        raise ValueError("is outside the years 1 to 9999 in UTC") from None
    return moment


Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT), BeforeValidator(_number)]
Revision = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(_number)]
Size = Annotated[int, Field(ge=0, le=10**12), BeforeValidator(_number)]
Truth = Annotated[bool, BeforeValidator(_truth)]
Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    AfterValidator(_on_record),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Text = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\x00]*$")]
SlicePath = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^/(input|metadata)(/([^/~\x00]|~[01])*)+$")]
ReportPath = Annotated[
    str, Field(min_length=1, max_length=512, pattern=r"^/(input|metadata|prediction)(/([^/~\x00]|~[01])*)+$")
]
LabelText = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00]*$")]


class Query(BaseModel):
    """The parameters of one operation."""

    model_config = ConfigDict(frozen=True)


class Paged(Query):
    """Which page of a list."""

    limit: Annotated[Limit, Field(description="Items on the page")] = DEFAULT_LIMIT
    cursor: Annotated[Text | None, Field(description="`next_cursor` of the page before")] = None


def parse_query(request: Request, model: type[M]) -> M:
    """The query parameters that `model` knows; those that are tuples may be repeated.

    Raises `BadRequest` naming the parameter that is wrong.
    """
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        field = model.model_fields.get(name)
        if field is None:
            continue
        if get_origin(field.annotation) is tuple:
            given[name] = (*given.get(name, ()), value)
        elif name in given:
            raise BadRequest(f"the query parameter {name} is given more than once")
        else:
            given[name] = value
    try:
        return model.model_validate(given)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        message = first["msg"].removeprefix("Value error, ")
        raise BadRequest(f"the query parameter {first['loc'][0]} is not valid: {message}") from None


def path_id(request: Request, what: str) -> str:
    """The id in the path. Raises `NotFound` for what can't be one, so that no odd text reaches the store."""
    text: str = request.path_params["id"]
    if not _UUID.fullmatch(text):
        raise NotFound(f"there is no {what} with this id")
    return text
