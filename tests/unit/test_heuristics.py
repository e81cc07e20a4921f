"""The free checks read the profile and nothing else."""

import math
import timeit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.heuristics import check, condition_holds, heuristics
from layers.json_pointer import MISSING, escape, resolve
from layers.model import EvalPrediction
from layers.ports import LayerInput
from layers.profile import BinaryCollapse, Condition, ContradictionRule, SystemProfile

CERTAIN = SystemProfile(
    name="certain",
    labels=("low", "medium", "high"),
    elevated=frozenset({"high"}),
    label_pointer="/risk_level",
    confidence_pointer="/confidence",
    narrative_pointer="/narrative",
)
SCORED = SystemProfile(
    name="scored",
    labels=("nominal", "degraded", "critical"),
    elevated=frozenset({"critical"}),
    confidence_means="score",
    contradictions=(
        ContradictionRule(
            name="high_score_not_critical",
            reason="a high score requires critical",
            severity=0.9,
            when=(
                Condition(pointer="/anomaly_score", op="ge", value=0.8),
                Condition(pointer="/status", op="ne", value="critical"),
            ),
        ),
        ContradictionRule(
            name="metric_not_finite",
            reason="the metric is no finite number",
            severity=0.8,
            when=(Condition(pointer="/metric_value", op="not_finite"),),
        ),
    ),
)


def predict(confidence=0.7, label="medium", raw=None, metadata=None):
    raw = {"narrative": "because"} if raw is None else raw
    return EvalPrediction(id="1", raw_output=raw, label=label, confidence=confidence, metadata=metadata or {})


def rules(prediction, profile=CERTAIN):
    return [flag.rule for flag in check(prediction, profile).flags]


@pytest.mark.parametrize(
    ("confidence", "expected"),
    [
        (0.0, ["low_confidence"]),
        (0.399, ["low_confidence"]),
        (0.4, []),
        (0.7, []),
        (0.979, []),
        (0.98, ["confidence_saturation"]),
        (1.0, ["confidence_saturation"]),
    ],
)
def test_confidence_flags_below_its_floor_and_from_saturation_on(confidence, expected):
    assert rules(predict(confidence)) == expected


@pytest.mark.parametrize(("confidence", "expected"), [(0.59, ["elevated_label_low_confidence"]), (0.6, []), (0.9, [])])
def test_an_elevated_label_needs_more_confidence(confidence, expected):
    assert rules(predict(confidence, "high")) == expected


def test_a_low_confidence_in_an_elevated_label_is_two_flags_and_the_larger_severity_is_the_score():
    result = check(predict(0.25, "high"), CERTAIN)
    assert [flag.rule for flag in result.flags] == ["low_confidence", "elevated_label_low_confidence"]
    assert result.suspicion_score == 0.75
    assert {flag.pointer for flag in result.flags} == {"/confidence"}


@pytest.mark.parametrize("narrative", [None, "", "  \n", 7, []])
def test_high_confidence_without_a_narrative_flags(narrative):
    result = check(predict(0.8, raw={"narrative": narrative}), CERTAIN)
    assert [(flag.rule, flag.pointer) for flag in result.flags] == [("missing_narrative", "/raw_output/narrative")]
    assert rules(predict(0.8, raw={})) == ["missing_narrative"]
    assert rules(predict(0.79, raw={"narrative": narrative})) == []


def test_a_system_without_narratives_is_not_asked_for_one():
    assert rules(predict(0.9, raw={}), CERTAIN.model_copy(update={"narrative_pointer": None})) == []


def test_a_healthy_event_whose_confidence_is_a_score_does_not_flag():
    healthy = {"status": "nominal", "anomaly_score": 0.1, "metric_value": 12.5}
    result = check(predict(0.1, "nominal", healthy), SCORED)
    assert not result.flagged
    assert result.suspicion_score == 0


@pytest.mark.parametrize("confidence", [0.0, 0.1, 0.5, 0.99, 1.0])
def test_a_score_is_never_read_as_certainty(confidence):
    assert rules(predict(confidence, "critical", {"status": "critical"}), SCORED) == []


def test_a_missing_confidence_is_its_own_rule_and_not_a_low_one():
    marked = predict(0.0, "high", metadata={"confidence_missing": True})
    null = predict(0.0, "high", raw={"narrative": "x", "confidence": None})
    assert rules(marked) == rules(null) == ["confidence_missing"]


def test_a_confidence_that_the_payload_does_not_mention_is_the_callers():
    assert rules(predict(0.7, raw={"narrative": "x"})) == []


def test_a_label_outside_the_profile_flags():
    assert rules(predict(label="severe")) == ["unknown_label"]
    assert rules(predict(label="HIGH")) == ["unknown_label"]
    assert rules(predict(label="HIGH", confidence=0.5), CERTAIN.model_copy(update={"fold_case": True})) == [
        "elevated_label_low_confidence"
    ]
    assert rules(predict(label="anything"), SystemProfile(name="generic")) == []


def test_a_label_that_the_payload_contradicts_flags():
    raw = {"narrative": "x", "risk_level": "high"}
    result = check(predict(label="low", raw=raw), CERTAIN)
    assert [(flag.rule, flag.pointer) for flag in result.flags] == [("label_mismatch", "/raw_output/risk_level")]
    collapsing = CERTAIN.model_copy(
        update={"binary": BinaryCollapse(keep=frozenset({"low"}), negative="low", positive="high")}
    )
    assert rules(predict(label="high", raw={"narrative": "x", "risk_level": "medium"}), collapsing) == []


def test_contradictions_are_data():
    raw = {"status": "degraded", "anomaly_score": 0.8, "metric_value": "NaN"}
    result = check(predict(0.8, "degraded", raw), SCORED)
    assert [(flag.rule, flag.severity, flag.pointer) for flag in result.flags] == [
        ("high_score_not_critical", 0.9, "/raw_output/anomaly_score"),
        ("metric_not_finite", 0.8, "/raw_output/metric_value"),
    ]
    assert result.suspicion_score == 0.9


@pytest.mark.parametrize(
    ("op", "value", "holding", "failing"),
    [
        ("eq", "a", ["a"], ["A", 1, None, ["a"]]),
        ("eq", 1, [1, 1.0], [True, "1", 2]),
        ("eq", True, [True], [1, "true", False]),
        ("eq", None, [None], [0, "", False]),
        ("ne", "a", ["b", None, 1], ["a"]),
        ("lt", 1, [0, -5.5], [1, "0", False, None, math.nan]),
        ("le", 1, [1, 0.5], [1.1, True]),
        ("gt", 1, [2, 10**400], [1, "2"]),
        ("ge", 0.8, [0.8, 1], [0.79, "1"]),
        ("in", ("a", 1), ["a", 1], ["b", True]),
        ("not_in", ("a", 1), ["b", True], ["a", 1]),
        ("not_finite", None, ["NaN", "inf", "-Infinity", math.nan, math.inf, None, True, "n/a", {}], [0, 1.5, "2", -1]),
    ],
)
def test_each_comparison_holds_for_what_it_names(op, value, holding, failing):
    condition = Condition(pointer="/x", op=op, value=value)
    assert [found for found in holding if not condition_holds(condition, {"x": found})] == []
    assert [found for found in failing if condition_holds(condition, {"x": found})] == []


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge", "in", "not_in", "not_finite"])
def test_a_missing_field_never_holds(op):
    for document in ({}, {"a": 1}, {"a": []}, {"a": {"b": 1}}):
        assert not condition_holds(Condition(pointer="/a/c", op=op), document)


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("", "whole"),
        ("/a~1b", 1),
        ("/m~0n", 2),
        ("/~01", 3),
        ("/list/0", "first"),
        ("/list/01", MISSING),
        ("/list/-", MISSING),
        ("/list/-1", MISSING),
        ("/list/9", MISSING),
        ("/list/²", MISSING),
        ("/", "empty key"),
        ("/null", None),
        ("/null/x", MISSING),
        ("list", MISSING),
    ],
)
def test_pointers_resolve_as_rfc_6901_says(pointer, expected):
    document = {"a/b": 1, "m~n": 2, "~1": 3, "list": ["first"], "": "empty key", "null": None}
    found = resolve(document, pointer)
    assert found == (document if expected == "whole" else expected)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(st.text(), json_values)
def test_an_escaped_key_is_found_again(key, value):
    assert resolve({key: value}, "/" + escape(key)) is value


@given(json_values, st.floats(0, 1), st.text(min_size=1, max_size=20), json_values)
def test_no_payload_breaks_the_checks(value, confidence, label, meta):
    raw = {"anomaly_score": value, "status": value, "metric_value": value, "risk_level": value, "narrative": value}
    prediction = predict(confidence, label, raw, {"confidence_missing": meta})
    for profile in (CERTAIN, SCORED):
        result = check(prediction, profile)
        assert result.flagged == bool(result.flags)
        assert result.suspicion_score == max((flag.severity for flag in result.flags), default=0)


@pytest.mark.anyio
async def test_the_layer_checks_the_prediction_of_its_input():
    prediction = predict(0.1)
    assert await heuristics(LayerInput(prediction, CERTAIN, None, (), {})) == check(prediction, CERTAIN)


def test_an_unflagged_prediction_costs_microseconds():
    """Loose bound for a busy machine; usually it is about 3 microseconds."""
    prediction = predict(0.7, raw={"narrative": "x", "risk_level": "medium", "confidence": 0.7})
    assert min(timeit.repeat(lambda: check(prediction, CERTAIN), number=500, repeat=5)) / 500 < 50e-6
