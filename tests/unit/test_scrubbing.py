"""Secrets are taken out of what is stored, however they are written down."""

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.scrubbing import MARK, Scrubber

KNOWN = "correct-horse/battery+staple"
LOOKING = (
    "sk-abcdefghijklmnop1234",
    "ghp_abcdefghijklmnopqrst0123",
    "AKIAABCDEFGHIJKLMNOP",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
)
scrub = Scrubber([KNOWN])


def u_escaped(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in text)


WAYS = {
    "plain": lambda text: text,
    "json": json.dumps,
    "json in json": lambda text: json.dumps(json.dumps({"note": text})),
    "json in json in json": lambda text: json.dumps(json.dumps(json.dumps([text]))),
    "escapes": u_escaped,
    "escapes in json": lambda text: json.dumps(u_escaped(text)),
    "url": lambda text: "https://h/?q=" + quote(text, safe=""),
    "url twice": lambda text: quote(quote(text, safe=""), safe=""),
    "entities": lambda text: "".join(f"&#{ord(char)};" for char in text),
}


def plain_forms(text: str) -> set[str]:
    """The text unescaped in the ways that a reader would."""
    forms = {text}
    for _ in range(4):
        forms |= {form.encode("latin-1", "replace").decode("unicode_escape", "replace") for form in forms}
    return forms


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("secret", [KNOWN, *LOOKING], ids=lambda text: text[:8])
def test_a_secret_goes_however_it_is_written(secret: str, way) -> None:
    written = way(secret)
    scrubbed = scrub.text(f"before {written} after")
    assert written not in scrubbed
    assert MARK in scrubbed
    assert scrubbed.startswith("before ")
    assert scrubbed.endswith(" after")
    assert not any(secret in form for form in plain_forms(scrubbed))


def test_a_value_goes_for_its_name_at_any_depth() -> None:
    given_ = {"a": [{"apiKey": "short", "n": 1}], "client_secret": {"x": 1}, "password": None, "input_tokens": 7}
    assert scrub.value(given_) == {
        "a": [{"apiKey": MARK, "n": 1}],
        "client_secret": MARK,
        "password": None,
        "input_tokens": 7,
    }


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"password": "two words"}', '{"password": "***"}'),
        ('{\\"api_key\\": \\"two words\\"}', '{\\"api_key\\": \\"***\\"}'),
        ("Authorization: Bearer abcdefg123", "Authorization: ***"),
        ("postgresql://user:hunter2@db/x", "postgresql://user:***@db/x"),
        ("pwd=hunter2&x=1", "pwd=***&x=1"),
    ],
)
def test_only_the_secret_goes(text: str, left: str) -> None:
    assert scrub.text(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "a transfer of 12,500 EUR (50% of it) to Harbour Trade",
        "basic principles of bearer securities",
        "sha256:" + "a" * 64,
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert scrub.text(text) == text


PIECES = st.sampled_from(
    [*LOOKING, KNOWN, "password=", "token: ", '"', "\\", "%41", "&#65;", "Bearer ", " ", "abcd1", "\\u0041"]
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=12).map("".join))
def test_scrubbing_twice_changes_nothing_more_and_nothing_grows(text: str) -> None:
    once = scrub.text(text)
    assert scrub.text(once) == once
    assert len(once) <= len(text)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=10),
        lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=6), c, max_size=3),
    )
)
def test_any_json_is_scrubbed_and_stays_json(value: object) -> None:
    once = scrub.value(value)
    assert scrub.value(once) == once
