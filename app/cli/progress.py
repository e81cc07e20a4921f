"""Watch a run until it ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import httpx
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from app.cli.client import get, segment
from app.cli.console import err

ENDED = frozenset({"succeeded", "failed", "cancelled"})
QUIET_LINE_EVERY_S = 5.0

RECONNECTS = 3
"""Times in a row that a stream of events may break without having told anything, before the run is polled instead."""

POLL_S, LONGEST_POLL_S = 0.2, 5.0

PATIENCE = 8
"""Times in a row, about 20 s in all, that a service may be away while it is waited for: it may be starting anew."""

JsonObject = dict[str, Any]
Sleep = Callable[[float], Awaitable[None]]


async def watch(client: httpx.AsyncClient, run: JsonObject, *, label: str, live: bool = False) -> JsonObject:
    """Show progress on standard error until the run ends; a bar on a terminal, a line now and then elsewhere.

    `live`: the service is elsewhere, so that its events are listened to. In this process they would come all at once.
    """
    states = follow(client, run) if live else _polled(client, run)
    return await (_bar if err.is_terminal else _lines)(states, run, label)


async def follow(
    client: httpx.AsyncClient, run: JsonObject, *, sleep: Sleep = anyio.sleep
) -> AsyncIterator[JsonObject]:
    """The run each time that something is new about it, told by the service's events; polled where there are none."""
    last_id, breaks = "", 0
    while run["status"] not in ENDED and breaks <= RECONNECTS:
        breaks += 1
        try:
            async for event_id, data in _events(client, run["run_id"], last_id):
                run, last_id, breaks = run | data, event_id, 0
                yield run
        except httpx.HTTPError:
            await sleep(POLL_S)
    async for latest in _polled(client, run, sleep):
        yield latest


async def _events(client: httpx.AsyncClient, run_id: str, last_id: str) -> AsyncIterator[tuple[str, JsonObject]]:
    """Id and data of each event. Ends at once where the service tells none."""
    headers = {"accept": "text/event-stream"} | ({"last-event-id": last_id} if last_id else {})
    async with client.stream("GET", f"/runs/{segment(run_id)}/events", headers=headers) as response:
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            return
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                last_id = value
            elif name == "data":
                yield last_id, json.loads(value)


async def _polled(client: httpx.AsyncClient, run: JsonObject, sleep: Sleep = anyio.sleep) -> AsyncIterator[JsonObject]:
    failed = 0
    while run["status"] not in ENDED:
        await sleep(min(POLL_S * 2**failed, LONGEST_POLL_S))
        try:
            run = await get(client, f"/runs/{run['run_id']}")
        except httpx.TransportError:
            failed += 1
            if failed > PATIENCE:
                raise
            continue
        failed = 0
        yield run


async def _bar(states: AsyncIterator[JsonObject], run: JsonObject, label: str) -> JsonObject:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(label, total=run["progress"]["n_total"] or None, note="")
        async for latest in states:
            run, progress = latest, latest["progress"]
            bar.update(task, completed=progress["n_done"], total=progress["n_total"] or None, note=_note(run))
    return run


async def _lines(states: AsyncIterator[JsonObject], run: JsonObject, label: str) -> JsonObject:
    due = anyio.current_time() + QUIET_LINE_EVERY_S
    async for latest in states:
        run = latest
        if anyio.current_time() >= due and run["status"] not in ENDED:
            due += QUIET_LINE_EVERY_S
            progress = run["progress"]
            err.print(f"{label}: {progress['n_done']}/{progress['n_total']} {_note(run)}")
    return run


def _note(run: JsonObject) -> str:
    progress = run["progress"]
    parts = [] if run["status"] in {"queued", "running"} else [run["status"]]
    if progress["n_failed"]:
        parts.append(f"{progress['n_failed']} failed")
    if progress.get("eta_s") is not None and progress["n_done"] < progress["n_total"]:
        parts.append(f"about {progress['eta_s']:.0f} s left")
    return ", ".join(parts)
