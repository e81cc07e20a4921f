"""One HTTP operation as a value: what runs it, what it asks of the caller, and all that it can answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from app.api.access import Need
from app.errors import ServiceError
from app.services import Services

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Content:
    """What a body holds: a model (any type pydantic knows) or a ready JSON schema, and an example."""

    shape: Any
    example: Any = None


@dataclass(frozen=True)
class Answer:
    """One success: what it means, its body by media type, and the headers it carries (name to meaning)."""

    description: str
    content: Mapping[str, Content] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Header:
    """A request header that the operation reads; `schema` says what it may hold."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True)
class Operation:
    """One method on one path.

    `query` is the model of the query parameters. `refuses` lists
    the refusals beyond those that follow from the rest (authentication, a body, parameters, an id in the path).
    """

    method: Literal["GET", "POST", "PUT"]
    path: str
    handler: Handler
    summary: str
    needs: Need
    tag: str
    answers: Mapping[int, Answer]
    description: str = ""
    body: Mapping[str, Content] = field(default_factory=dict)
    query: type[BaseModel] | None = None
    headers: tuple[Header, ...] = ()
    refuses: tuple[type[ServiceError], ...] = ()

    @property
    def name(self) -> str:
        """A stable name: `get_runs_id_report`."""
        words = self.path.replace("{", "").replace("}", "").replace(".", "/").split("/")
        return "_".join([self.method.lower(), *filter(None, words)])


def services_of(request: Request) -> Services:
    """The services that the lifespan put into the request's state."""
    services: Services = request.scope["state"]["services"]
    return services


def json_response(body: BaseModel | bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A model, or JSON that is ready already, as a response."""
    data = body if isinstance(body, bytes) else body.model_dump_json().encode()
    return Response(data, status, headers, "application/json")
