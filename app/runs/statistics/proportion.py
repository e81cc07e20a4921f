"""A share and how sure it is."""

from __future__ import annotations

import math
from functools import lru_cache

from scipy.special import ndtri


@lru_cache(maxsize=64)
def _z(level: float) -> float:
    return float(ndtri(0.5 + level / 2.0))


def wilson(successes: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a proportion, both ends in 0..1 (Journal of the American Statistical Association 22
    (1927) 209-212). Raises `ValueError` for n = 0 or a count outside 0..n.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"{successes} of {n} is not a proportion")
    z = _z(level)
    share = successes / n
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == n else (centre + half) / scale
    return max(0.0, low), min(1.0, high)
