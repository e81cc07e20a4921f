"""Whether and when a failed call is sent again: decided from the exception, with full jitter, within a deadline."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from layers.errors import DependencyError
from layers.ports import Clock

FIRST_BACK_OFF = 0.25
LONGEST_BACK_OFF = 8.0

NEVER_PROCESSED = frozenset({"refused", "dns", "tls", "rate_limited"})
"""Kinds of failure after which the remote has surely done nothing."""

_full_jitter = wait_random_exponential(multiplier=FIRST_BACK_OFF, max=LONGEST_BACK_OFF)


def retry_decision(exc: BaseException, *, repeatable: bool = True) -> bool | float:
    """False: give up. True: again after a back-off. A number: again, but not before so many seconds.

    A request that is not `repeatable` goes out again only if the remote has surely not processed it.
    """
    if not isinstance(exc, DependencyError) or not exc.retryable or exc.detail.get("quota") == "daily":
        return False
    if not repeatable and exc.kind not in NEVER_PROCESSED and exc.detail.get("phase") != "connect":
        return False
    return True if exc.retry_after is None else exc.retry_after


def retrying(
    *, attempts: int, end: float, repeatable: bool, clock: Clock, sleep: Callable[[float], Awaitable[None]]
) -> AsyncRetrying:
    """tenacity, set up so that no attempt begins after `end` (on `clock`) and the last error is raised as it was."""

    def wait(state: RetryCallState) -> float:
        named = retry_decision(_error_of(state))
        back_off = _full_jitter(state)
        if isinstance(named, bool):
            return back_off
        left = end - clock() - named
        return named + (back_off if back_off < left else 0.0)

    def stop(state: RetryCallState) -> bool:
        return state.attempt_number >= attempts or clock() + state.upcoming_sleep >= end

    def again(exc: BaseException) -> bool:
        return retry_decision(exc, repeatable=repeatable) is not False

    return AsyncRetrying(retry=retry_if_exception(again), wait=wait, stop=stop, sleep=sleep, reraise=True)


def _error_of(state: RetryCallState) -> BaseException:
    error = state.outcome.exception() if state.outcome else None
    if error is None:
        raise AssertionError("tenacity waits after failures only")
    return error


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds to wait by `Retry-After` (seconds, or an HTTP date), never negative; None when absent or unreadable.

    A date is held against the remote's own `Date` where it gave one, so that clocks that differ do no harm.
    """
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        at = _date(text)
        return None if at is None else max(0.0, (at - (_date(headers.get("date", "")) or now)).total_seconds())
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _date(text: str) -> datetime | None:
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
