"""Exit codes: one table, and every command held to it on each of its bad days."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.cli.commands import cli
from app.cli.exits import ANSWERS, COULD_NOT_RUN, DOING_TABLE, FAILED, INTERRUPTED, JUDGING, JUDGING_TABLE, USAGE

ROOT = Path(__file__).parents[2]
NOBODY = "00000000-0000-7000-8000-000000000000"
ASKING = {
    "score": ["--system", "recorded", "--fixture", "rows.ndjson"],
    "runs list": [],
    "runs show": [NOBODY],
    "runs report": [NOBODY],
    "runs pause": [NOBODY],
    "runs resume": [NOBODY],
    "runs cancel": [NOBODY],
    "runs retry": [NOBODY],
    "ingest": ["policy.md"],
    "gate": [NOBODY, "--policy", "gate.toml"],
    "compare": [NOBODY, "--baseline", NOBODY],
    "verdict": ["--artifact", NOBODY],
    "critic report": [NOBODY],
    "baselines list": [],
    "baselines show": ["golden"],
    "baselines set": ["golden", NOBODY],
}
"""Commands that can ask a service, with arguments that are fine."""


def leaves(command: Any, name: str = "") -> Iterator[str]:
    commands: Mapping[str, Any] = getattr(command, "commands", {})
    if not commands:
        yield name
    for each, inner in commands.items():
        yield from leaves(inner, f"{name} {each}".strip())


COMMANDS = sorted(leaves(cli))


def wrong(command: str) -> int:
    """The code for what was not even begun."""
    return COULD_NOT_RUN if command in JUDGING else USAGE


def failed(command: str) -> int:
    """The code for what was begun and not done."""
    return COULD_NOT_RUN if command in JUDGING else FAILED


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.ndjson").write_text('{"expected_label": "low"}\n')
    (tmp_path / "policy.md").write_text("# A policy\n\nSome words.\n")
    (tmp_path / "gate.toml").write_text('[[floors]]\nmetric = "accuracy"\nmin = 0.5\n')
    (tmp_path / "arbiter.toml").write_text('[[checks]]\nkind = "command"\nname = "c"\nargv = ["true"]\n')
    return tmp_path


def code_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def test_every_command_belongs_to_one_family() -> None:
    assert set(COMMANDS) >= JUDGING
    assert set(ANSWERS.values()) <= set(JUDGING_TABLE)
    assert {"gate", "verify", "critic report"} <= JUDGING
    assert set(ASKING) <= set(COMMANDS)


def test_the_handbook_has_the_same_table() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for table in (DOING_TABLE, JUDGING_TABLE):
        for code, meaning in table.items():
            assert f"| {code} | {meaning} |" in text
    (named,) = re.findall(r"Commands that judge: (.+)\.\n", text)
    assert set(re.findall(r"`([a-z ]+)`", named)) == JUDGING
    assert set(re.findall(r"`([a-z ]+)`", text)) >= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_bad_usage(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(*command.split(), "--no-such-option") == wrong(command)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "code"),
    [("nonsense", USAGE), ("runs nonsense", USAGE), ("db nonsense", USAGE), ("critic nonsense", COULD_NOT_RUN)],
)
def test_a_command_that_there_is_not(words: str, code: int) -> None:
    assert code_of(*words.split()) == code
    group = words.split()[:-1]
    assert not group or code_of(*group) == code


@pytest.mark.parametrize("command", ASKING)
@pytest.mark.parametrize("server", ["http://127.0.0.1:9", "nonsense"])
def test_a_service_that_can_not_be_reached(command: str, server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(*command.split(), *ASKING[command], "--server", server) == failed(command)
    said = capsys.readouterr()
    assert (said.out, "Traceback" in said.err) == ("", False)
    assert said.err.startswith("arbiter-l8: ")


@pytest.mark.parametrize("command", [*ASKING, "serve", "worker", "db upgrade", "critic replay"])
def test_a_wrong_setting(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ARBITER_PROT", "1")
    arguments = ["trail"] if command == "critic replay" else ASKING.get(command, [])
    assert code_of(*command.split(), *arguments) == wrong(command)
    assert "did you mean ARBITER_PORT?" in " ".join(capsys.readouterr().err.split())


def with_option(option: str) -> list[str]:
    """The commands that have it, as they declare it."""

    def options(command: str) -> set[str]:
        found: Any = cli
        for word in command.split():
            found = found.commands[word]
        return {name for parameter in found.params for name in parameter.opts}

    return [command for command in COMMANDS if option in options(command)]


def test_every_command_that_can_ask_a_service_is_tested() -> None:
    assert set(with_option("--server")) == set(with_option("--key")) == set(ASKING)


@pytest.mark.parametrize("command", with_option("--server"))
def test_variables_that_are_no_settings_keep_nobody_from_asking_a_service(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command's own and the caller's: with --server this machine's settings say nothing."""
    for name in ("ARBITER_KEY", "ARBITER_URL", "ARBITER_PROT"):
        monkeypatch.setenv(name, "1")
    assert code_of(*command.split(), *ASKING[command], "--server", "http://127.0.0.1:9") == failed(command)
    said = capsys.readouterr().err
    assert "is it running?" in " ".join(said.split())
    assert "ARBITER_" not in said


@pytest.mark.parametrize("command", [*with_option("--key"), "db upgrade"])
def test_the_command_lines_own_variables_are_no_mistyped_settings(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARBITER_KEY", "secret")
    monkeypatch.setenv("ARBITER_PORT", "x")
    assert code_of(*command.split(), *ASKING.get(command, [])) == wrong(command)
    said = capsys.readouterr().err
    assert "ARBITER_PORT: Input should be" in " ".join(said.split())
    assert "ARBITER_KEY" not in said


def test_the_key_of_the_command_line_is_not_looked_for_in_the_file_of_settings(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Taking it for one that is read would leave its owner without a key and without a word."""
    (folder / ".env").write_text("ARBITER_KEY=secret\n")
    assert code_of("runs", "list") == USAGE
    said = " ".join(capsys.readouterr().err.split())
    assert said == "arbiter-l8: ARBITER_KEY is read from the environment only: take it out of the .env file"


@pytest.mark.parametrize("command", [*ASKING, "serve", "worker", "db upgrade"])
def test_a_database_that_is_none(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARBITER_DATABASE_URL", "nonsense")
    extra = ["--config", "arbiter.toml"] if command == "verdict" else []
    assert code_of(*command.split(), *ASKING.get(command, []), *extra) == wrong(command)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("command", [name for name, given in ASKING.items() if NOBODY in given])
def test_a_run_that_there_is_not(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("db", "upgrade") == 0
    capsys.readouterr()
    extra = ["--config", "arbiter.toml"] if command == "verdict" else []
    assert code_of(*command.split(), *ASKING[command], *extra) == failed(command)
    said = capsys.readouterr()
    assert (said.out, said.err.strip()) == ("", "arbiter-l8: there is no such run")


@pytest.mark.parametrize("command", [name for name, given in ASKING.items() if NOBODY in given])
def test_what_is_no_id_of_a_run_is_a_run_that_there_is_not(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """But for what a new baseline shall point at, and an arbiter's artifact, which may be a file: wrongly asked."""
    assert code_of("db", "upgrade") == 0
    extra = ["--config", "arbiter.toml"] if command == "verdict" else []
    arguments = [word.replace(NOBODY, "nope") for word in ASKING[command]]
    expected = wrong(command) if command == "baselines set" else failed(command)
    assert code_of(*command.split(), *arguments, *extra) == expected
    assert "Traceback" not in capsys.readouterr().err


READING = (
    ("score", "--system", "recorded", "--fixture"),
    ("ingest",),
    ("gate", NOBODY, "--policy"),
    ("verdict", "--config"),
    ("critic replay",),
    ("verify",),
)


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (words, file)
        for words in READING
        for file in ("nowhere.toml", ".", "bytes.toml")
        if (words, file) != (("ingest",), ".")  # a folder of policies is fine
    ],
)
def test_an_input_file_that_can_not_be_read(
    arguments: tuple[str, ...], file: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    command, *rest = arguments
    assert code_of(*command.split(), *rest, file) == wrong(command)
    said = capsys.readouterr()
    assert (said.out, "Traceback" in said.err) == ("", False)


@pytest.mark.parametrize("arguments", [("openapi", "-o", "rows.ndjson/openapi.json"), ("openapi", "-o", ".")])
def test_an_output_file_that_can_not_be_written(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(*arguments) == FAILED
    assert "cannot be written" in capsys.readouterr().err


@pytest.fixture
def interrupting() -> Iterator[str]:
    """The address of a service that answers nothing: whoever connects is interrupted, as by Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            taken, _ = listener.accept()
            with taken:
                taken.recv(1)
                os.kill(os.getpid(), signal.SIGINT)
                taken.settimeout(10)
                while taken.recv(65_536):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{port}"
        thread.join(10)
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("command", ASKING)
def test_an_interrupted_command(command: str, interrupting: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(*command.split(), *ASKING[command], "--server", interrupting) == INTERRUPTED
    assert "Traceback" not in capsys.readouterr().err


class Interrupted:
    """A standard input whose reader is interrupted."""

    @property
    def buffer(self) -> Interrupted:
        return self

    def read(self, *_: int) -> bytes:
        raise KeyboardInterrupt


def test_an_interrupted_check_of_a_bundle_is_not_one_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Interrupted())
    assert code_of("verify", "-") == INTERRUPTED
