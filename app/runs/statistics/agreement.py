"""Agreement beyond accuracy, from a confusion matrix. A figure that is undefined raises `Undefined` with the reason."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


class Undefined(Exception):
    """The figure does not exist for these counts; the message says why."""


def _margins(matrix: Matrix) -> tuple[float, Matrix, Matrix]:
    n = float(matrix.sum())
    if n == 0:
        raise Undefined("no example was scored")
    return n, matrix.sum(axis=1), matrix.sum(axis=0)


def balanced_accuracy(matrix: Matrix) -> float:
    """Mean recall over the labels that occur as expected, in 0..1. `matrix[i, j]`: expected i, predicted j."""
    _, expected, _ = _margins(matrix)
    occurs = expected > 0
    return float((np.diag(matrix)[occurs] / expected[occurs]).mean())


def cohen_kappa(matrix: Matrix) -> float:
    """Cohen's kappa (Educational and Psychological Measurement 20 (1960) 37-46), in -1..1."""
    n, expected, predicted = _margins(matrix)
    if (expected > 0).sum() == 1:
        raise Undefined("every example expects the same label")
    if (predicted > 0).sum() == 1:
        raise Undefined("every prediction is the same label")
    chance = float(expected @ predicted) / n**2
    observed = float(np.trace(matrix)) / n
    return (observed - chance) / (1.0 - chance)


def matthews_correlation(matrix: Matrix) -> float:
    """Matthews' coefficient for any number of labels, R_K (Gorodkin, Comput. Biol. Chem. 28 (2004) 367), in -1..1."""
    n, expected, predicted = _margins(matrix)
    cover = float(np.trace(matrix)) * n - float(expected @ predicted)
    spread_expected = n**2 - float(expected @ expected)
    spread_predicted = n**2 - float(predicted @ predicted)
    if spread_expected == 0:
        raise Undefined("every example expects the same label")
    if spread_predicted == 0:
        raise Undefined("every prediction is the same label")
    return cover / math.sqrt(spread_expected * spread_predicted)
