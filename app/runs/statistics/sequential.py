"""A test that may be looked at after every pair: its error rate holds at any stopping time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import betaln


@dataclass(frozen=True, slots=True)
class EProcess:
    """Evidence against "a changed pair is as likely corrected as broke", after so many pairs of each kind.

    The e-value is the likelihood ratio of a uniform mixture over the broke share against 1/2 (the method of mixtures;
    Robbins 1970, Annals of Mathematical Statistics 41:1397): 2^n B(1 + corrected, 1 + broke). Under the null it is a
    martingale with mean 1, so by Ville's inequality it ever exceeds 1/alpha with probability at most alpha, however
    often one looks. `peak` is the natural logarithm of the largest e-value so far; immutable, `add` gives the next.
    """

    corrected: int = 0
    broke: int = 0
    peak: float = 0.0

    @property
    def log_e(self) -> float:
        """Natural logarithm of the e-value now."""
        n = self.corrected + self.broke
        return n * math.log(2.0) + float(betaln(1 + self.corrected, 1 + self.broke))

    @property
    def p_value(self) -> float:
        """The anytime-valid p-value in 0..1: the reciprocal of the largest e-value so far."""
        return math.exp(-max(0.0, self.peak))

    def add(self, *, corrected: int = 0, broke: int = 0) -> EProcess:
        """After one more look. Pairs that came together count as one look."""
        grown = EProcess(self.corrected + corrected, self.broke + broke, self.peak)
        return EProcess(grown.corrected, grown.broke, max(self.peak, grown.log_e))

    def decided(self, alpha: float = 0.05) -> bool:
        """Whether the null is rejected at `alpha`, now or at any earlier look."""
        return self.peak >= math.log(1.0 / alpha)
