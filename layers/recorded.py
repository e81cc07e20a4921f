"""The prediction that an example carries: its own, or none."""

from __future__ import annotations

from layers.errors import DependencyRejected
from layers.model import EvalExample, EvalPrediction

_SHOWN = 80


def recorded_prediction(example: EvalExample, dependency: str, missing: str) -> EvalPrediction:
    """The prediction of an example, whose id is the example's where that has one.

    Raises `DependencyRejected`: kind `no_prediction` with the message `missing`, or `foreign_prediction`, because what
    was said of another item says nothing about this one.
    """
    prediction = example.prediction
    if prediction is None:
        raise DependencyRejected(dependency, "no_prediction", missing)
    if example.id is not None and prediction.id != example.id:
        message = f"the prediction that the example carries has the id of another: {prediction.id[:_SHOWN]!r}"
        raise DependencyRejected(dependency, "foreign_prediction", message, detail={"prediction_id": prediction.id})
    return prediction
