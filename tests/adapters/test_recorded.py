"""Recorded predictions are scored with no network at all."""

import pytest

from adapters.recorded import RecordedSystem
from layers.errors import DependencyRejected
from layers.model import EvalExample, EvalPrediction

pytestmark = pytest.mark.anyio


async def test_the_examples_own_prediction_is_the_answer():
    """Its content is untouched; its id becomes the example's, as every system's does."""
    recorded = EvalPrediction(id="else", raw_output={"a": [1]}, label="high", confidence=0.5, metadata={"m": 1})
    example = EvalExample(id="e-1", expected_label="low", prediction=recorded)
    assert await RecordedSystem().predict(example) == recorded.model_copy(update={"id": "e-1"})


async def test_an_example_without_a_prediction_is_refused():
    """Nobody is asked in its place."""
    with pytest.raises(DependencyRejected) as caught:
        await RecordedSystem().predict(EvalExample(id="e-1", expected_label="low"))
    assert caught.value.kind == "no_prediction"
