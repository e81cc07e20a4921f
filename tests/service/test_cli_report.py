"""`arbiter-l8 runs report` as a process sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from app.cli.client import RequestFailed
from app.cli.report import MEDIA_TYPES, fetch, format_of, save

ROOT = Path(__file__).parents[2]
EXAMPLES = (("a", "low"), ("b", "high"))


def arbiter(folder: Path, *arguments: str) -> str:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "app.cli", *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_report_goes_where_and_as_it_is_asked_for(tmp_path: Path) -> None:
    """A run in the local store is reported without a server; the file's name says what to write."""
    rows = [
        {"id": name, "expected_label": "low", "prediction": {"raw_output": {}, "label": label, "confidence": 1}}
        for name, label in EXAMPLES
    ]
    (tmp_path / "d.ndjson").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    run = arbiter(tmp_path, "score", "--system", "recorded", "--fixture", "d.ndjson").split()[-1]
    assert arbiter(tmp_path, "runs", "report", run, "-o", "report.html") == ""
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "50.0 %" in page


@pytest.mark.parametrize(
    ("given", "output", "form"),
    [
        (None, None, "markdown"),
        (None, "report.HTML", "html"),
        (None, "report.json", "json"),
        (None, "report.txt", "markdown"),
        ("json", "report.html", "json"),
    ],
)
def test_what_is_written_is_said_or_follows_from_the_name(given: str | None, output: str | None, form: str) -> None:
    assert format_of(given, Path(output) if output else None) == form


@pytest.mark.parametrize(("format_given", "path", "code"), [("pdf", None, 2), ("html", "no/such/folder.html", 1)])
def test_what_can_not_be_written_ends_in_one_line(
    tmp_path: Path, format_given: str, path: str | None, code: int
) -> None:
    with pytest.raises(typer.Exit) as ended:
        save(format_of(format_given, None), tmp_path / str(path))
    assert ended.value.exit_code == code


@pytest.mark.anyio
async def test_a_refusal_of_the_service_is_told_as_it_is(http) -> None:
    for form in MEDIA_TYPES:
        with pytest.raises(RequestFailed, match=r"no such run|writes no reports"):
            await fetch(http, "01900000-0000-7000-8000-000000000000", form, {})
