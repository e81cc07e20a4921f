"""What the command line says when something is wrong: sentences, and no names of our classes."""

import httpx
import pytest

from app.cli import main
from app.cli.client import RequestFailed, no_answer
from app.cli.gate import show_comparison
from app.gates.policy import PolicyError, parse_policy
from app.gates.render_markdown import probability


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (httpx.ConnectError("[Errno 111] Connection refused"), "refused the connection"),
        (httpx.ConnectError("All connection attempts failed"), "refused the connection"),
        (httpx.ConnectError("[Errno -2] Name or service not known"), "no connection to this address"),
        (httpx.ConnectTimeout(""), "no connection in time"),
        (httpx.ReadTimeout(""), "gave no answer in time"),
        (httpx.RemoteProtocolError("x"), "broke off the connection"),
        (httpx.UnsupportedProtocol("x"), "begins with http://"),
        (httpx.TooManyRedirects("x"), "no answer that can be read"),
    ],
)
def test_a_service_that_does_not_answer_is_told_in_words(error: httpx.HTTPError, said: str) -> None:
    sentence = no_answer(error, "http://there")
    assert sentence.startswith("http://there ")
    assert said in sentence
    assert "Error" not in sentence
    assert type(error).__name__ not in sentence


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["runs", "list"], 1),
        (["gate", "r", "--policy", "policy.toml"], 3),
        (["compare", "r", "--baseline", "b"], 3),
        (["verdict", "--artifact", "0" * 8 + "-0000-0000-0000-" + "0" * 12], 3),
        (["--system", "recorded", "--fixture", "rows.ndjson"], 1),
    ],
)
def test_every_command_says_that_nobody_listens(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.toml").write_text("[[regressions]]\n")
    (tmp_path / "rows.ndjson").write_text('{"expected_label": "low"}\n')
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--server", "http://127.0.0.1:1"])
    said = capsys.readouterr().err
    assert ended.value.code == code, said
    assert "refused the connection" in said
    assert "ConnectError" not in said


@pytest.mark.parametrize("content", [b"garbage", b"", b"[1]", b'{"event": "row"}', b"\xff\x00"])
def test_a_trail_of_garbage_is_refused_in_a_plain_sentence(
    tmp_path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    (tmp_path / "trail").write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        main(["critic", "replay", str(tmp_path / "trail")])
    said = capsys.readouterr().err
    assert ended.value.code == 3
    assert said.startswith("arbiter-l8: this audit trail can't be replayed: ")
    assert "AuditError" not in said


def test_a_trail_that_is_not_there_is_named(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["critic", "replay", str(tmp_path / "none")])
    assert ended.value.code == 3
    assert "none cannot be read: No such file or directory" in " ".join(capsys.readouterr().err.split())


def test_what_a_refusal_says_it_says_once() -> None:
    """A policy's first error stands in the sentence already; the others are listed with their pointers."""
    with pytest.raises(PolicyError) as refused:
        parse_policy("alpha = 2\nmin_n = 0\n[[regressions]]\n")
    errors = [{"pointer": one.pointer, "message": one.message} for one in refused.value.errors]
    sentence = str(RequestFailed(422, {"detail": refused.value.detail, "errors": errors}))
    assert len(errors) == 2
    for one in errors:
        assert sentence.count(one["message"]) == 1
    assert "/min_n" in sentence


def test_a_small_p_value_is_never_printed_as_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert [probability(value) for value in (0.0, 9e-5, 1e-4, 0.25, 1.0, None)] == [
        "<0.0001",
        "<0.0001",
        "0.0001",
        "0.2500",
        "1.0000",
        "",
    ]
    part = {"n": 99, "difference": -0.5, "corrected": 0, "broke": 50, "p_exact": 1e-12, "p_adjusted": 2e-12}
    part |= {"verdict": "worse", "interval": {"low": -0.6, "high": -0.4}, "minimum_detectable": None}
    nothing = {"count": 0, "ids": []}
    names = ("missing", "added", "relabelled", "duplicates", "broke", "corrected")
    pairs = dict.fromkeys(names, nothing) | {"n_pending": 0, "n_paired": 99}
    made = {"strict": part, "pairs": pairs, "per_label": [{"label": "low", **part}], "slices": [], "axes": []}
    show_comparison({**made, "binary": None, "sequential": {"p_value": 1e-9, "decided": True}})
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("label low"))
    assert row.split()[6:8] == ["<0.0001", "<0.0001"]


def test_the_help_of_verdict_says_that_config_and_server_exclude_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["verdict", "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "they exclude each other" in said
    assert "Not together with --server" in said
