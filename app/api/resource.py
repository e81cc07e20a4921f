"""One path as an ASGI application: who may, what runs, and how every refusal becomes a problem."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from app.api.access import Access
from app.api.body import header
from app.api.operation import Operation
from app.api.problems import InternalError, MethodNotAllowed, instance_of, problem_response
from app.api.query import refuse_unknown
from app.errors import ServiceError, Unavailable, Unprocessable
from layers.errors import ConfigurationError, DependencyError

logger = logging.getLogger(__name__)

_REQUEST_ID = b"x-request-id"
_MAX_REQUEST_ID = 128


class Resource:
    """The operations on one path, by method."""

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
            response = await self._handle(scope, receive)
        except ClientDisconnect:
            return  # nobody is left to answer
        except Exception as exc:
            response = problem_response(refusal_of(exc, scope), instance_of(scope["path"]))
        if (given := header(scope, _REQUEST_ID)) is not None and _is_plain(given):
            response.raw_headers.append((_REQUEST_ID, given))
        await response(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive) -> Response:
        method = scope["method"]
        operation = self._by_method.get("GET" if method == "HEAD" else method)
        if operation is None:
            return self._without_operation(scope)
        self._access.check(scope, operation.needs)
        if scope["query_string"]:
            refuse_unknown(scope["query_string"], operation.query)
        return await operation.handler(Request(scope, receive))

    def _without_operation(self, scope: Scope) -> Response:
        allow = {"allow": self._allow}
        if scope["method"] == "OPTIONS":
            return Response(status_code=204, headers=allow)
        return problem_response(MethodNotAllowed(f"use one of: {self._allow}"), instance_of(scope["path"]), allow)


def refusal_of(exc: Exception, scope: Scope) -> ServiceError:
    """What the caller is told of an exception; what nobody foresaw is logged and not told."""
    if isinstance(exc, ServiceError):
        return exc
    if isinstance(exc, DependencyError):
        return Unavailable(f"{exc.dependency}: {exc.message}", retry_after=exc.retry_after)
    if isinstance(exc, ConfigurationError):  # found out at the first call only; it says what to change
        return Unavailable(str(exc))
    if isinstance(exc, RecursionError):  # stored before depth was limited where it came in
        log_unexpected(exc, f"{scope['method']} {instance_of(scope['path'])}")
        return Unprocessable("what this is about is nested too deep to be read")
    return log_unexpected(exc, f"{scope['method']} {instance_of(scope['path'])}")


def log_unexpected(exc: Exception, what: str) -> InternalError:
    """Log a failure of ours under an id, and tell the caller that id alone."""
    error = InternalError(f"urn:uuid:{uuid.uuid4()}")
    logger.error("%s failed (%s)", what, error.instance, exc_info=exc)
    return error


def _is_plain(value: bytes) -> bool:
    return 0 < len(value) <= _MAX_REQUEST_ID and all(33 <= byte <= 126 for byte in value)
