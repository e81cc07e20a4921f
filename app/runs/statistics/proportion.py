"""A share and how sure it is."""

from __future__ import annotations

import math
from functools import lru_cache

from scipy.special import ndtri

MOST_TRIALS = 10**12
"""More than anybody will ever ask; beyond it there is no telling."""


@lru_cache(maxsize=64)
def normal_quantile(level: float) -> float:
    """How many standard deviations a two-sided interval of this level reaches."""
    return float(ndtri(0.5 + level / 2.0))


def wilson(successes: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a proportion, both ends in 0..1 (Journal of the American Statistical Association 22
    (1927) 209-212). Raises `ValueError` for n = 0 or a count outside 0..n.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"{successes} of {n} is not a proportion")
    return wilson_of_share(successes / n, n, level=level)


def wilson_of_share(share: float, n: float, *, level: float = 0.95) -> tuple[float, float]:
    """The same of a share in 0..1 known as well as from `n` independent trials; `n` > 0 need not be whole."""
    z = normal_quantile(level)
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At the ends the formula gives exactly 0 and 1; floating point must not move them.
    low = 0.0 if share == 0 else max(0.0, (centre - half) / scale)
    high = 1.0 if share == 1 else min(1.0, (centre + half) / scale)
    return low, high


def trials_needed(share: float, threshold: float, *, level: float = 0.95) -> int | None:
    """How many trials put Wilson's interval wholly on one side of `threshold`, if the share stays what it is.

    The interval inverts the score test, so it leaves out the threshold once |share - threshold| reaches z standard
    errors at the threshold: n = z^2 t (1 - t) / (share - t)^2. None when that is more than `MOST_TRIALS`.
    """
    spread = normal_quantile(level) * math.sqrt(threshold * (1 - threshold))
    return trials_to_narrow(1, spread, abs(share - threshold))


def trials_to_narrow(n: int, half: float, wanted: float) -> int | None:
    """How many trials shrink an interval's half width from `half` at `n` to `wanted`, as it goes with 1 / sqrt(n).

    None when that is more than `MOST_TRIALS`.
    """
    if wanted <= 0 or half / wanted > math.sqrt(MOST_TRIALS / n):
        return None
    return max(1, math.ceil(n * (half / wanted) ** 2))
