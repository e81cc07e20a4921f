"""Where unscored examples hurt a figure most: the labels that they might have been given."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from itertools import combinations
from typing import Literal

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from app.runs.statistics import bootstrap
from app.runs.statistics.bootstrap import Counts

Average = Literal["macro", "weighted"]

DESCENTS = 300
"""Steps of the descent to a bound."""

MOST_TRIED = 2_000_000
"""Counts, of all assignments together, up to which every assignment is tried where nothing better is known."""


def miss(matrix: Counts, failed: Counts, label: int | None = None) -> Counts:
    """Every failed example missed, and where `label` is given called that, if it is none. Counts of shape (K, K).

    That is the worst case of accuracy, recall and its averages, and of precision and F1 of `label`: each depends on
    the counts one by one, and in one direction. `failed[i]` expect label i; K is at least 2.
    """
    k = len(failed)
    assigned = np.zeros((k, k))
    for row in range(k):
        column = label if label is not None and label != row else (row + 1) % k
        assigned[row, column] = failed[row]
    return assigned


def spread_f1(matrix: Counts, failed: Counts, average: Average) -> Counts:
    """The misses that leave the lowest average F1. Exact.

    F1 of a label is a / (b + x) with x false alarms, convex and falling, and a right answer never hurts. Misses are
    free but for x_j <= failed that don't expect j, so taking the steepest fall each time is optimal (Federgruen and
    Groenevelt, Operations Research 34 (1986) 909-918).
    """
    expected = matrix.sum(axis=1) + failed
    weights = np.ones(len(failed)) if average == "macro" else expected
    columns = _steepest(weights * 2 * matrix.diagonal(), matrix.sum(axis=0) + expected, _rooms(failed), failed.sum())
    return _transport(failed, columns)


def spread_precision(matrix: Counts, failed: Counts, average: Average) -> Counts:
    """The misses that leave the lowest average precision. Exact.

    As `spread_f1`; besides, a first false alarm for a label that was never predicted makes its precision 0 and the
    average one over more labels. How many of these are woken is tried out, those of most weight first.
    """
    predicted, rooms = matrix.sum(axis=0), _rooms(failed)
    expected = matrix.sum(axis=1) + failed
    weights = np.ones(len(failed)) if average == "macro" else expected
    figure = getattr(bootstrap, average)(bootstrap.precisions)
    asleep = [j for j in np.argsort(-weights, kind="stable") if predicted[j] == 0 and rooms[j] > 0]
    best, lowest = miss(matrix, failed), math.inf
    for number in range(min(len(asleep), int(failed.sum())) + 1):
        woken = np.zeros(len(failed))
        woken[asleep[:number]] = 1
        room = np.where((predicted > 0) | (woken > 0), rooms, 0.0) - woken
        left = failed.sum() - number
        taken = min(left, room.sum())
        columns = woken + _steepest(weights * matrix.diagonal(), predicted, room, taken)
        columns += _steepest(np.zeros(len(failed)), predicted, rooms - columns, left - taken)
        made = _transport(failed, columns)
        value = float(figure((matrix + made)[None])[0])
        if value < lowest:
            best, lowest = made, value
    return best


def lower_kappa(matrix: Counts, failed: Counts) -> Counts:
    """The labels that leave the lowest kappa. Exact.

    With the expected labels given kappa is a ratio of two linear functions of the assignment, so the lowest stands in
    a corner, where all failed examples of a label get one and the same (Dinkelbach, Management Science 13 (1967) 492).
    """
    expected, n = matrix.sum(axis=1) + failed, matrix.sum() + failed.sum()
    best = miss(matrix, failed)
    value = float(bootstrap.kappa((matrix + best)[None])[0])
    while math.isfinite(value):
        costs = np.eye(len(failed)) * n - (1 - value) * expected
        made = np.zeros_like(best)
        made[np.arange(len(failed)), costs.argmin(axis=1)] = failed
        found = float(bootstrap.kappa((matrix + made)[None])[0])
        if not found < value - 1e-12:
            break
        best, value = made, found
    return best


def lower_matthews(matrix: Counts, failed: Counts) -> tuple[Counts, float]:
    """Labels that leave a low Matthews coefficient, and what no labels get below. `matrix` must have a coefficient.

    Both are exact where all assignments can be tried (`MOST_TRIED`).
    """
    ways = [math.comb(int(u) + len(failed) - 1, len(failed) - 1) for u in failed]
    if math.prod(ways) * len(failed) ** 2 <= MOST_TRIED:
        best = _tried(matrix, failed)
        return best, float(bootstrap.matthews((matrix + best)[None])[0])
    return near_matthews(matrix, failed)


def near_matthews(matrix: Counts, failed: Counts) -> tuple[Counts, float]:
    """The same without trying: the best one of three assignments that come near, and a bound below all of them.

    The bound is the lowest numerator over the denominator that suits it best, each taken by itself, or what
    `_descended` finds where that is nearer.
    """
    expected, n = matrix.sum(axis=1) + failed, matrix.sum() + failed.sum()
    costs = np.eye(len(failed)) * n - expected
    corner = np.zeros((len(failed), len(failed)))
    corner[np.arange(len(failed)), costs.argmin(axis=1)] = failed
    predicted = matrix.sum(axis=0)
    even = _transport(failed, _levelled(predicted, _rooms(failed), failed.sum()))
    found, nearer = _descended(matrix, failed, (corner + even) / 2)
    made = np.stack([corner, even, found])
    values = bootstrap.matthews(matrix + made)
    numerator = float((np.trace(matrix) * n - predicted @ expected) + (corner * costs).sum())
    total = _levelled(predicted, np.full(len(failed), failed.sum()), failed.sum()) + predicted
    if numerator < 0:
        total = predicted + np.where(np.arange(len(failed)) == predicted.argmax(), failed.sum(), 0.0)
    spread = (n**2 - expected @ expected) * (n**2 - total @ total)
    bound = max(-1.0, numerator / math.sqrt(spread)) if spread > 0 else -1.0
    best: Counts = made[int(np.nanargmin(values))]
    return best, max(bound, nearer)


def _descended(matrix: Counts, failed: Counts, start: Counts) -> tuple[Counts, float]:
    """An assignment and a bound by descent in fractions of examples (Frank and Wolfe, Naval Res. Log. Q. 3 (1956) 95).

    With v the figure of some assignment, v >= 0, numerator - v * denominator is convex, and its tangents lie below it:
    what they are at least, over the smallest denominator, bounds how far below v the figure can lie.
    """
    expected, predicted, n = matrix.sum(axis=1) + failed, matrix.sum(axis=0), matrix.sum() + failed.sum()
    scale, rows = math.sqrt(n**2 - expected @ expected), np.arange(len(failed))
    costs = np.eye(len(failed)) * n - expected
    level = float(bootstrap.matthews((matrix + start)[None])[0])
    widest = predicted + np.where(rows == predicted.argmax(), failed.sum(), 0.0)
    smallest = scale * math.sqrt(max(0.0, n**2 - widest @ widest))
    if not level >= 0 or smallest == 0:
        return _whole(start, failed), -1.0
    now, lowest = start, -math.inf
    for step in range(DESCENTS):
        total = predicted + now.sum(axis=0)
        spread = math.sqrt(n**2 - total @ total)
        value = np.trace(matrix) * n - predicted @ expected + (costs * now).sum() - level * scale * spread
        slope = costs + level * scale * total / spread
        goal = np.zeros_like(now)
        goal[rows, slope.argmin(axis=1)] = failed
        lowest = max(lowest, float(value - (slope * (now - goal)).sum()))
        now = now + (goal - now) * 2 / (step + 2)
    return _whole(now, failed), max(-1.0, level + min(0.0, lowest) / smallest)


def _whole(assigned: Counts, failed: Counts) -> Counts:
    """Whole examples instead of fractions, by largest remainders in each row."""
    made = np.floor(assigned + 1e-9)
    for row, left in enumerate((failed - made.sum(axis=1)).round().astype(int)):
        made[row, np.argsort(made[row] - assigned[row], kind="stable")[:left]] += 1
    return made


def _tried(matrix: Counts, failed: Counts) -> Counts:
    """The best of all assignments."""
    stack = np.zeros((1, *matrix.shape))
    for row, number in enumerate(failed.astype(int)):
        if not number:
            continue
        choices = np.array(list(_compositions(number, len(failed))), dtype=np.float64)
        grown = np.repeat(stack, len(choices), axis=0)
        grown[:, row, :] = np.tile(choices, (len(stack), 1))
        stack = grown
    values = bootstrap.matthews(matrix + stack)
    best: Counts = stack[int(np.nanargmin(values))]
    return best


def _compositions(total: int, parts: int) -> Iterator[list[int]]:
    """Every way to write `total` as an ordered sum of so many whole numbers."""
    for bars in combinations(range(total + parts - 1), parts - 1):
        ends = (-1, *bars, total + parts - 1)
        yield [ends[i + 1] - ends[i] - 1 for i in range(parts)]


def _rooms(failed: Counts) -> Counts:
    """How many false alarms each label can get: from examples that don't expect it."""
    rooms: Counts = failed.sum() - failed
    return rooms


def _steepest(tops: Counts, bottoms: Counts, rooms: Counts, total: float) -> Counts:
    """`total` steps over the columns, each where tops / (bottoms + steps) falls most; at most `rooms` in each."""
    columns = np.zeros(len(tops))

    def fall(j: int) -> float:
        bottom = bottoms[j] + columns[j]
        return float(tops[j] / bottom - tops[j] / (bottom + 1)) if bottom > 0 else 0.0

    heap = [(-fall(j), j) for j in range(len(tops)) if rooms[j] >= 1]
    heapq.heapify(heap)
    for _ in range(int(total)):
        _, j = heapq.heappop(heap)
        columns[j] += 1
        if columns[j] < rooms[j]:
            heapq.heappush(heap, (-fall(j), j))
    return columns


def _levelled(heights: Counts, rooms: Counts, total: float) -> Counts:
    """`total` steps over the columns, each onto the lowest one; at most `rooms` in each."""
    columns = np.zeros(len(heights))
    heap = [(float(heights[j]), j) for j in range(len(heights)) if rooms[j] >= 1]
    heapq.heapify(heap)
    for _ in range(int(total)):
        height, j = heapq.heappop(heap)
        columns[j] += 1
        if columns[j] < rooms[j]:
            heapq.heappush(heap, (height + 1, j))
    return columns


def _transport(failed: Counts, columns: Counts) -> Counts:
    """Counts (K, K) with these sums of rows and columns and nothing on the diagonal.

    They exist when no column asks for more than the other rows have; found as a largest flow.
    """
    k = len(failed)
    network = np.zeros((2 * k + 2, 2 * k + 2), dtype=np.int32)
    network[2 * k, :k] = failed
    network[k : 2 * k, 2 * k + 1] = columns
    network[:k, k : 2 * k] = np.minimum(failed[:, None], columns[None, :]) * (1 - np.eye(k))
    flow = maximum_flow(csr_array(network), 2 * k, 2 * k + 1).flow.toarray()
    assigned: Counts = flow[:k, k : 2 * k].astype(np.float64)
    return assigned
