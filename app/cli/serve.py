"""`arbiter-l8 serve`: the service under uvicorn."""

from __future__ import annotations

import logging
import socket

import uvicorn

from app.api.access import check_bind, parse_keys
from app.cli.process import settle_memory
from app.settings import Settings
from app.telemetry.logs import configure_logging
from app.wiring import service_app
from layers.errors import ConfigurationError

SHUTDOWN_S = 5
log = logging.getLogger("arbiter.serve")


def serve(settings: Settings) -> None:
    """Serve until told to stop. Raises `ConfigurationError` when the address may not, or cannot, be bound."""
    server = settings.server
    check_bind(server.host, parse_keys(server.api_keys))
    configure_logging(settings.telemetry.log_level, settings.telemetry.log_format)
    listener = bind(server.host, server.port)
    config = uvicorn_config(service_app(settings))
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    log.info("Arbiter-L8 listens on http://%s:%d (interactive documentation at /docs)", shown, port)
    _Server(config).run(sockets=[listener])


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then settle: from here on the process serves."""
        await super().startup(sockets)
        settle_memory()

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
        lifespan="auto",
        access_log=False,
        proxy_headers=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `ConfigurationError` that says which address, and why not."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.set_inheritable(True)
    except OSError as exc:
        raise ConfigurationError(
            f"cannot listen on {host}:{port} ({exc.strerror or exc}); choose another with --port or ARBITER_PORT"
        ) from None
    return listener
