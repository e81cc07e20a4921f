"""What uploads leave behind that came to no end: looked for at the start and from time to time, and taken away."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import anyio

from app.errors import Unavailable
from app.runs.dataset_store import DatasetStore
from app.store.ids import to_text

DEAD_AFTER = timedelta(minutes=15)
"""After how much silence an upload is forgotten. A live one writes every few hundred examples."""

EVERY_SECONDS = 300.0

logger = logging.getLogger(__name__)


def _now() -> datetime:
    return datetime.now(UTC)


class Leftovers:
    """Takes away what a killed process, or one whose disk was full, could not; any process may do it for all."""

    def __init__(
        self,
        datasets: DatasetStore,
        *,
        now: Callable[[], datetime] = _now,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._datasets = datasets
        self._now = now
        self._sleep = sleep

    async def clear_for_ever(self) -> None:
        """Begin at once; a store that can't be reached is tried again the next time."""
        while True:
            try:
                await self._datasets.drop_unfinished(to_text(self._now() - DEAD_AFTER))
            except Unavailable as exc:
                logger.warning("what dead uploads left could not be taken away: %s", exc.detail)
            except Exception:
                logger.exception("what dead uploads left could not be taken away")
            await self._sleep(EVERY_SECONDS)
