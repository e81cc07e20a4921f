"""`arbiter-l8 demo --stand-ins`: the demo's neighbours alone, where one's own have their addresses by default."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress

from app.cli.console import err
from app.demo.hosting import hosted
from app.demo.sentinel import build_sentinel
from app.demo.synapse import build_synapse
from app.telemetry.logs import configure_logging


def stand_in(sentinel_port: int, synapse_port: int) -> None:
    """Answer as a Sentinel-L7 and a Synapse-L4 on this machine until told to stop; a port of 0 is any free one.

    Raises `ConfigurationError` for a port that is taken.
    """
    configure_logging("error", "pretty")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        hosted(build_sentinel(), sentinel_port, otherwise="choose another with --sentinel-port") as sentinel,
        hosted(build_synapse(), synapse_port, otherwise="choose another with --synapse-port") as synapse,
        suppress(KeyboardInterrupt),
    ):
        err.print(f"a Sentinel-L7 answers on {sentinel}/mcp, a Synapse-L4 on {synapse}; Ctrl-C ends them")
        threading.Event().wait()
