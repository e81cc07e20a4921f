"""Watch a run until it ends."""

from __future__ import annotations

from typing import Any

import anyio
import httpx
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from app.cli.client import get
from app.cli.console import err

ENDED = frozenset({"succeeded", "failed", "cancelled"})
QUIET_LINE_EVERY_S = 5.0


async def watch(client: httpx.AsyncClient, run: dict[str, Any], *, label: str) -> dict[str, Any]:
    """Show progress on standard error until the run ends; a bar on a terminal, a line now and then elsewhere."""
    return await (_bar if err.is_terminal else _lines)(client, run, label)


async def _bar(client: httpx.AsyncClient, run: dict[str, Any], label: str) -> dict[str, Any]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(label, total=run["progress"]["n_total"] or None, note="")
        while True:
            progress = run["progress"]
            bar.update(task, completed=progress["n_done"], total=progress["n_total"] or None, note=_note(run))
            if run["status"] in ENDED:
                return run
            run = await _next(client, run)


async def _lines(client: httpx.AsyncClient, run: dict[str, Any], label: str) -> dict[str, Any]:
    due = anyio.current_time() + QUIET_LINE_EVERY_S
    while run["status"] not in ENDED:
        run = await _next(client, run)
        if anyio.current_time() >= due and run["status"] not in ENDED:
            due += QUIET_LINE_EVERY_S
            progress = run["progress"]
            err.print(f"{label}: {progress['n_done']}/{progress['n_total']} {_note(run)}")
    return run


async def _next(client: httpx.AsyncClient, run: dict[str, Any]) -> dict[str, Any]:
    await anyio.sleep(0.2)
    latest: dict[str, Any] = await get(client, f"/runs/{run['run_id']}")
    return latest


def _note(run: dict[str, Any]) -> str:
    progress = run["progress"]
    parts = [] if run["status"] in {"queued", "running"} else [run["status"]]
    if progress["n_failed"]:
        parts.append(f"{progress['n_failed']} failed")
    if progress.get("eta_s") is not None and progress["n_done"] < progress["n_total"]:
        parts.append(f"about {progress['eta_s']:.0f} s left")
    return ", ".join(parts)
