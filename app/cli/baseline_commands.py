"""The commands `baselines ...` and their options."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from typer import Argument, Option

from app.cli.console import escape, out, write_text
from app.cli.options import AsJson, Key, Run, Server
from app.cli.running import ask

baselines_app = typer.Typer(
    help="Name the runs that others are compared with.", no_args_is_help=True, rich_markup_mode=None
)
Name = Annotated[str, Argument(metavar="NAME", help="The baseline's name.")]


@baselines_app.command("list")
def baselines_list(
    limit: Annotated[int, Option("--limit", min=1, max=500)] = 100,
    as_json: AsJson = False,
    server: Server = None,
    key: Key = None,
) -> None:
    """Show every baseline and the run it points at."""
    from app.cli.client import get

    page = ask(lambda client: get(client, "/baselines", limit=limit), server, key)
    if as_json:
        write_text(json.dumps(page["items"], indent=2))
    elif page["items"]:
        _show(page["items"])
    else:
        out.print("no baselines yet")


@baselines_app.command("show")
def baselines_show(name: Name, as_json: AsJson = False, server: Server = None, key: Key = None) -> None:
    """Show where a baseline points, and where it pointed before."""
    from app.cli.client import get, segment

    baseline = ask(lambda client: get(client, f"/baselines/{segment(name)}"), server, key)
    if as_json:
        write_text(json.dumps(baseline, indent=2))
    else:
        _show([{"name": name, **move} for move in baseline["history"]])


@baselines_app.command("set")
def baselines_set(name: Name, run: Run, as_json: AsJson = False, server: Server = None, key: Key = None) -> None:
    """Point a baseline at a run that succeeded and that no gate blocks."""
    from app.cli.client import put, segment

    baseline = ask(lambda client: put(client, f"/baselines/{segment(name)}", json={"run_id": run}), server, key)
    write_text(json.dumps(baseline, indent=2) if as_json else f"{escape(baseline['name'])} {baseline['run_id']}")


def _show(moves: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("baseline", "run", "since"):
        table.add_column(column, no_wrap=column == "run")
    for move in moves:
        table.add_row(escape(move["name"]), escape(move["run_id"]), move["set_at"][:19])
    out.print(table)


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.add_typer(baselines_app, name="baselines")
