"""Recorded predictions are scored with no network at all."""

import pytest

from adapters.recorded import RecordedSystem
from layers.errors import DependencyRejected
from layers.model import EvalExample, EvalPrediction

pytestmark = pytest.mark.anyio


async def test_the_examples_own_prediction_is_the_answer():
    """Untouched; that of an example without id gets the id that such an example goes by."""
    recorded = EvalPrediction(id="e-1", raw_output={"a": [1]}, label="high", confidence=0.5, metadata={"m": 1})
    example = EvalExample(id="e-1", expected_label="low", prediction=recorded)
    assert await RecordedSystem().predict(example) == recorded
    nameless = example.model_copy(update={"id": None})
    assert await RecordedSystem().predict(nameless) == recorded.model_copy(update={"id": "0"})


async def test_a_prediction_of_another_item_is_refused():
    """It is never scored under the example's name."""
    recorded = EvalPrediction(id="else", raw_output={}, label="high", confidence=0.5)
    with pytest.raises(DependencyRejected, match="id of another: 'else'") as caught:
        await RecordedSystem().predict(EvalExample(id="e-1", expected_label="low", prediction=recorded))
    assert caught.value.kind == "foreign_prediction"


async def test_an_example_without_a_prediction_is_refused():
    """Nobody is asked in its place."""
    with pytest.raises(DependencyRejected) as caught:
        await RecordedSystem().predict(EvalExample(id="e-1", expected_label="low"))
    assert caught.value.kind == "no_prediction"
