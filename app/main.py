"""The web application: routes over services that live as long as it does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.access import Access, parse_keys
from app.api.problems import instance_of, problem_response
from app.api.resource import log_unexpected
from app.api.routes import routes
from app.errors import NotFound
from app.openapi import SERVED, document
from app.services import Connect
from app.settings import Settings

DIRECT = frozenset({"/evaluate"})
"""Paths so busy that FastAPI's layers would cost a sixth of their requests."""


class _Application(FastAPI):
    """FastAPI, with a short way to resources that answer for their own failures and need nothing of its layers."""

    direct: Mapping[str, ASGIApp] = MappingProxyType({})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        resource = self.direct.get(scope["path"]) if scope["type"] == "http" else None
        if resource is None:
            await super().__call__(scope, receive, send)
        else:
            scope["app"] = self
            await resource(scope, receive, send)


def _behind(middleware: Sequence[Middleware], served: Iterable[Route]) -> dict[str, ASGIApp]:
    """The resources of these routes behind the same middleware as everything else, by path."""
    apps: dict[str, ASGIApp] = {}
    for route in served:
        app: ASGIApp = route.endpoint
        for layer in reversed(middleware):
            app = layer.cls(app, *layer.args, **layer.kwargs)
        apps[route.path] = app
    return apps


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

    app = _Application(
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
    served = routes(SERVED, access)
    app.router.routes.extend(served)
    app.direct = _behind(middleware, [route for route in served if route.path in DIRECT])
    app.router.routes.append(Route("/docs", get_docs))
    app.openapi = document  # type: ignore[method-assign]
    return app


async def get_docs(_: Request) -> Response:
    """The API document to read and try out in a browser, which loads the viewer from its public address."""
    return get_swagger_ui_html(openapi_url="/openapi.json", title="Arbiter-L8")


async def _on_unknown_path(request: Request, _: Exception) -> Response:
    return problem_response(
        NotFound("there is nothing at this path; /docs and /openapi.json tell what there is"),
        instance_of(request.scope["path"]),
    )


async def _on_exception(request: Request, exc: Exception) -> Response:
    """A failure outside every resource, in a middleware; resources answer for their own."""
    where = instance_of(request.scope["path"])
    return problem_response(log_unexpected(exc, where), where)
