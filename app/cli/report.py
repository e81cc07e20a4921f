"""`arbiter-l8 runs report`: what came of a run, written for people or for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from app.cli.client import RequestFailed, get, segment
from app.cli.console import fail
from app.cli.exits import FAILED, USAGE

MEDIA_TYPES = {"html": "text/html", "markdown": "text/markdown", "json": "application/json"}
_FORMATS = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown", ".json": "json"}


def format_of(given: str | None, output: Path | None) -> str:
    """What to write: as given, or as the file's name says, or Markdown. A usage error for anything else."""
    if given is None:
        return _FORMATS.get(output.suffix.lower(), "markdown") if output is not None else "markdown"
    if given not in MEDIA_TYPES:
        fail(f"--format is one of {', '.join(MEDIA_TYPES)}", USAGE)
    return given


async def fetch(client: httpx.AsyncClient, run_id: str, form: str, params: dict[str, Any]) -> str:
    """The report as text. Raises `RequestFailed`."""
    given = {name: value for name, value in params.items() if value}
    path = f"/runs/{segment(run_id)}/report"
    if form == "json":
        return json.dumps(await get(client, path, **given), indent=2, ensure_ascii=False) + "\n"
    response = await client.get(path, params=given, headers={"accept": MEDIA_TYPES[form]})
    if response.is_success:
        return response.text
    raise RequestFailed(response.status_code, response.json())


def save(text: str, output: Path) -> None:
    """Write the report to a file; a file that can't be written ends the program."""
    try:
        output.write_text(text, encoding="utf-8", newline="\n")
    except OSError as exc:
        fail(f"{output} cannot be written: {exc.strerror}", FAILED)
