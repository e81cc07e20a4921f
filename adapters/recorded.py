"""Recorded predictions: a dataset that carries its answers is scored with no network at all."""

from __future__ import annotations

from adapters.payload import example_id
from layers.model import EvalExample, EvalPrediction
from layers.recorded import recorded_prediction

NAME = "recorded"


class RecordedSystem:
    """Answers each example with the prediction that it already carries.

    `immediate` tells a run that nobody is waited for, so that it need not hold back.
    """

    immediate = True

    async def predict(self, example: EvalExample) -> EvalPrediction:
        """The example's own prediction, untouched but for an example without id, whose prediction gets its default.

        Raises `DependencyRejected`: kind `no_prediction` when it carries none, `foreign_prediction` when the one it
        carries has another's id.
        """
        prediction = recorded_prediction(
            example, NAME, "the example carries no `prediction`; the system `recorded` asks nobody for one"
        )
        name = example_id(example)
        return prediction if prediction.id == name else prediction.model_copy(update={"id": name})
