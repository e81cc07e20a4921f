"""`arbiter-l8 score`: one labelled fixture against one system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from app.cli.client import WRONGLY_ASKED, RequestFailed, get, named, no_answer, post, service
from app.cli.console import fail, out, report_tables, write_text
from app.cli.exits import FAILED, OK, USAGE
from app.cli.progress import watch
from app.settings import Settings

MEDIA_TYPES = {".json": "application/json", ".ndjson": "application/x-ndjson", ".jsonl": "application/x-ndjson"}
MEDIA_TYPES[".csv"] = "text/csv"


def read_fixture(path: Path) -> tuple[str, bytes, str]:
    """(file name, content, media type) of a fixture; ends the program with a usage error when it cannot be one."""
    media_type = MEDIA_TYPES.get(path.suffix.lower())
    if path.is_dir():
        fail(f"{path} is a folder; --fixture takes a .json, .ndjson or .csv file", USAGE)
    if not path.exists():
        fail(f"{path} does not exist", USAGE)
    if not path.is_file():
        fail(f"{path} is no regular file", USAGE)
    if media_type is None:
        fail(f"{path}: the name must end in .json, .ndjson or .csv", USAGE)
    try:
        return path.name, path.read_bytes(), media_type
    except OSError as exc:
        fail(f"{path} cannot be read: {exc.strerror}", USAGE)


def aim(settings: Settings, system: str, url: str | None) -> Settings:
    """The settings with `system`'s address given on purpose: naming the system on the command line is on purpose."""
    if system == "sentinel-l7":
        target = settings.sentinel.model_copy(update={"url": url or settings.sentinel.url})
        return settings.model_copy(update={"sentinel": target})
    if system == "synapse-l4":
        synapse = settings.synapse.model_copy(update={"base_url": url or settings.synapse.base_url})
        return settings.model_copy(update={"synapse": synapse})
    if url is not None:
        fail(f"--url goes with sentinel-l7 or synapse-l4, not with {system}", USAGE)
    return settings


async def score(
    settings: Settings,
    fixture: Path,
    request: dict[str, Any],
    *,
    server: str | None,
    key: str | None,
    as_json: bool,
    wait: bool = True,
) -> int:
    """Run the fixture and print its report. The exit code: 0 done, 1 the target or the run failed, 2 usage.

    Without `wait` the run is left to the service, and only itself is printed.
    """
    upload = read_fixture(fixture)
    async with service(settings, server, key, execute=True) as client:
        try:
            run = await post(client, "/runs", files=_form(upload, request))
            if not wait:
                write_text(json.dumps(run, indent=2) if as_json else f"run {run['run_id']} {run['status']}")
                return OK
            run = await _finish(client, run, request["system"], live=server is not None)
            if run["status"] != "succeeded":
                failure = run.get("failure") or {}
                fail(failure.get("message") or f"the run ended as {run['status']}", FAILED)
            report = await get(client, f"/runs/{run['run_id']}/report")
        except RequestFailed as exc:
            fail(str(exc), USAGE if exc.status in WRONGLY_ASKED else FAILED)
        except httpx.HTTPError as exc:
            fail(no_answer(exc, named(server or "")), FAILED)
    _show(report, run, as_json=as_json)
    return OK


def _form(upload: tuple[str, bytes, str], request: dict[str, Any]) -> dict[str, Any]:
    return {"request": (None, json.dumps(request), "application/json"), "dataset": upload}


async def _finish(client: httpx.AsyncClient, run: dict[str, Any], label: str, *, live: bool) -> dict[str, Any]:
    try:
        return await watch(client, run, label=label, live=live)
    except BaseException:  # interrupted: nobody waits for the rest
        import anyio

        with anyio.CancelScope(shield=True), anyio.move_on_after(2):
            await client.post(f"/runs/{run['run_id']}/cancel")
        raise


def _show(report: dict[str, Any], run: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        write_text(json.dumps(report, indent=2, ensure_ascii=False))
        return
    report_tables(report)
    out.print(f"run {run['run_id']}", style="dim")
