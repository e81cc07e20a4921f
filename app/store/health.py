"""Whether the database can be used, told in the log when that changes and not for every call that fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Literal

from sqlalchemy.exc import DBAPIError

from app.errors import Unavailable
from app.store.trouble import CONTRADICTS, DAMAGED, FULL, sentence

logger = logging.getLogger(__name__)

PROBE_EVERY = 5.0
"""Seconds between two writes that are made only to see whether writing works again."""

_LASTING = (DAMAGED, CONTRADICTS)

Way = Literal["read", "write"]


class Health:
    """The state of one database as its calls found it. Any thread may tell; two at once log twice at worst.

    That reading works says nothing about writing: a full disk can be read. A file found damaged stays so until a
    restart, since most of its pages may read well; so do records that contradict each other.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._troubles: dict[Way, str] = {}
        self._lasting: str | None = None
        self._probed = float("-inf")

    def failed(self, exc: DBAPIError, way: Way) -> Unavailable:
        """The refusal for a call that failed; what exactly the database said goes to the log only."""
        error = self.refused(sentence(exc), way, exc.orig)
        error.__cause__ = exc
        return error

    def refused(self, why: str, way: Way, log: object = None) -> Unavailable:
        """The refusal for a call that was not, or could not be, made."""
        if not self._troubles:
            logger.warning("the store can't be used: %s", log or why)
        self._troubles[way] = why
        if why in _LASTING:
            self._lasting = why
        return Unavailable(why, retry_after=1.0)

    def worked(self, way: Way, *, proof: bool = False) -> None:
        """A call went through. What can be written can be read.

        On a full disk a sign of life of a few bytes goes through long after records don't: there only a write that was
        made as large as they are, `proof`, ends the trouble.
        """
        if not self._troubles or self._lasting == CONTRADICTS:
            return
        if way == "write" and (proof or self._troubles.get("write") != FULL):
            self._troubles.clear()
        else:
            self._troubles.pop("read", None)
        if not self._troubles:
            logger.info("the store can be used again")

    def trouble(self) -> str | None:
        """Why records can't be kept or trusted, as it was found last; None = nothing is known against it."""
        return self._lasting or self._troubles.get("write")

    def may_probe(self) -> bool:
        """Whether it is time to try a write. Asking counts as trying."""
        now = self._clock()
        if now - self._probed < PROBE_EVERY:
            return False
        self._probed = now
        return True
