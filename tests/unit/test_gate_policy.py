"""Policies: what they say, and refusals that name the line and the key."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.gates.policy import MAX_RULES, PolicyError, parse_policy

FLOOR = '[[floors]]\nmetric = "accuracy"\nmin = 0.9\n'


def test_a_policy_says_what_it_says() -> None:
    policy = parse_policy(
        'alpha = 0.01\nmin_n = 50\nmax_failed_share = 0.02\nbaseline = "main"\n'
        + FLOOR
        + '[[floors]]\nname = "fraud"\nmetric = "recall"\nlabel = "high"\nmin = 0.8\nseverity = "warn"\n'
        'slice = { path = "/input/kind", value = 3 }\n'
        '[[regressions]]\ntolerated = 0.01\n[[regressions]]\nslice = { path = "/metadata/day" }\n'
    )
    assert (policy.alpha, policy.min_n, policy.max_failed_share, policy.baseline) == (0.01, 50, 0.02, "main")
    assert (policy.floors[1].slice.value, policy.floors[1].slice.each) == (3, False)
    assert policy.regressions[1].slice.each
    assert policy.paths == ("/input/kind", "/metadata/day")


def test_what_is_left_out_is_strict() -> None:
    """Nothing may fail, nothing may be missing, nothing may fall."""
    policy = parse_policy(FLOOR + "[[regressions]]\n")
    assert (policy.alpha, policy.max_failed_share, policy.max_missing, policy.proof) == (0.05, 0.0, 0, "interval")
    assert policy.regressions[0].tolerated == 0.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alpha 0.05", ["not valid TOML", "line 1"]),
        ("a = 1\nb = [", ["not valid TOML"]),
        ("a = " + "[" * 3_000, ["not valid TOML"]),
        (FLOOR + "\nalpha = 0.1\n", ["floors.0.alpha", "line 5", "unknown key"]),
        ("alpah = 0.1\n" + FLOOR, ["line 1", "alpah", "did you mean alpha"]),
        ("alpha = 2\n" + FLOOR, ["line 1", "alpha", "0.5"]),
        ('alpha = "0.1"\n' + FLOOR, ["line 1", "alpha"]),
        ("alpha = nan\n" + FLOOR, ["line 1", "alpha"]),
        (FLOOR + "[[floors]]\nmetric = 'recal'\nmin = 1\n", ["line 5", "floors.1.metric"]),
        (FLOOR + "[[floors]]\nmetric = 'accuracy'\n", ["line 4", "floors.1.min", "required"]),
        ("[[floors]]\nmetric = 'recall'\nmin = 0.5\n", ["line 1", "say which"]),
        ("[[floors]]\nmetric = 'accuracy'\nlabel = 'x'\nmin = 0.5\n", ["line 1", "label"]),
        ("[[floors]]\nmetric = 'accuracy'\nmin = 1.5\n", ["line 3", "floors.0.min"]),
        (FLOOR + "slice = { path = 'input' }\n", ["line 4", "floors.0.slice.path"]),
        (FLOOR + "slice = { path = '/input/a', each = true }\n", ["line 4", "each"]),
        (FLOOR + "slice = { path = '/input/a', value = 2026-01-01 }\n", ["dates"]),
        ("[floors]\nmetric = 'accuracy'\n", ["[[floors]]"]),
        ("alpha = 0.1\n", ["at least one of"]),
        ("", ["at least one of"]),
        ("[[regressions]]\ntolerated = -0.1\n", ["line 2", "regressions.0.tolerated"]),
        ("[[regressions]]\nlabel = 'a'\naxis = 'b'\n", ["line 1", "one of"]),
        ("[[regressions]]\nlabel = 'a'\nlabels = 'binary'\n", ["line 1", "binary"]),
        ("labels = 'binary'\n[[regressions]]\nlabel = 'a'\n", ["binary", 'needs labels = "strict"']),
        ("labels = 'binary'\n[[regressions]]\naxis = 'a'\n", ["binary", 'needs labels = "strict"']),
        (FLOOR + "name = 'a'\n" + FLOOR + "name = 'a'\n", ["'a'"]),
        ("baseline = '../x'\n" + FLOOR, ["line 1", "baseline"]),
        (FLOOR * (MAX_RULES + 1), ["floors"]),
    ],
)
def test_a_bad_policy_is_refused_by_line_and_key(text, said) -> None:
    with pytest.raises(PolicyError) as refused:
        parse_policy(text)
    told = refused.value.detail + " ".join(error.message for error in refused.value.errors)
    for word in said:
        assert word in told


@pytest.mark.parametrize(("key", "meant"), [("foo", None), ("flors", "floors"), ("baselin", "baseline"), ("x", None)])
def test_another_key_is_only_suggested_where_it_is_close(key: str, meant: str | None) -> None:
    with pytest.raises(PolicyError) as refused:
        parse_policy(f"{key} = 1\n{FLOOR}")
    suggested = f"; did you mean {meant}?" if meant else ""
    assert refused.value.errors[0].message == f"line 1, {key}: unknown key{suggested}"


def test_a_policy_in_two_labels_may_hold_parts_strictly_when_it_says_so() -> None:
    text = "labels = 'binary'\n[[regressions]]\n[[regressions]]\nlabel = 'a'\nlabels = 'strict'\n"
    assert [rule.labels for rule in parse_policy(text).regressions] == [None, "strict"]


@given(st.text(max_size=200))
def test_any_text_is_a_policy_or_refused(text: str) -> None:
    with contextlib.suppress(PolicyError):
        parse_policy(text)
