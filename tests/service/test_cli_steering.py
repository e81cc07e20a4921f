"""Steering runs and naming baselines from the command line: what is sent, what is printed, and with which code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.cli import main
from app.demo.hosting import hosted

RUN = "01a22c4e-4dd4-7000-a912-70408d41bef9"
PROGRESS = {"n_total": 2, "n_done": 0, "n_scored": 0, "n_failed": 0, "rate_per_s": None, "eta_s": None}
ANSWER = {"run_id": RUN, "name": None, "system": "recorded", "status": "paused", "failure": None, "progress": PROGRESS}
PREDICTED = {"label": "low", "confidence": 0.9, "raw_output": {}}
EXAMPLES = [
    {"id": "a", "input": {"amount": 1}, "expected_label": "low", "prediction": {"id": "a", **PREDICTED}},
    {"id": "b", "input": {"amount": 2}, "expected_label": "high", "prediction": {"id": "b", **PREDICTED}},
]
DATASET = "".join(f"{json.dumps(each)}\n" for each in EXAMPLES)


class Peer:
    """A service that notes what it is sent and answers every request with the same run."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, bytes]] = []
        self.keys: list[str | None] = []

    async def answer(self, request: Request) -> Response:
        self.sent.append((request.method, request.url.path, await request.body()))
        self.keys.append(request.headers.get("authorization"))
        return JSONResponse(ANSWER)

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self.answer, methods=["GET", "POST", "PUT"])])


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def server(peer: Peer) -> Iterator[str]:
    with hosted(peer.app()) as url:
        yield url


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARBITER_TELEMETRY", "false")
    (tmp_path / "rows.ndjson").write_text(DATASET)
    return tmp_path


class Done:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    return call


@pytest.mark.parametrize("act", ["pause", "resume", "cancel", "retry"])
def test_a_run_is_steered_by_its_own_resource(cli, peer: Peer, server: str, act: str) -> None:
    done = cli("runs", act, RUN, "--server", server, "--key", "k")
    assert (done.code, done.out) == (0, f"{RUN} paused\n")
    assert peer.sent == [("POST", f"/runs/{RUN}/{act}", b"")]
    assert peer.keys == ["Bearer k"]
    assert json.loads(cli("runs", act, RUN, "--server", server, "--json").out) == ANSWER


def test_a_score_that_nobody_waits_for_is_left_to_the_service_with_its_options(cli, peer: Peer, server: str) -> None:
    options = ("--concurrency", "8", "--priority", "-5", "--repeats", "3")
    asked = ("score", "--system", "recorded", "--fixture", "rows.ndjson", *options, "--no-wait", "--server", server)
    done = cli(*asked)
    assert (done.code, done.out) == (0, f"run {RUN} paused\n")
    ((method, path, body),) = peer.sent
    assert (method, path) == ("POST", "/runs")
    assert b'"concurrency": 8, "repeats": 3, "priority": -5' in body
    assert json.loads(cli(*asked, "--json").out) == ANSWER


def test_nobody_can_be_left_a_run_where_there_is_no_service(cli) -> None:
    done = cli("score", "--system", "recorded", "--fixture", "rows.ndjson", "--no-wait")
    assert (done.code, done.out) == (2, "")
    assert "--server" in done.err


def test_the_key_may_stand_in_the_environment(cli, peer: Peer, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARBITER_KEY", "from-the-environment")
    assert cli("runs", "pause", RUN, "--server", server).code == 0
    assert peer.keys == ["Bearer from-the-environment"]


def test_a_baseline_is_set_shown_and_listed(cli) -> None:
    """On the local store, with a run that was really scored."""
    assert cli("baselines", "list").code == 2
    scored = cli("score", "--system", "recorded", "--fixture", "rows.ndjson", "--repeats", "1", "--priority", "1")
    assert scored.out.startswith("accuracy: 1/2 (50.0%)\n")
    assert cli("baselines", "list").out == "no baselines yet\n"
    run = scored.out.split()[-1]
    done = cli("baselines", "set", "golden", run)
    assert (done.code, done.out) == (0, f"golden {run}\n")
    assert run in cli("baselines", "show", "golden").out
    assert json.loads(cli("baselines", "show", "golden", "--json").out)["history"][0]["run_id"] == run
    assert [each["name"] for each in json.loads(cli("baselines", "list", "--json").out)] == ["golden"]
    assert run in cli("baselines", "list").out
    assert cli("baselines", "show", "silver").code == 1
    late = cli("runs", "pause", run)
    assert (late.code, late.out) == (1, "")
    assert late.err.startswith("arbiter-l8: ")
