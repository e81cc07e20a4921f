"""The command `verdict` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from app.cli.exits import JudgingCommand
from app.cli.options import Key


def verdict(
    config: Annotated[
        Path | None,
        Option(
            "--config",
            metavar="FILE",
            help="What to judge by, in TOML; any check in it is run. Not together with --server.",
        ),
    ] = None,
    artifact: Annotated[
        str | None,
        Option("--artifact", metavar="RUN|PATH|RANGE", help="A run's id, a path, or A..B; by default as configured."),
    ] = None,
    until: Annotated[
        bool,
        Option("--until", help="For a loop: what is not there yet counts as a block, and what is left is told."),
    ] = False,
    server: Annotated[
        str | None,
        Option(
            "--server",
            metavar="URL",
            help="A running service, which judges by its operator's own config: not together with --config.",
        ),
    ] = None,
    key: Key = None,
) -> None:
    """Have the arbiter judge an artifact; prints one JSON object.

    Give --config to judge here, or --server to have a service judge by its own config; they exclude each other.

    Exit codes: 0 accept, 1 block, 3 could not run or usage.
    """
    from app.cli import verdict as work

    work.judged(config, artifact, until=until, server=server, key=key, folder=Path.cwd())


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(cls=JudgingCommand)(verdict)
