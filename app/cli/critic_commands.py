"""The commands `critic report` and `critic replay` and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from app.cli.exits import JudgingCommand, JudgingGroup
from app.cli.options import AsJson, Key, Run, Server

critic_app = typer.Typer(
    cls=JudgingGroup,
    help="Look at what a critic did to a classifier's labels.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@critic_app.command(cls=JudgingCommand)
def report(
    run: Run,
    control: Annotated[
        str | None, Option("--control", metavar="RUN", help="A run with the critic over a second dataset.")
    ] = None,
    baseline: Annotated[
        str | None, Option("--baseline", metavar="RUN", help="A fresh run without it over that dataset.")
    ] = None,
    as_json: AsJson = False,
    server: Server = None,
    key: Key = None,
) -> None:
    """Report a run: what the critic corrected and broke, and whether to adopt it.

    Exit codes: 0 adopt, 1 decline, 2 inconclusive, 3 could not run or usage.
    """
    from app.cli import critic as work
    from app.cli.gate import judged

    judged(
        lambda settings: work.report(
            settings, run, control=control, baseline=baseline, server=server, key=key, as_json=as_json
        ),
        server,
    )


@critic_app.command(cls=JudgingCommand)
def replay(
    trail: Annotated[
        Path, Argument(metavar="FILE", help="A run's audit trail, as GET /runs/{id}/critic/audit gave it.")
    ],
    control: Annotated[Path | None, Option("--control", metavar="FILE", help="The trail of the control run.")] = None,
    baseline: Annotated[
        Path | None, Option("--baseline", metavar="FILE", help="The trail of its baseline arm.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Derive the report from audit trails alone, deciding again all that code decided.

    Exit codes: 0 adopt, 1 decline, 2 inconclusive, 3 a trail that contradicts itself, or usage.
    """
    from app.cli import critic as work
    from app.cli.gate import judged

    judged(lambda settings: work.replayed(settings, trail, control=control, baseline=baseline, as_json=as_json), None)


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.add_typer(critic_app, name="critic")
