"""Recorded predictions: a dataset that carries its answers is scored with no network at all."""

from __future__ import annotations

from adapters.payload import example_id
from layers.errors import DependencyRejected
from layers.model import EvalExample, EvalPrediction

NAME = "recorded"


class RecordedSystem:
    """Answers each example with the prediction that it already carries.

    `immediate` tells a run that nobody is waited for, so that it need not hold back.
    """

    immediate = True

    async def predict(self, example: EvalExample) -> EvalPrediction:
        """The example's own prediction, under the example's id.

        Raises `DependencyRejected` (kind `no_prediction`) when it carries none.
        """
        if example.prediction is None:
            raise DependencyRejected(
                NAME, "no_prediction", "the example carries no `prediction`; the system `recorded` asks nobody for one"
            )
        name = example_id(example)
        return (
            example.prediction if example.prediction.id == name else example.prediction.model_copy(update={"id": name})
        )
