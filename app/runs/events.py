"""Tell listeners how a run goes on: one look at the store for all who listen to the same run."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic

from app.errors import Overloaded, ServiceError
from app.runs.event_store import KEEP, EventStore, RunEvent, full_data
from app.runs.model import TERMINAL, Run

logger = logging.getLogger(__name__)

INTERVAL = 0.5
"""Seconds between two looks at a run; more where a look takes long."""

MAX_INTERVAL = 5.0
PATIENCE = 20
"""How many times as long as a look took nobody looks again, so that counting a large run never keeps a core busy."""

HEARTBEAT = 15.0
"""Seconds of silence after which a listener gets a sign of life."""

MAX_LISTENERS = 512
"""Listeners that one process serves at once, all runs together."""

_SEQ = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Pace:
    interval: float
    patience: float

    def pause(self, took: float) -> float:
        """Seconds until the next look, after one that took so long."""
        return max(self.interval, min(took * self.patience, MAX_INTERVAL))


class RunEvents:
    """Who listens to which run. `close` it when the service stops: every listener's stream ends then."""

    def __init__(
        self,
        get: Callable[[str], Awaitable[Run]],
        store: EventStore,
        *,
        interval: float = INTERVAL,
        patience: float = PATIENCE,
        heartbeat: float = HEARTBEAT,
        max_listeners: int = MAX_LISTENERS,
    ) -> None:
        self._get = get
        self._store = store
        self._pace = _Pace(interval, patience)
        self._heartbeat = heartbeat
        self._max_listeners = max_listeners
        self._topics: dict[str, _Topic] = {}
        self._n_listeners = 0

    @property
    def watched(self) -> int:
        """Runs that are being looked at."""
        return len(self._topics)

    @asynccontextmanager
    async def listen(self, run_id: str, last_id: str | None = None) -> AsyncIterator[AsyncIterator[RunEvent | None]]:
        """The run's events after the one with the id `last_id`, from the first kept one without it.

        None among them is a sign of life. The stream ends after the event that ends the run. An id that is too old, or
        none of this run's, gives one `resync` with the whole run as it is, and what comes after.
        Raises, before anything else, `NotFound`, and `Overloaded` when too many listen already.
        """
        run = await self._get(run_id)
        if self._n_listeners >= self._max_listeners:
            raise Overloaded("too many listen to runs already", retry_after=5.0)
        self._n_listeners += 1
        try:
            async with self._joined(run) as topic:
                yield self._events(topic, last_id)
        finally:
            self._n_listeners -= 1

    async def is_over(self, run_id: str, last_id: str | None) -> bool:
        """Whether whoever has heard `last_id` has heard all there is to hear. Raises `NotFound`."""
        run = await self._get(run_id)
        if run.status not in TERMINAL or last_id is None or not _SEQ.fullmatch(last_id):
            return False
        await self._store.tell(run)
        before = await self._store.since(run_id, int(last_id) - 1)
        return len(before) == 1 and before[0].kind == "end" and before[0].seq == int(last_id)

    async def close(self) -> None:
        """End every stream."""
        for topic in list(self._topics.values()):
            await topic.stop()

    @asynccontextmanager
    async def _joined(self, run: Run) -> AsyncIterator[_Topic]:
        topic = self._topics.get(run.run_id)
        if topic is None:
            topic = self._topics[run.run_id] = _Topic(run, self._get, self._store, self._pace)
        topic.listeners += 1
        try:
            yield topic
        finally:
            topic.listeners -= 1
            if not topic.listeners:
                del self._topics[run.run_id]
                await topic.stop()

    async def _events(self, topic: _Topic, last_id: str | None) -> AsyncIterator[RunEvent | None]:
        while not await topic.ready(self._heartbeat):
            yield None
        seq = _seq_of(last_id) if last_id else topic.first - 1
        if seq is None or not topic.has_all_since(seq):
            missed = topic.resync()
            seq = missed.seq
            yield missed
        while True:
            for event in topic.since(seq):
                seq = event.seq
                yield event
            if topic.over(seq):
                return
            if topic.has_all_since(seq):
                if not await topic.more(seq, self._heartbeat):
                    yield None
            else:  # too slow: what came next is no longer held
                missed = topic.resync()
                seq = missed.seq
                yield missed


class _Topic:
    """One run with listeners: a task that looks at it, and the events that are kept."""

    def __init__(self, run: Run, get: Callable[[str], Awaitable[Run]], store: EventStore, pace: _Pace) -> None:
        self.listeners = 0
        self._run = run
        self._get = get
        self._store = store
        self._pace = pace
        self._events: deque[RunEvent] = deque(maxlen=KEEP)
        self._changed = asyncio.Event()
        self._ready = asyncio.Event()
        self._stopped = False
        self._task = asyncio.create_task(self._watch())

    @property
    def first(self) -> int:
        """The number of the oldest event that is kept."""
        return self._events[0].seq if self._events else 1

    async def ready(self, patience: float) -> bool:
        """Wait until the first look is done; False = it was not in `patience` seconds."""
        return await _happens(self._ready, patience)

    def since(self, seq: int) -> list[RunEvent]:
        """The held events after `seq`."""
        return [event for event in self._events if event.seq > seq]

    def has_all_since(self, seq: int) -> bool:
        """Whether nothing after `seq` has been let go of; False also for numbers that were never given."""
        if not self._events:
            return seq == 0
        first, last = self._events[0].seq, self._events[-1].seq
        return first - 1 <= seq <= last

    def resync(self) -> RunEvent:
        """The whole run as it was last seen, under the newest number."""
        return RunEvent(self._events[-1].seq if self._events else 0, "resync", full_data(self._run))

    def over(self, seq: int) -> bool:
        """Whether nothing can come after `seq`: the run has ended, or the service stops."""
        if self._stopped:
            return True
        last = self._events[-1] if self._events else None
        return last is not None and last.kind == "end" and seq >= last.seq and self._run.status in TERMINAL

    async def more(self, seq: int, patience: float) -> bool:
        """Wait until there may be something after `seq`; False = nothing came in `patience` seconds."""
        if self._stopped or (self._events and self._events[-1].seq > seq):
            return True
        return await _happens(self._changed, patience)

    async def stop(self) -> None:
        """Look no more, and let every listener go."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _watch(self) -> None:
        try:
            while True:
                started = monotonic()
                await self._try_look()
                took = monotonic() - started
                await asyncio.sleep(self._pace.pause(took))
        finally:  # whatever ended it, nobody may wait for more
            self._stopped = True
            self._ready.set()
            self._announce()

    async def _try_look(self) -> None:
        try:
            await self._look()
        except ServiceError as exc:  # the store is out of reach: look again later
            logger.warning("how run %s goes on can't be told at the moment: %s", self._run.run_id, exc.detail)

    async def _look(self) -> None:
        run = await self._get(self._run.run_id)
        await self._store.tell(run)
        fresh = await self._store.since(run.run_id, self._events[-1].seq if self._events else 0)
        news = bool(fresh) or run.status is not self._run.status  # another process may have told the end first
        self._run = run
        self._events.extend(fresh)
        self._ready.set()
        if news:
            self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def _happens(event: asyncio.Event, patience: float) -> bool:
    try:
        async with asyncio.timeout(patience):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _seq_of(last_id: str) -> int | None:
    """The number in an event id; None = it is none of ours."""
    return int(last_id) if _SEQ.fullmatch(last_id) else None
