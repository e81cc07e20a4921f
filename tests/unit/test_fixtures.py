"""The labelled fixtures: what they hold, and that they come from where they say."""

import json
from collections import Counter

import pytest

from app.demo import sentinel_rule, synapse
from app.demo.generate_fixtures import DEMO, FIXTURES, SENTINEL, render, sentinel_examples
from app.systems import load_profiles
from layers.model import EvalDataset

NAMES = ["sentinel_l7_ground_truth", "synapse_l4_ground_truth", "compliance_dataset"]


def load(name: str) -> EvalDataset:
    return EvalDataset.model_validate_json((FIXTURES / f"{name}.json").read_bytes())


@pytest.mark.parametrize(("name", "count"), zip(NAMES, (200, 12, 15), strict=True))
def test_every_fixture_is_a_dataset_with_distinct_ids(name: str, count: int):
    """The shape is `{"examples": [...]}`, and no id repeats."""
    examples = load(name).examples
    assert len(examples) == count == len({example.id for example in examples})


def test_the_generator_reproduces_the_sentinel_fixture_byte_for_byte():
    """A seed that gives another file tomorrow is no seed."""
    assert render(sentinel_examples()) == SENTINEL.read_bytes()


def test_the_sentinel_fixture_has_ten_high_of_two_hundred():
    """Labels are `high` and `low` only; each transaction has all five fields."""
    examples = load(NAMES[0]).examples
    assert Counter(example.expected_label for example in examples) == {"low": 190, "high": 10}
    assert all(set(example.input) == {"id", "amount", "currency", "merchant", "category"} for example in examples)
    assert all(example.id == example.input["id"] for example in examples)


def test_the_demo_part_has_some_of_each_label():
    """The first 25 alone make a report with something in every cell that matters."""
    labels = Counter(example.expected_label for example in load(NAMES[0]).examples[:DEMO])
    assert labels == {"low": 22, "high": 3}


@pytest.mark.parametrize(("binary", "correct"), [(True, 23), (False, 22)])
def test_the_stand_in_is_often_right_and_not_always(binary: bool, correct: int):
    """On the demo part it misses one and cries wolf once; without collapse a `critical` is not a `high` either."""
    profile = load_profiles()["sentinel-l7"]
    hits = 0
    for example in load(NAMES[0]).examples[:DEMO]:
        level = sentinel_rule.verdict(example.input, sentinel_rule.points)["risk_level"]
        hits += (profile.collapse(level) if binary else level) == example.expected_label
    assert hits == correct


def test_no_synapse_example_stands_on_a_contradiction():
    """Each label follows from the rule table, and Synapse's own rule accepts the axiom."""
    for example in load(NAMES[1]).examples:
        axiom = synapse.extract(example.input["payload"])
        assert synapse.broken_rule(axiom) is None, example.id
        assert axiom["status"] == example.expected_label, example.id


def test_the_synapse_fixture_covers_every_label():
    """All three statuses occur more than once."""
    labels = Counter(example.expected_label for example in load(NAMES[1]).examples)
    assert set(labels) == {"nominal", "degraded", "critical"}
    assert min(labels.values()) >= 3


def test_the_compliance_texts_are_about_every_domain():
    """Hand-written texts, both labels in each of the four domains."""
    examples = load(NAMES[2]).examples
    pairs = {(example.input["domain"], example.expected_label) for example in examples}
    assert pairs == {(domain, label) for domain in synapse.DOMAINS for label in ("compliant", "violation")}


def test_fixture_files_are_plain_json_lines():
    """One example per line, so that a change is one line in a diff."""
    for name in NAMES:
        lines = (FIXTURES / f"{name}.json").read_text().splitlines()
        assert all(json.loads(line.rstrip(",")) for line in lines[1:-1])
