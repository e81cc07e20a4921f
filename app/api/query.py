"""Query parameters: each known, given at most once unless it is a list, of the type it says."""

from __future__ import annotations

import difflib
import re
from datetime import datetime
from typing import Annotated, Any, TypeVar, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from starlette.datastructures import QueryParams
from starlette.requests import Request

from app.errors import BadRequest, NotFound, Unprocessable
from app.store.ids import to_text
from app.store.paging import DEFAULT_LIMIT, MAX_LIMIT

M = TypeVar("M", bound=BaseModel)

_SHOWN = 64
"""Characters of an unknown parameter that are said back."""

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


def refuse_unknown(query_string: bytes, model: type[BaseModel] | None) -> None:
    """Raise `Unprocessable` naming a parameter that `model` does not have; None = there are none to give."""
    known = model.model_fields if model is not None else {}
    for name in QueryParams(query_string):
        if name not in known:
            raise Unprocessable(f"there is no query parameter {_shown(name)}{_hint(name, list(known))}")


def _shown(name: str) -> str:
    return repr(name[:_SHOWN].encode("utf-8", "replace").decode())


def _hint(name: str, known: list[str]) -> str:
    if not known:
        return "; this operation takes none"
    close = difflib.get_close_matches(name[:_SHOWN], known, n=1)
    return (
        f"; did you mean {close[0]}?" if close else f"; there {'is' if len(known) == 1 else 'are'} {', '.join(known)}"
    )


def parse_query(request: Request, model: type[M]) -> M:
    """The query parameters of `model`, which is the operation's; those that are tuples may be repeated.

    Raises `BadRequest` naming the parameter that is wrong.
    """
    several: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        several.setdefault(name, []).append(value)
    given: dict[str, Any] = {}
    for name, values in several.items():
        if get_origin(model.model_fields[name].annotation) is tuple:
            given[name] = tuple(values)
        elif len(values) > 1:
            raise BadRequest(f"the query parameter {name} is given more than once")
        else:
            given[name] = values[0]
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
