"""One HTTP operation as a value: what runs it, what it asks of the caller, and all that it can answer."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from app.api.access import Access, Need
from app.api.body import header
from app.api.problems import InternalError, MethodNotAllowed, instance_of, problem_response
from app.errors import ServiceError, Unavailable
from app.services import Services
from layers.errors import ConfigurationError, DependencyError

logger = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
_REQUEST_ID = b"x-request-id"
_MAX_REQUEST_ID = 128


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

    method: Literal["GET", "POST"]
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


class Resource:
    """The ASGI application of one path: authentication, the method's handler, refusals as problems."""

    def __init__(self, operations: Iterable[Operation], access: Access) -> None:
        self._by_method = {operation.method: operation for operation in operations}
        self._access = access
        methods = [*self._by_method, *(["HEAD"] if "GET" in self._by_method else []), "OPTIONS"]
        self._allow = ", ".join(methods)
        self.route: BaseRoute | None = None
        """The route that leads here; telemetry reads its path from the request's scope."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. A failure before the answer began is a problem; one after it cuts the connection."""
        scope["route"] = self.route
        try:
            response = await self._answer(scope, receive)
        except ClientDisconnect:
            return  # nobody is left to answer
        if (given := header(scope, _REQUEST_ID)) is not None and _is_plain(given):
            response.raw_headers.append((_REQUEST_ID, given))
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        try:
            method = scope["method"]
            operation = self._by_method.get("GET" if method == "HEAD" else method)
            if operation is None:
                return self._without_operation(scope)
            self._access.check(scope, operation.needs)
            return await operation.handler(Request(scope, receive))
        except ServiceError as exc:
            return problem_response(exc, instance_of(scope["path"]))
        except DependencyError as exc:
            refusal = Unavailable(f"{exc.dependency}: {exc.message}", retry_after=exc.retry_after)
            return problem_response(refusal, instance_of(scope["path"]))
        except ConfigurationError as exc:  # found out at the first call only; it says what to change
            return problem_response(Unavailable(str(exc)), instance_of(scope["path"]))
        except ClientDisconnect:
            raise
        except Exception as exc:
            where = instance_of(scope["path"])
            return problem_response(log_unexpected(exc, f"{scope['method']} {where}"), where)

    def _without_operation(self, scope: Scope) -> Response:
        allow = {"allow": self._allow}
        if scope["method"] == "OPTIONS":
            return Response(status_code=204, headers=allow)
        return problem_response(MethodNotAllowed(f"use one of: {self._allow}"), instance_of(scope["path"]), allow)


def log_unexpected(exc: Exception, what: str) -> InternalError:
    """Log a failure of ours under an id, and tell the caller that id alone."""
    error = InternalError(f"urn:uuid:{uuid.uuid4()}")
    logger.error("%s failed (%s)", what, error.instance, exc_info=exc)
    return error


def _is_plain(value: bytes) -> bool:
    return 0 < len(value) <= _MAX_REQUEST_ID and all(33 <= byte <= 126 for byte in value)


def services_of(request: Request) -> Services:
    """The services that the lifespan put into the request's state."""
    services: Services = request.scope["state"]["services"]
    return services


def json_response(body: BaseModel | bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A model, or JSON that is ready already, as a response."""
    data = body if isinstance(body, bytes) else body.model_dump_json().encode()
    return Response(data, status, headers, "application/json")
