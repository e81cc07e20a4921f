"""The commands `gate` and `compare` and their options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from app.cli.exits import COULD_NOT_RUN, JudgingCommand
from app.cli.options import AsJson, Key, Run, Server

if TYPE_CHECKING:
    from app.settings import Settings


def gate(  # noqa: PLR0913, PLR0917 - one parameter per option
    run: Run,
    policy: Annotated[Path, Option("--policy", metavar="FILE", help="What the run must hold, in TOML.")],
    baseline: Annotated[
        str | None,
        Option("--baseline", metavar="RUN|NAME", help="What to compare with; by default as the policy says."),
    ] = None,
    as_json: AsJson = False,
    junit: Annotated[Path | None, Option("--junit", metavar="FILE", help="Also write JUnit XML.")] = None,
    markdown: Annotated[Path | None, Option("--markdown", metavar="FILE", help="Also write Markdown.")] = None,
    wait: Annotated[bool, Option("--wait", help="Wait until the run has ended, and show how far it is.")] = False,
    timeout: Annotated[
        float | None,
        Option("--timeout", metavar="SECONDS", min=0, help="Wait no longer than that, then judge the run as it is."),
    ] = None,
    arbiter: Annotated[
        Path | None, Option("--arbiter", metavar="FILE", help="What --escalate and --until have the arbiter judge by.")
    ] = None,
    escalate: Annotated[
        bool, Option("--escalate", help="Call the arbiter when the same artifact is inconclusive a second time.")
    ] = False,
    until: Annotated[
        bool, Option("--until", help="Call the arbiter when the gate passes: 0 only when both say yes.")
    ] = False,
    server: Server = None,
    key: Key = None,
) -> None:
    """Judge a run by a policy.

    Exit codes: 0 pass or warn, 1 block, 2 inconclusive or missing, 3 could not run or usage. Where the arbiter was
    called, its verdict decides: 0 accept, 1 block.
    """
    from app.cli import gate as work
    from app.cli.console import fail

    if (escalate or until) and (arbiter is None) == (server is None):
        fail("--escalate and --until need --arbiter FILE, or the --server's own arbiter", COULD_NOT_RUN)
    files = {name: path for name, path in (("junit", junit), ("markdown", markdown)) if path is not None}

    async def judge(settings: Settings) -> int:
        code = await work.gate(
            settings,
            run,
            policy,
            baseline,
            server=server,
            key=key,
            wait=wait or timeout is not None,
            timeout=timeout,
            as_json=as_json,
            files=files,
        )
        if not (escalate or until):
            return code
        from app.cli.verdict import after_gate

        return await after_gate(
            settings, run, code, config=arbiter, escalate=escalate, until=until, server=server, key=key
        )

    work.judged(judge, server)


def compare(
    run: Run,
    baseline: Annotated[str, Option("--baseline", metavar="RUN|NAME", help="The run or the baseline to compare with.")],
    cut: Annotated[
        list[str] | None, Option("--slice", metavar="POINTER", help="Also compare along a path: /input/category.")
    ] = None,
    alpha: Annotated[float, Option("--alpha", min=0.0001, max=0.5, help="Share of false alarms put up with.")] = 0.05,
    watch: Annotated[
        bool, Option("--watch", help="Look again every second until both runs have ended or it is decided.")
    ] = False,
    as_json: AsJson = False,
    server: Server = None,
    key: Key = None,
) -> None:
    """Compare two runs, example by example.

    Exit codes: 0 done, 3 could not run or usage.
    """
    from app.cli import gate as work

    work.judged(
        lambda settings: work.compare(
            settings,
            run,
            baseline,
            slices=cut or [],
            alpha=alpha,
            server=server,
            key=key,
            watching=watch,
            as_json=as_json,
        ),
        server,
    )


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.command(cls=JudgingCommand)(gate)
    app.command(cls=JudgingCommand)(compare)
