"""How sure a figure is when resampling can't tell, because no resample differs: by what was not seen to happen."""

from __future__ import annotations

import math

import numpy as np

from app.runs.statistics.bootstrap import Counts, Statistic

STEPS = 8
"""Steps in which the unseen share is laid where it hurts most."""

SOURCES = 20
"""Cells from which is taken at once, which bounds memory."""


def unseen_share(n: float, *, level: float = 0.95) -> float:
    """The largest share, in 0..1, of a kind of outcome that none of `n` > 0 independent examples showed.

    The upper end of Clopper and Pearson's interval for 0 of n (Biometrika 26 (1934) 404-413): 1 - (alpha / 2)^(1 / n),
    about 3.7 / n at 95 %; the one-sided form is known as the rule of three.
    """
    return -math.expm1(math.log((1.0 - level) / 2.0) / n)


def examples_for(share: float, *, level: float = 0.95) -> float:
    """How many examples make the unseen share as small as this one, in 0..1 exclusive."""
    return math.log((1.0 - level) / 2.0) / math.log1p(-share)


def reach(statistic: Statistic, matrix: Counts, share: float, *, lower: bool) -> float:
    """How low (or high) a figure gets when up to `share` of the examples had come out otherwise than any did.

    Greedy: eight times an eighth of the share is taken from some cell and laid into another one of the same row (the
    same label expected) or column (the same one predicted), where the figure moves most. What a move leaves undefined
    is not looked at.
    """
    now = matrix / matrix.sum()
    sign = 1.0 if lower else -1.0
    value = sign * float(statistic(now[None])[0])
    for _ in range(STEPS):
        best, found = None, value
        for moved in _moves(now, share / STEPS):
            values = sign * statistic(moved)
            values[~np.isfinite(values)] = math.inf
            place = int(values.argmin())
            if values[place] < found - 1e-15:
                best, found = moved[place], float(values[place])
        if best is None:
            break
        now, value = best, found
    return sign * value


def _moves(now: Counts, step: float) -> list[Counts]:
    k = len(now)
    rows, columns = np.nonzero(now > 0)
    made = []
    for start in range(0, len(rows), SOURCES):
        i, j = rows[start : start + SOURCES], columns[start : start + SOURCES]
        amount = np.minimum(now[i, j], step)
        stack = np.tile(now, (len(i), 2 * k, 1, 1))
        source, target = np.arange(len(i))[:, None], np.arange(k)[None, :]
        stack[source[:, 0], :, i, j] -= amount[:, None]
        stack[source, target, i[:, None], target] += amount[:, None]
        stack[source, k + target, target, j[:, None]] += amount[:, None]
        made.append(stack.reshape(-1, k, k))
    return made


def examples_to_reach(
    statistic: Statistic, matrix: Counts, threshold: float, *, level: float = 0.95, lower: bool
) -> float | None:
    """How many independent examples, shares being what they are, keep the figure from reaching `threshold`.

    None when it is there already, or when that is more than 10^9.
    """
    inside, outside = 1e-9, 1.0

    def beyond(share: float) -> bool:
        end = reach(statistic, matrix, share, lower=lower)
        return end < threshold if lower else end >= threshold

    if beyond(inside):
        return None
    if not beyond(outside):
        return 1.0
    for _ in range(40):
        middle = math.sqrt(inside * outside)
        inside, outside = (inside, middle) if beyond(middle) else (middle, outside)
        if outside / inside < 1.002:
            break
    return examples_for(inside, level=level)
