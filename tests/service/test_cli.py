"""The command line as a process sees it: what it prints, where, and with which exit code."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.demo.hosting import hosted
from app.demo.sentinel import build_sentinel
from app.demo.synapse import build_synapse

FIXTURES = Path(__file__).parents[2] / "app" / "demo" / "fixtures"
SENTINEL, SYNAPSE = FIXTURES / "sentinel_l7_ground_truth.json", FIXTURES / "synapse_l4_ground_truth.json"
COMPLIANCE = FIXTURES / "compliance_dataset.json"
UNREACHABLE = "http://127.0.0.1:9/mcp"


@pytest.fixture(scope="module")
def sentinel() -> Iterator[str]:
    with hosted(build_sentinel()) as url:
        yield f"{url}/mcp"


@pytest.fixture(scope="module")
def synapse() -> Iterator[str]:
    with hosted(build_synapse()) as url:
        yield url


class Cli:
    """Runs the command in a folder of its own, with nothing from the environment but what is needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "app.cli", *map(str, arguments)],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(FIXTURES.parents[2]), **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def one_line(text: str) -> bool:
    return text.count("\n") == 1 and text.startswith("arbiter-l8: ")


def test_a_score_begins_with_the_accuracy_and_ends_with_the_runs_id(cli: Cli, sentinel: str) -> None:
    done = cli("--system", "sentinel-l7", "--fixture", SENTINEL, "--limit", 25, "--binary", "--url", sentinel)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("accuracy: 22/25 (88.0%)\n")
    assert "accuracy: 23/25 (92.0%)" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("run ")


def test_the_first_word_may_be_left_out_or_be_score(cli: Cli, synapse: str) -> None:
    done = cli("score", "--system", "synapse-l4", "--fixture", SYNAPSE, "--url", synapse)
    assert done.stdout.startswith("accuracy: 12/12 (100.0%)\n")
    assert done.stdout.count("every resample gives the same value") == 1, "figures that share a reason share its line"
    assert "macro.f1_interval" in done.stdout


def test_json_output_is_the_report_and_nothing_else(cli: Cli, synapse: str) -> None:
    done = cli("--system", "synapse-l4", "--fixture", SYNAPSE, "--url", synapse, "--json")
    report = json.loads(done.stdout)
    assert (report["correct"], report["total"], report["schema_version"]) == (12, 12, 1)


def test_a_target_that_cannot_be_reached_is_one_line_and_exit_code_1(cli: Cli) -> None:
    done = cli("--system", "sentinel-l7", "--fixture", SENTINEL, "--limit", 3, "--url", UNREACHABLE)
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert "could not be reached" in done.stderr
    assert done.stdout == ""


def not_json(folder: Path) -> Path:
    path = folder / "broken.json"
    path.write_text("{not json")
    return path


@pytest.mark.parametrize(
    ("fixture", "said"),
    [
        pytest.param(lambda folder: folder, "is a folder", id="a folder"),
        pytest.param(lambda folder: folder / "nowhere.json", "does not exist", id="missing"),
        pytest.param(lambda _: Path(__file__), "must end in .json, .ndjson or .csv", id="another kind of file"),
        pytest.param(not_json, "expected {", id="not JSON"),
        pytest.param(lambda _: COMPLIANCE, "was not made for sentinel-l7", id="made for something else"),
    ],
)
def test_a_fixture_that_is_none_is_a_usage_error_in_one_line(cli: Cli, tmp_path: Path, fixture, said: str) -> None:
    done = cli("--system", "sentinel-l7", "--fixture", fixture(tmp_path), "--url", UNREACHABLE)
    assert done.returncode == 2
    assert one_line(done.stderr)
    assert said in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--driver", "gemini"], id="a driver for a system without drivers"),
        pytest.param(["--binary"], id="binary for a system without a binary reading"),
        pytest.param(["--driver", "oracle"], id="an unknown driver"),
        pytest.param(["--limit", "0"], id="a limit of nothing"),
        pytest.param(["--server", "http://127.0.0.1:9", "--url", "http://127.0.0.1:9"], id="a target for a service"),
    ],
)
def test_bad_usage_is_exit_code_2(cli: Cli, arguments: list[str]) -> None:
    done = cli("--system", "synapse-l4", "--fixture", SYNAPSE, *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_service_that_is_not_there_is_one_line_and_exit_code_1(cli: Cli) -> None:
    done = cli("--system", "recorded", "--fixture", COMPLIANCE, "--server", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert one_line(done.stderr)


def test_a_mistyped_setting_is_refused_by_name_before_anything_runs(cli: Cli) -> None:
    done = cli("runs", "list", ARBITER_PROT="1")
    assert done.returncode == 2
    assert "unknown setting ARBITER_PROT; did you mean ARBITER_PORT?" in done.stderr


def test_a_public_address_without_a_key_is_refused(cli: Cli) -> None:
    done = cli("serve", "--host", "0.0.0.0", "--port", 0)  # noqa: S104 - the refusal is what is tested
    assert done.returncode == 2
    assert "ARBITER_API_KEYS" in done.stderr


@pytest.mark.slow
def test_runs_are_listed_from_the_local_store(cli: Cli, synapse: str) -> None:
    scored = cli("--system", "synapse-l4", "--fixture", SYNAPSE, "--url", synapse, "--name", "nightly")
    run_id = scored.stdout.split()[-1]
    listed = cli("runs", "list")
    assert run_id in listed.stdout
    assert "nightly" in listed.stdout
    shown = cli("runs", "show", run_id, "--json")
    assert json.loads(shown.stdout)["report"]["correct"] == 12


def test_policies_are_ingested_into_the_local_index(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "aml_bsa.md").write_text("# AML-BSA-001\n\nReport cash over 10,000 USD under 31 U.S.C. § 5324.\n")
    done = cli("ingest", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("policies: 1 entry of ")


@pytest.mark.slow
def test_the_demo_shows_both_runs_and_what_was_flagged_within_a_minute(cli: Cli) -> None:
    done = cli("demo")
    assert done.returncode == 0, done.stderr
    assert "accuracy: 12/12 (100.0%)" in done.stdout
    assert "accuracy: 23/25 (92.0%)" in done.stdout
    assert "31 U.S.C. § 5324: ungrounded" in done.stdout
    assert list(cli.folder.iterdir()) == []


@pytest.mark.slow
def test_the_stand_ins_answer_until_they_are_told_to_stop(cli: Cli) -> None:
    """Whoever has no system yet can score against them, as against a system of their own."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(FIXTURES.parents[2])}
    command = [sys.executable, "-m", "app.cli", "demo", "--stand-ins", "--sentinel-port", "0", "--synapse-port", "0"]
    with subprocess.Popen(command, cwd=cli.folder, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        (synapse,) = re.findall(r"Synapse-L4 on (http://\S+);", said)
        done = cli("--system", "synapse-l4", "--fixture", SYNAPSE, "--url", synapse)
        process.terminate()
        assert process.wait(20) == 0
    assert done.stdout.startswith("accuracy: 12/12 (100.0%)\n")


def test_a_stand_in_whose_port_is_taken_names_the_option_for_another(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = cli("demo", "--stand-ins", "--sentinel-port", listener.getsockname()[1])
    assert (done.returncode, one_line(done.stderr)) == (2, True)
    assert "choose another with --sentinel-port" in done.stderr
