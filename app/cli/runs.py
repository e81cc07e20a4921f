"""`arbiter-l8 runs`: what was run, and what came of it."""

from __future__ import annotations

from typing import Any

import httpx
from rich.table import Table

from app.cli.client import get, segment
from app.cli.console import escape, out, report_tables


def table(runs: list[dict[str, Any]]) -> Table:
    """One line a run, newest first."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("run", no_wrap=True, min_width=36)
    for column in ("created", "system", "name", "status"):
        shown.add_column(column, overflow="fold")
    shown.add_column("done", justify="right")
    shown.add_column("failed", justify="right")
    for run in runs:
        progress = run["progress"]
        done = f"{progress['n_done']}/{progress['n_total']}"
        cells = [run["run_id"], run["created_at"][:19], run["system"], run["name"] or "", run["status"]]
        shown.add_row(*(escape(cell) for cell in cells), done, str(progress["n_failed"]))
    return shown


async def with_report(client: httpx.AsyncClient, run_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run and its report so far. Raises `RequestFailed`."""
    return await get(client, f"/runs/{segment(run_id)}"), await get(client, f"/runs/{segment(run_id)}/report")


def show(run: dict[str, Any], report: dict[str, Any]) -> None:
    """Print a run and its report."""
    out.print(table([run]))
    if run["failure"]:
        out.print(f"failed: {escape(run['failure']['message'])}")
    out.print()
    report_tables(report)
