"""Cursors, identifiers and times."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import BadRequest
from app.store.ids import now, random_bytes, to_text, uuid7
from app.store.paging import decode_cursor, encode_cursor, page_of


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.integers(-(2**62), 2**62))
def test_a_cursor_gives_back_its_key(text: str, number: int) -> None:
    """Whatever the key holds, and it is safe in a URL."""
    cursor = encode_cursor(text, number)
    assert decode_cursor(cursor, str, int) == (text, number)
    assert cursor.replace("-", "").replace("_", "").isalnum()


@given(st.text(max_size=50))
def test_any_other_text_is_refused(text: str) -> None:
    """A cursor is never a reason for an internal error."""
    try:
        decode_cursor(text, str, int)
    except BadRequest:
        return
    assert encode_cursor(*decode_cursor(text, str, int)).rstrip("=") is not None


@pytest.mark.parametrize(
    "key", [("a",), (1, "a"), ("a", 1, 1), ("a", True), ("a", 1.5), ("\0", 1), ("\ud800", 1), ("a", 2**64)]
)
def test_a_cursor_of_another_list_is_refused(key: tuple[str | int, ...]) -> None:
    """Number and types of the key must fit, and a column must be able to be compared with it."""
    with pytest.raises(BadRequest):
        decode_cursor(encode_cursor(*key), str, int)


def test_a_page_has_a_cursor_only_if_there_is_more() -> None:
    """One row more than the limit was asked for, to know."""
    assert page_of(["a", "b"], 2, [("a",), ("b",)]).next_cursor is None
    page = page_of(["a", "b", "c"], 2, [("a",), ("b",), ("c",)])
    assert page.items == ("a", "b")
    assert page.next_cursor == encode_cursor("b")


def test_identifiers_of_one_process_grow() -> None:
    """Also within a millisecond; each is a UUID of version 7."""
    ids = [uuid7() for _ in range(10_000)]
    assert ids == sorted(set(ids))
    assert all(text[14] == "7" and text[19] in "89ab" and len(text) == 36 for text in ids)


def test_times_are_utc_with_microseconds() -> None:
    """Texts of one width, which sort by time."""
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2)))
    assert to_text(moment) == "2026-01-02T01:04:05.000000Z"
    assert len(now()) == 27
    assert datetime.fromisoformat(now()).tzinfo == UTC
    with pytest.raises(ValueError, match="zone"):
        to_text(datetime(2026, 1, 1))


def test_random_bytes_never_repeat() -> None:
    """Not within a piece, not across pieces, not in a child process; any size can be had."""
    drawn = [random_bytes(16) for _ in range(1_000)]
    assert len(set(drawn)) == 1_000
    assert [len(random_bytes(size)) for size in (0, 1, 4_095, 4_096, 4_097)] == [0, 1, 4_095, 4_096, 4_097]
    random_bytes(1)
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, random_bytes(16))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 16) != random_bytes(16)
    os.close(reader)
    os.close(writer)
