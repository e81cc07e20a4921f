"""The account of a rate limit that several processes share: who may send how many requests, and when the next may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adapters.limits import Lane, less_share
from adapters.rate import AdaptiveRate

HOLD = 1.0
"""Seconds within which granted turns are used, or lost: until then nobody knows when they will be sent."""

BLOCKS = 120
"""Turns are granted in blocks of up to this part of a window's, so that many small requests need few grants."""

GRAIN = 0.25
"""Seconds within which grants are kept as one: what is remembered of a window stays small."""


@dataclass(slots=True)
class _Grant:
    at: float
    turns: int
    of_runs: int


class Book:
    """What was granted in the last window and what the remote said, as one value that can be stored.

    Every window of `AdaptiveRate.window` seconds holds at most its limit, whichever process sends: a grant counts
    until `HOLD` seconds and a window have passed. Runs get neither the last `share` of it nor what others used.
    """

    def __init__(self, per_minute: float | None, share: float, state: dict[str, Any] | None = None) -> None:
        state = state or {}
        self._share = share
        self._rate = AdaptiveRate(per_minute)
        self._rate.restore(state.get("told"), state.get("learned"), state.get("learned_at", 0.0))
        self._paused_until: float = state.get("paused_until", 0.0)
        self._grants = [_Grant(*grant) for grant in state.get("grants", ())]

    def state(self) -> dict[str, Any]:
        """What `Book` is made of again."""
        told, learned, learned_at = self._rate.remembered()
        grants = [[grant.at, grant.turns, grant.of_runs] for grant in self._grants]
        rate = {"told": told, "learned": learned, "learned_at": learned_at}
        return {**rate, "paused_until": self._paused_until, "grants": grants}

    def limit(self, now: float) -> int | None:
        """Requests that a window allows at present; None = unlimited."""
        return self._rate.limit(now)

    def free(self, now: float) -> int:
        """How many of a window's requests are not spent; 0 without a limit."""
        limit = self.limit(now)
        return 0 if limit is None else self._free("evaluate", limit, now)

    def take(self, lane: Lane, wanted: int, now: float) -> tuple[int, float]:
        """(turns granted, seconds until there may be one). `wanted` is rounded up to a block; 0 wanted takes none."""
        limit = self.limit(now)
        if limit is None:
            return wanted, max(0.0, self._paused_until - now)
        if now < self._paused_until:
            return 0, self._paused_until - now
        free = self._free(lane, limit, now)
        turns = max(0, min(free, max(wanted, limit // BLOCKS))) if wanted else 0
        if turns:
            self._enter(now, turns, turns if lane == "run" else 0)
        return turns, 0.0 if turns or free > 0 else self.outlook(lane, 1, now)

    def outlook(self, lane: Lane, n: int, now: float) -> float:
        """Seconds until `n` more requests of this lane may have been sent, if nobody else sends any."""
        paused = max(0.0, self._paused_until - now)
        limit = self.limit(now)
        if limit is None:
            return paused
        most = less_share(limit, self._share) if lane == "run" else limit
        windows, n = divmod(max(0, n - 1), most)
        left = n + 1 - self._free(lane, limit, now)
        later = windows * self._rate.window
        for grant in self._grants:
            if left <= 0:
                break
            left -= grant.turns
            later = windows * self._rate.window + grant.at + HOLD + self._rate.window - now
        return max(paused, later)

    def throttled(self, now: float, retry_after: float | None, told: int | None) -> None:
        """A 429 came: nobody sends before `retry_after` seconds, and less from then on."""
        self._rate.told(told, throttled=True)
        if now >= self._paused_until:
            self._rate.back_down(now)
        self._paused_until = max(self._paused_until, now + (retry_after or 0.0))

    def heard(self, now: float, told: int | None, remaining: int | None) -> None:
        """What the remote says of its limit; what is missing of it others than these processes have spent."""
        self._rate.told(told, throttled=False)
        limit = self.limit(now)
        if limit is not None and remaining is not None:
            missing = self._free("evaluate", limit, now) - remaining
            if missing > 0:
                self._enter(now, missing, 0)

    def _free(self, lane: Lane, limit: int, now: float) -> int:
        self._grants = [grant for grant in self._grants if grant.at + HOLD + self._rate.window > now]
        free = limit - sum(grant.turns for grant in self._grants)
        if lane == "run":
            free = min(free, less_share(limit, self._share) - sum(grant.of_runs for grant in self._grants))
        return free

    def _enter(self, now: float, turns: int, of_runs: int) -> None:
        last = self._grants[-1] if self._grants else None
        if last is not None and now - last.at < GRAIN:
            last.at, last.turns, last.of_runs = max(now, last.at), last.turns + turns, last.of_runs + of_runs
        else:
            self._grants.append(_Grant(now, turns, of_runs))
