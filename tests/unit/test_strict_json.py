"""Strict JSON: what is refused, and where the refusal points."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.strict_json import StrictJsonError, loads

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs", "Cc"])), inner),
    max_leaves=20,
)


@given(JSON, st.booleans())
def test_reads_what_the_standard_library_writes(value, ascii_only) -> None:
    """Acceptable values survive, as bytes and as text, escaped or not."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert loads(text) == value
    assert loads(text.encode()) == value


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_the_one_error(data) -> None:
    """No other exception leaves the decoder."""
    with contextlib.suppress(StrictJsonError):
        loads(data)


@pytest.mark.parametrize(
    ("text", "pointer", "word"),
    [
        pytest.param('{"a": {"b": 1, "b": 2}}', "/a/b", "duplicate", id="duplicate-key"),
        pytest.param('{"a": [1, NaN]}', "/a/1", "NaN", id="nan"),
        pytest.param('{"a": -Infinity}', "/a", "Infinity", id="infinity"),
        pytest.param('{"a": 1e400}', "/a", "range", id="float-overflow"),
        pytest.param('{"a": -1.0E+00400}', "/a", "range", id="padded-exponent"),
        pytest.param('{"a": ' + "9" * 400 + "}", "/a", "range", id="integer-overflow"),
        pytest.param('{"a": ' + "9" * 5000 + "}", "/a", "range", id="integer-beyond-the-interpreter's-limit"),
        pytest.param('{"a": ' + "9" * 310 + ".5}", "/a", "range", id="digits-overflow"),
        pytest.param('{"a/b": "\\ud800"}', "/a~1b", "surrogate", id="lone-surrogate"),
        pytest.param('{"\\udc00": 1}', "", "surrogate", id="surrogate-key"),
        pytest.param('["\ud800"]', "/0", "surrogate", id="raw-surrogate"),
        pytest.param('["\\u0000"]', "/0", "NUL", id="nul"),
    ],
)
def test_refuses_and_points_at_it(text, pointer, word) -> None:
    """The refused value is named by its JSON Pointer."""
    with pytest.raises(StrictJsonError, match=word) as caught:
        loads(text)
    assert caught.value.pointer == pointer
    caught.value.message.encode()


def test_escapes_that_are_none_are_kept() -> None:
    """A pair of surrogates is one character, and an escaped backslash escapes nothing."""
    assert loads('["\\ud83d\\ude00", "\\\\u0000", "1e999"]') == ["\U0001f600", "\\u0000", "1e999"]


def test_accepts_a_byte_order_mark() -> None:
    assert loads(b"\xef\xbb\xbf[1]") == [1]
    assert loads("\ufeff[1]") == [1]


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_survives_any_depth(opening) -> None:
    """Depth 100,000 is an error, not a crash."""
    with pytest.raises(StrictJsonError, match="nested deeper than 64"):
        loads(opening * 100_000)


def test_depth_counts_containers_and_not_brackets_in_text() -> None:
    """Only nesting counts: neither siblings nor brackets inside strings do."""
    assert loads("[" * 64 + "]" * 64)
    with pytest.raises(StrictJsonError):
        loads("[" * 65 + "]" * 65)
    assert loads(json.dumps(["[" * 500 + '"\\'])) == ["[" * 500 + '"\\']
    assert len(loads("[" + ",".join(["[]"] * 500) + "]")) == 500


def test_invalid_utf8_names_the_byte() -> None:
    with pytest.raises(StrictJsonError, match="byte 2") as caught:
        loads(b'["\xff"]')
    assert caught.value.position == 2


def test_syntax_errors_name_line_and_column() -> None:
    with pytest.raises(StrictJsonError) as caught:
        loads('{"a": 1,\n "b": }')
    assert (caught.value.line, caught.value.column) == (2, 7)


@pytest.mark.parametrize("text", ["", " ", "[1] 2", "\x00", "tru"])
def test_no_text_or_more_than_one_is_refused(text) -> None:
    with pytest.raises(StrictJsonError):
        loads(text)
