"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

Server = Annotated[
    str | None, Option("--server", metavar="URL", help="A running service; without it the local store is used.")
]
Key = Annotated[str | None, Option("--key", envvar="ARBITER_KEY", help="API key for --server.", show_envvar=True)]
AsJson = Annotated[bool, Option("--json", help="Print JSON instead of text.")]
Run = Annotated[str, Argument(metavar="RUN", help="The run's id.")]
