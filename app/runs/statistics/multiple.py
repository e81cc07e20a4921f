"""Many looks at once: p-values that stay honest."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values that control the family-wise error rate, in the order given.

    Holm's step-down procedure (Scandinavian Journal of Statistics 6 (1979) 65-70). Values in 0..1.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return tuple(adjusted)
