"""The canonical serialisation: equal bytes mean equal values, and what JSON can't carry is refused."""

import hashlib
import json
import sys
from collections import OrderedDict
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.canonical import canonical_bytes, sha256_of

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param({"b": 1, "a": [True, None]}, b'{"a":[true,null],"b":1}', id="sorted-and-compact"),
        pytest.param("é – \u2028", '"é – \u2028"'.encode(), id="utf8-not-escaped"),
        pytest.param('"\\\n\x00\x1f', b'"\\"\\\\\\n\\u0000\\u001f"', id="controls-escaped"),
        pytest.param(10**30, b"1" + b"0" * 30, id="big-integer-exact"),
        pytest.param(1.0, b"1.0", id="float-stays-float"),
        pytest.param(-0.0, b"-0.0", id="negative-zero-keeps-its-sign"),
        pytest.param(0.1 + 0.2, b"0.30000000000000004", id="shortest-exact-float"),
        pytest.param((1, (2,)), b"[1,[2]]", id="tuple-is-array"),
        pytest.param({"\U0001f600": 1, "\uffff": 2}, '{"\uffff":2,"\U0001f600":1}'.encode(), id="code-point-order"),
        pytest.param(OrderedDict(b=1, a=Colour.RED), b'{"a":"red","b":1}', id="subclasses-as-their-base"),
    ],
)
def test_canonical_text_is_fixed(value, expected):
    assert canonical_bytes(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(float("nan"), id="nan"),
        pytest.param({"a": [float("inf")]}, id="inf"),
        pytest.param("\ud800", id="lone-surrogate"),
        pytest.param({"\udfff": 1}, id="lone-surrogate-key"),
        pytest.param({1: 2}, id="integer-key"),
        pytest.param([{"a": ({None: 2},)}], id="null-key-deep-inside"),
        pytest.param({1: 2, "1": 3}, id="keys-that-would-collide"),
        pytest.param({True: 2}, id="boolean-key"),
        pytest.param({"a": b"x"}, id="bytes"),
        pytest.param({"a": {1, 2}}, id="set"),
        pytest.param(object(), id="object"),
    ],
)
def test_what_json_cannot_carry_is_a_value_error(value):
    with pytest.raises(ValueError, match=r"."):
        canonical_bytes(value)


def test_a_cycle_is_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(ValueError, match="ircular"):
        canonical_bytes(loop)


def test_nesting_beyond_the_interpreter_is_refused_not_a_crash():
    deep: list = []
    for _ in range(sys.getrecursionlimit() * 200):
        deep = [deep]
    with pytest.raises(ValueError, match="nested"):
        canonical_bytes(deep)
    while deep:  # taken apart by hand, or the collector would recurse
        deep = deep[0]


@given(JSON)
def test_decoding_gives_the_value_back_and_encoding_again_the_same_bytes(value):
    data = canonical_bytes(value)
    decoded = json.loads(data)
    assert decoded == value
    assert canonical_bytes(decoded) == data


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(), min_size=2))
def test_insertion_order_does_not_matter(value):
    assert canonical_bytes(dict(reversed(list(value.items())))) == canonical_bytes(value)


def test_sha256_of_names_its_algorithm():
    assert sha256_of(b"abc") == "sha256:" + hashlib.sha256(b"abc").hexdigest()
