"""`arbiter-l8 serve`: the service under uvicorn."""

from __future__ import annotations

import logging
import signal
import socket

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.access import check_bind, parse_keys
from app.cli.client import unwrapped
from app.cli.process import settle
from app.errors import ServiceError
from app.settings import Settings
from app.telemetry.logs import configure_logging
from app.wiring import service_app
from layers.errors import ConfigurationError

SHUTDOWN_S = 5
log = logging.getLogger("arbiter.serve")


def serve(settings: Settings) -> None:
    """Serve until told to stop.

    Raises `ConfigurationError` when the address may not, or cannot, be bound, and whatever kept the service from
    starting as an exception with one sentence.
    """
    server = settings.server
    check_bind(server.host, parse_keys(server.api_keys))
    configure_logging(settings.telemetry.log_level, settings.telemetry.log_format)
    listener = bind(server.host, server.port)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # told to stop, it ends well and not by the signal
    app = _Startup(service_app(settings))
    try:
        _Server(uvicorn_config(app)).run(sockets=[listener])
    except SystemExit:  # uvicorn's way out of a start that failed; its code is none of ours
        raise app.refusal or ServiceError("the service could not start; the log says why") from None
    if app.refusal is not None:
        raise app.refusal


class _Startup:
    """Keeps why it could not start or stop as an exception with one sentence, where uvicorn would log a traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.refusal: ConfigurationError | ServiceError | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on."""
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return

        async def without_traceback(message: Message) -> None:
            await send({**message, "message": ""} if message["type"] == "lifespan.startup.failed" else message)

        try:
            await self._app(scope, receive, without_traceback)
        except BaseException as exc:
            single = unwrapped(exc)
            if isinstance(single, ConfigurationError | ServiceError):
                self.refusal = single
                return
            log.exception("the service could not start or stop")
            if isinstance(single, Exception):
                self.refusal = ServiceError(f"the service could not start or stop: {type(single).__name__}: {single}")
            raise


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then settle: from here on the process serves."""
        await super().startup(sockets)
        if not self.started:
            return
        settle()
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            log.info("Arbiter-L8 listens on http://%s:%d (interactive documentation at /docs)", shown, port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; those who follow a run are let go first, or they would be waited for."""
        services = self.lifespan.state.get("services")
        if services is not None and services.events is not None:
            await services.events.close()
        await super().shutdown(sockets)


def uvicorn_config(app: object) -> uvicorn.Config:
    """How uvicorn is run here, in the demo too."""
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        loop="uvloop",
        http="httptools",
        lifespan="on",
        access_log=False,
        proxy_headers=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )


def bind(host: str, port: int, *, otherwise: str = "choose another with --port or ARBITER_PORT") -> socket.socket:
    """A listening socket. Raises `ConfigurationError` that says which address, why not, and what to do otherwise."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.set_inheritable(True)
    except OSError as exc:
        raise ConfigurationError(f"cannot listen on {host}:{port} ({exc.strerror or exc}); {otherwise}") from None
    return listener
