"""The commands `runs ...` and their options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from app.cli.console import out, write_text
from app.cli.options import AsJson, Key, Run, Server
from app.cli.running import ask

runs_app = typer.Typer(help="List, look at and steer runs.", no_args_is_help=True, rich_markup_mode=None)


@runs_app.command("list")
def runs_list(
    limit: Annotated[int, Option("--limit", min=1, max=500)] = 20,
    as_json: AsJson = False,
    server: Server = None,
    key: Key = None,
) -> None:
    """Show the latest runs."""
    from app.cli import runs as work
    from app.cli.client import get

    page = ask(lambda client: get(client, "/runs", limit=limit), server, key)
    if as_json:
        write_text(json.dumps(page["items"], indent=2))
    else:
        out.print(work.table(page["items"]) if page["items"] else "no runs yet")


@runs_app.command("show")
def runs_show(run_id: Run, as_json: AsJson = False, server: Server = None, key: Key = None) -> None:
    """Show one run and its report so far."""
    from app.cli import runs as work

    run, report = ask(lambda client: work.with_report(client, run_id), server, key)
    if as_json:
        write_text(json.dumps({"run": run, "report": report}, indent=2, ensure_ascii=False))
    else:
        work.show(run, report)


@runs_app.command("report")
def runs_report(
    run_id: Run,
    form: Annotated[
        str | None,
        Option("--format", metavar="html|markdown|json", help="By default as the file's name says, or Markdown."),
    ] = None,
    output: Annotated[Path | None, Option("--output", "-o", help="Write to a file instead of standard output.")] = None,
    baseline: Annotated[str | None, Option("--baseline", help="A run, or a baseline's name, to compare with.")] = None,
    slices: Annotated[list[str] | None, Option("--slice", metavar="POINTER", help="Cut along `/input/...`.")] = None,
    server: Server = None,
    key: Key = None,
) -> None:
    """Write a run's report: one self-contained page of HTML, Markdown, or JSON."""
    from app.cli import report as work

    chosen = work.format_of(form, output)
    params = {"baseline": baseline, "slice": slices}
    text = ask(lambda client: work.fetch(client, run_id, chosen, params), server, key)
    write_text(text) if output is None else work.save(text, output)


@runs_app.command("pause")
def runs_pause(run_id: Run, as_json: AsJson = False, server: Server = None, key: Key = None) -> None:
    """Let a run rest after the examples it is asking, until `runs resume`."""
    _steer(run_id, "pause", as_json, server, key)


@runs_app.command("resume")
def runs_resume(run_id: Run, as_json: AsJson = False, server: Server = None, key: Key = None) -> None:
    """Go on with a paused run."""
    _steer(run_id, "resume", as_json, server, key)


@runs_app.command("cancel")
def runs_cancel(run_id: Run, as_json: AsJson = False, server: Server = None, key: Key = None) -> None:
    """Stop a run; what it recorded stays."""
    _steer(run_id, "cancel", as_json, server, key)


@runs_app.command("retry")
def runs_retry(run_id: Run, as_json: AsJson = False, server: Server = None, key: Key = None) -> None:
    """Ask again about what failed in a run that has ended; successes stay."""
    _steer(run_id, "retry", as_json, server, key)


def _steer(run_id: str, act: str, as_json: bool, server: str | None, key: str | None) -> None:
    from app.cli.client import post, segment

    run = ask(lambda client: post(client, f"/runs/{segment(run_id)}/{act}"), server, key)
    write_text(json.dumps(run, indent=2) if as_json else f"{run['run_id']} {run['status']}")


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.add_typer(runs_app, name="runs")
