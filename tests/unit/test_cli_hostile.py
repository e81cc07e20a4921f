"""The command line on a hostile day: nothing drives the terminal, no id leads elsewhere, no password is shown."""

import pytest

from app.cli.client import named, segment
from app.cli.console import escape


@pytest.mark.parametrize("text", ["\x1b]0;pwn\x07", "\x1b[31mred", "a\u202eb", "\x00", "[bold]x[/bold]", "\ud800"])
def test_what_is_printed_holds_no_control_character(text: str) -> None:
    shown = escape(text)
    assert all(each.isprintable() for each in shown)
    assert shown.encode("utf-8")


@pytest.mark.parametrize("text", ["../evaluations?limit=1", "a/b", "x#y", "\x01", "a" * 70_000, ""])
def test_an_id_stays_one_segment_of_the_path(text: str) -> None:
    made = segment(text)
    assert made
    assert not set(made) & set("/?#")
    assert len(made) < 4_000


def test_a_servers_password_is_not_shown() -> None:
    assert named("http://user:secret@127.0.0.1:1/x") == "http://127.0.0.1:1"
    assert named("http://127.0.0.1:8088") == "http://127.0.0.1:8088"
