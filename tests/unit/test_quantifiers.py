"""The ten-step scale: how much a sentence claims, and what it must show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.quantifiers import NEGATIVE, SCALE, Demand, demand_of, find_quantifiers, strength, words


def test_the_scale_has_ten_steps_and_no_phrase_on_two():
    assert sorted(SCALE) == list(range(1, 11))
    phrases = [phrase for step in SCALE.values() for phrase in step]
    assert len(phrases) == len(set(phrases))
    assert set(phrases) >= NEGATIVE


@pytest.mark.parametrize(("phrase", "step"), [(phrase, step) for step, row in SCALE.items() for phrase in row])
def test_every_phrase_is_found_at_its_step(phrase, step):
    found = list(find_quantifiers(words(f"Here {phrase.upper()} transfers")))
    assert [(q.phrase, q.step) for q in found] == [(phrase, step)]


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("Almost all transfers are small", 9),
        ("Not all transfers are small", 1),
        ("Allover, an ally allows it", 2),
        ("No one but most", 10),
        ("ALWAYS", 10),
        ("100% of transfers", 10),
        ("10% of transfers", 2),
        ("", 2),
        ("in most cases", 7),
        ("It’s all-inclusive", 10),
    ],
)
def test_the_strongest_word_sets_the_step_and_longer_phrases_win(text, step):
    assert strength(list(find_quantifiers(words(text)))) == step


def test_demands_never_fall_as_the_step_rises():
    order = list(Demand)
    demands = [order.index(demand_of(step)) for step in range(1, 11)]
    assert demands == sorted(demands)
    assert [demand_of(step) for step in (1, 5, 7, 10)] == order


@given(st.text())
def test_any_text_can_be_read(text):
    spoken = words(text)
    for found in find_quantifiers(spoken):
        assert 0 <= found.position < len(spoken)
