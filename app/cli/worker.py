"""`arbiter-l8 worker`: does what was accepted, beside a service or many, and answers nobody."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

from app.cli.process import settle
from app.settings import Settings
from app.telemetry.logs import configure_logging
from app.telemetry.metrics import Metrics
from app.telemetry.setup import Telemetry
from app.wiring import connector

log = logging.getLogger("arbiter.worker")


def work(settings: Settings) -> None:
    """Work until told to stop. Raises `ConfigurationError`."""
    configure_logging(settings.telemetry.log_level, settings.telemetry.log_format)
    runs = settings.runs.model_copy(update={"work": True})
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_work(settings.model_copy(update={"runs": runs})))


async def _work(settings: Settings) -> None:
    told = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, told.set)
    telemetry = Telemetry(settings.telemetry)
    connect = connector(execute=True, telemetry=telemetry, metrics=Metrics(telemetry), beside=True)
    async with connect(settings) as services:
        settle()
        log.info("working on the runs of %s", services.database.url.render_as_string(hide_password=True))
        await told.wait()
        log.info("stopping; others go on with what is left")


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()
