"""The web application: routes over services that live as long as it does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.api.access import Access, parse_keys
from app.api.problems import instance_of, problem_response
from app.api.resource import log_unexpected
from app.api.routes import routes
from app.errors import NotFound
from app.openapi import SERVED, document
from app.services import Connect
from app.settings import Settings


def create_app(settings: Settings, connect: Connect, middleware: Sequence[Middleware] = ()) -> FastAPI:
    """The service as an ASGI application. `middleware` are plain ASGI ones, outermost first.

    `connect` is entered when the server starts and left when it stops; requests find its `Services` in their state.
    Raises `ConfigurationError` for API keys that can't be used.
    """
    access = Access(parse_keys(settings.server.api_keys))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with connect(settings) as services:
            yield {"services": services}

    app = FastAPI(
        title="Arbiter-L8",
        version=version("arbiter-l8"),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        # The service has telemetry of its own; FastAPI's would trace every request and configure itself from the
        # environment.
        telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
        middleware=list(middleware),
        exception_handlers={404: _on_unknown_path, Exception: _on_exception},
    )
    app.router.routes.extend(routes(SERVED, access))
    app.router.routes.append(Route("/docs", get_docs))
    app.openapi = document  # type: ignore[method-assign]
    return app


async def get_docs(_: Request) -> Response:
    """The API document to read and try out in a browser, which loads the viewer from its public address."""
    return get_swagger_ui_html(openapi_url="/openapi.json", title="Arbiter-L8")


async def _on_unknown_path(request: Request, _: Exception) -> Response:
    return problem_response(NotFound("there is nothing at this path"), instance_of(request.scope["path"]))


async def _on_exception(request: Request, exc: Exception) -> Response:
    """A failure outside every resource, in a middleware; resources answer for their own."""
    where = instance_of(request.scope["path"])
    return problem_response(log_unexpected(exc, where), where)
