"""What README and the first steps tell a reader to type works as it stands, and prints what they say."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.demo.hosting import hosted
from app.demo.sentinel import build_sentinel
from app.demo.synapse import build_synapse
from app.settings import load_settings
from app.wiring import service_app

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/getting-started.md")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$|((?:^    [^\n]*\n(?:^\n(?=    ))?)+)", re.MULTILINE | re.DOTALL)

NOT_TYPED = {
    '{"evaluation_id"': "an answer",
    "from app.runs import": "Python",
}
ELSEWHERE = {
    "pip install -q uv && uv run arbiter-l8 demo": "the test of the command line",
    "uv run arbiter-l8 serve": "the service of this test",
    "uv run arbiter-l8 demo --stand-ins": "the stand-ins of this test; the command has a test of its own",
    'ARBITER_API_KEYS="ci': "the tests of API keys",
}
"""Blocks that are not run here, by how they begin; any other one is."""


def blocks(page: str) -> list[str]:
    """Every block of code on the page, in order."""
    found = []
    for match in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")):
        indented = match.group(3)
        text = match.group(2) if indented is None else re.sub(r"^    ", "", indented, flags=re.MULTILINE)
        found.append(text.strip())
    return found


def typed(page: str) -> list[str]:
    """The blocks to run."""
    return [text for text in blocks(page) if not text.startswith((*NOT_TYPED, *ELSEWHERE))]


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the pages call each address, and where it is here; `folder` is the reader's clone."""
    folder = tmp_path_factory.mktemp("clone")
    (folder / "app").symlink_to(ROOT / "app")
    given = {"ARBITER_DATABASE_URL": f"sqlite:///{folder}/arbiter-l8.db", "ARBITER_TELEMETRY": "false"}
    settings = load_settings(given, None)
    with (
        hosted(service_app(settings)) as url,
        hosted(build_sentinel()) as sentinel,
        hosted(build_synapse()) as synapse,
    ):
        yield {
            "http://127.0.0.1:8088": url,
            "http://localhost:8080": sentinel,
            "http://localhost:8000": synapse,
            "folder": str(folder),
        }


def paste(text: str, addresses: dict[str, str]) -> str:
    """Run one block in the clone; what it printed. It must end well, and each of its commands too."""
    for there, here in addresses.items():
        text = text.replace(there, here)
    python = shlex.quote(sys.executable)
    text = text.replace("uv run arbiter-l8", f"{python} -m app.cli").replace("python3 -c", f"{python} -c")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=addresses["folder"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "ARBITER_TELEMETRY": "false"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_no_block_is_left_out_by_mistake() -> None:
    """Whoever adds one decides here whether it is run; whoever takes one away takes its exception along."""
    everything = [text for page in PAGES for text in blocks(page)]
    for beginning in (*NOT_TYPED, *ELSEWHERE):
        assert any(text.startswith(beginning) for text in everything), beginning
    assert sum(len(typed(page)) for page in PAGES) >= 9


@pytest.mark.slow
def test_the_readmes_commands_work_and_print_what_it_says(addresses: dict[str, str]) -> None:
    evaluate, check, score = typed("README.md")
    (shown,) = [text for text in blocks("README.md") if text.startswith('{"evaluation_id"')]
    answer = paste(evaluate, addresses)
    for field in re.findall(r'"(?:label|disposition|decision|degraded|suspicion_score)": [^,]+', shown):
        assert field.replace(": ", ":") in answer.replace(": ", ":")
    (evaluation_id,) = re.findall(r'"evaluation_id": ?"([^"]+)"', answer)
    assert "TRUE" in paste(check.replace("EVALUATION_ID", evaluation_id), addresses)
    scored = paste(score, addresses)
    promised = re.findall(r"`(?:accuracy: )?(\d+/\d+ \([\d.]+%\))`", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(promised) == 2
    assert scored.startswith(f"accuracy: {promised[0]}\n")
    assert f"accuracy: {promised[1]}" in scored


@pytest.mark.slow
def test_the_first_steps_work_one_after_the_other(addresses: dict[str, str]) -> None:
    printed = [paste(text, addresses) for text in typed("docs/getting-started.md")]
    said = "".join(printed)
    assert re.search(r'"disposition": ?"flag"', printed[0])
    for promised in re.findall(r"`(accuracy: [^`]+)`", (ROOT / "docs/getting-started.md").read_text(encoding="utf-8")):
        assert promised in said
    assert "golden" in said
