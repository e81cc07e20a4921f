"""`arbiter-l8 verdict` and gates that call the arbiter, as a script sees them: exit code and standard output."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from app.cli import main
from tests.verdicts import FAILS, OPTIONAL, PASSES, Repository

ROOT = Path(__file__).parents[2]
ROWS = [{"expected_label": "low", "prediction": {"raw_output": {}, "label": "low", "confidence": 0.9}}] * 3
UNSURE = 'min_n = 1000\n[[floors]]\nmetric = "accuracy"\nmin = 0.5\n'
FINE = '[[floors]]\nmetric = "accuracy"\nmin = 0.2\n'


class Done(NamedTuple):
    """What a script sees."""

    returncode: int
    stdout: str
    stderr: str


class Cli:
    """Runs the command in this process, in a folder of its own: starting one costs seconds."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capture = capture

    def __call__(self, *arguments: object) -> Done:
        self._capture.readouterr()
        root = logging.getLogger()
        before, level = list(root.handlers), root.level
        try:
            with pytest.raises(SystemExit) as ended:
                main([str(argument) for argument in arguments])
        finally:  # what it logs to is closed when the test ends
            root.handlers[:] = before
            root.setLevel(level)
            logging.getLogger("dbos").handlers.clear()
        return Done(int(ended.value.code or 0), *self._capture.readouterr())

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

    def run(self) -> str:
        """A run that is over."""
        fixture = self.write("rows.ndjson", "\n".join(map(json.dumps, ROWS)))
        done = self("--system", "recorded", "--fixture", fixture)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, capsys)


def test_accept_is_0_block_is_1_and_standard_output_is_one_object(cli: Cli) -> None:
    cli.write("artifact", "1")
    accepting, blocking = cli.write("a.toml", OPTIONAL + PASSES), cli.write("b.toml", OPTIONAL + FAILS)
    for config, code, verdict, replayed in (
        (accepting, 0, "accept", False),
        (blocking, 1, "block", False),
        (accepting, 1, "block", True),
    ):
        done = cli("verdict", "--config", config, "--artifact", "artifact")
        assert done.returncode == code, done.stderr
        given = json.loads(done.stdout)
        assert (given["verdict"], given["replayed"]) == (verdict, replayed)
        assert {"confidence", "artifact", "objective_checks", "holistic_findings", "reasons"} <= set(given)
        assert done.stdout.count("\n") == 1


def test_as_a_process_it_prints_one_object_and_exits_with_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "arbiter.toml").write_text(OPTIONAL + FAILS)
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", "verdict", "--config", "arbiter.toml", "--artifact", "arbiter.toml"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, json.loads(done.stdout)["verdict"], done.stderr) == (1, "block", b"")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--config", "none.toml"), id="no config"),
        pytest.param(("--config", "bad.toml"), id="bad config"),
        pytest.param(("--config", "good.toml"), id="no artifact"),
        pytest.param(("--config", "good.toml", "--artifact", "nowhere"), id="unknown artifact"),
        pytest.param(("--config", "good.toml", "--server", "http://127.0.0.1:9"), id="config and server"),
        pytest.param(("--server", "http://127.0.0.1:9"), id="no server"),
        pytest.param((), id="nothing"),
        pytest.param(("--no-such-option",), id="usage"),
    ],
)
def test_what_is_no_verdict_is_3_and_says_nothing_on_standard_output(cli: Cli, arguments: tuple[str, ...]) -> None:
    cli.write("bad.toml", "checks = 1")
    cli.write("good.toml", PASSES)
    done = cli("verdict", *arguments)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert "Traceback" not in done.stderr


def test_a_script_can_loop_until_the_work_is_done(cli: Cli) -> None:
    """Nothing there, bad work, unchanged work, good work: 1, 1, 1, 0; usage stays 3."""
    check = '[[checks]]\nkind = "banned"\nname = "unfinished"\npatterns = ["TODO"]\n'
    config = cli.write("arbiter.toml", OPTIONAL + 'artifact = "work"\n' + check)
    codes = []
    for work in (None, "TODO", "TODO", "done"):
        if work is not None:
            (cli.folder / "work").mkdir(exist_ok=True)
            (cli.folder / "work" / "file").write_text(work)
        done = cli("verdict", "--config", config, "--until")
        codes.append(done.returncode)
        assert json.loads(done.stdout)["verdict"] == ("accept" if done.returncode == 0 else "block")
    assert codes == [1, 1, 1, 0]
    assert cli("verdict", "--config", "none.toml", "--until").returncode == 3


def test_in_a_repository_our_own_database_is_no_part_of_the_work(cli: Cli) -> None:
    repository = Repository(cli.folder)
    repository.commit({"arbiter.toml": OPTIONAL + PASSES})
    repository.commit({"src/a.py": "x = 2\n"})
    for _ in range(2):
        done = cli("verdict", "--config", "arbiter.toml", "--artifact", "HEAD~1..HEAD")
        assert done.returncode == 0, done.stdout
    assert (cli.folder / "arbiter-l8.db").exists()


def test_a_gate_that_is_inconclusive_twice_about_the_same_artifact_calls_the_arbiter(cli: Cli) -> None:
    run = cli.run()
    gate, arbiter = cli.write("gate.toml", UNSURE), cli.write("arbiter.toml", OPTIONAL + FAILS)
    escalating = ("gate", "--policy", gate, "--escalate", "--arbiter", arbiter)
    assert cli("gate", run, "--policy", gate, "--escalate").returncode == 3
    assert cli(*escalating, run).returncode == 2
    same = cli.run()
    done = cli(*escalating, same)
    assert (done.returncode, "arbiter: block" in done.stderr) == (1, True)
    assert cli("gate", run, "--policy", gate).returncode == 2


def test_a_gate_with_until_is_0_only_where_the_arbiter_says_so_too(cli: Cli) -> None:
    run, gate = cli.run(), cli.write("gate.toml", FINE)
    for text, code in ((PASSES, 0), (FAILS, 1)):
        arbiter = cli.write("arbiter.toml", OPTIONAL + text)
        assert cli("gate", run, "--policy", gate, "--until", "--arbiter", arbiter).returncode == code
    assert cli("gate", run, "--policy", gate).returncode == 0


def test_a_gate_against_a_blocked_run_could_not_run_and_a_comparison_warns(cli: Cli) -> None:
    """3, not 1: nothing was found out about the run itself. A comparison decides nothing, so it is shown."""
    run, gate = cli.run(), cli.write("gate.toml", FINE)
    blocked = cli("verdict", "--config", cli.write("arbiter.toml", OPTIONAL + FAILS), "--artifact", run)
    assert blocked.returncode == 1
    refused = cli("gate", run, "--policy", gate, "--baseline", run)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "the arbiter blocked the run" in refused.stderr.replace("\n", " ")
    looked = cli("compare", run, "--baseline", run)
    assert (looked.returncode, "warning: the baseline" in looked.stderr) == (0, True)
    report = cli("runs", "report", run, "--baseline", run)
    assert "> **Warning:** `the baseline" in report.stdout
    page = cli("runs", "report", run, "--baseline", run, "--format", "html")
    assert "<strong>Warning:</strong> <bdi>the baseline" in page.stdout
