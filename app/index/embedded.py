"""The embedded vector index: exact search in memory over what the service's own database keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from app.index.matrix import Matrix
from app.index.rows import Change, Entry, State, check_fit, read_changes, read_states, remove_namespace, write_entries
from app.store.database import Database
from layers.errors import ConfigurationError
from layers.ports import Match, Vector

_INLINE_CELLS = 2_000_000
"""Up to this size a search is quicker than handing it to a thread."""
_INLINE_CHANGES = 64


@dataclass
class _Held:
    state: State
    matrix: Matrix


@dataclass(frozen=True, slots=True)
class Contents:
    """All that a namespace holds; equal states mean equal entries."""

    state: State
    matches: tuple[Match, ...]


class EmbeddedIndex:
    """Searches, and fills, namespaces of one embedder's vectors.

    A namespace is loaded when it is first asked for; each query looks whether any process has written since and reads
    just that. Scores are (1 + cosine) / 2, the scale of Upstash, so that a threshold means the same in both.
    """

    name = "embedded"

    def __init__(self, database: Database, *, embedder: str) -> None:
        self._database = database
        self._embedder = embedder
        self._held: dict[str, _Held] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def query(self, namespace: str, vector: Vector, *, top_k: int, filter: str | None = None) -> list[Match]:
        """Nearest entries, nearest first; none for a namespace that is empty or not there.

        Raises `ConfigurationError` for a vector of another dimension or embedder than the namespace's, and for a
        filter other than `field = 'value'`; `Unavailable` when the database can't be read.
        """
        async with self._lock(namespace):
            held = await self._current(namespace)
            if held is None:
                return []
            check_fit(held.state, self._embedder, len(vector))
            search = held.matrix.search(vector, top_k, filter)
        if len(held.matrix) * len(vector) <= _INLINE_CELLS:
            return search()
        return await asyncio.to_thread(search)

    async def size(self, namespace: str) -> int:
        """How many entries there are to find."""
        async with self._lock(namespace):
            held = await self._current(namespace)
            return len(held.matrix) if held else 0

    async def contents(self, namespace: str) -> Contents | None:
        """Every entry, in the order of ids, each with the score 0; None for a namespace that is not there."""
        async with self._lock(namespace):
            held = await self._current(namespace)
            return Contents(held.state, held.matrix.entries()) if held else None

    async def write(self, namespace: str, items: Sequence[Entry], *, origin: str | None = None) -> None:
        """Put entries in, replacing those of the same id; with an `origin` also those it had before.

        Raises `ConfigurationError` where they do not fit the namespace, or differ in dimension among themselves.
        """
        dimensions = {len(item.vector) for item in items}
        if len(dimensions) > 1:
            raise ConfigurationError(f"vectors of different dimensions in one write: {sorted(dimensions)}")
        if dimensions:
            dimension = dimensions.pop()
            await self._database.write(
                lambda conn: write_entries(conn, namespace, self._embedder, dimension, items, origin)
            )

    async def clear(self, namespace: str) -> None:
        """Forget a namespace, so that another embedder may fill it."""
        await self._database.write(lambda conn: remove_namespace(conn, namespace))

    async def states(self) -> list[State]:
        """The namespaces there are."""
        return await self._database.read(read_states)

    def _lock(self, namespace: str) -> asyncio.Lock:
        return self._locks.setdefault(namespace, asyncio.Lock())

    async def _current(self, namespace: str) -> _Held | None:
        """The namespace as it is in the database now, None when it is not there. Its lock must be held."""
        held = self._held.get(namespace)
        known = held.state if held else None
        state, changes = await self._database.read(lambda conn: _news(conn, namespace, known))
        if state is None:
            self._held.pop(namespace, None)
            return None
        if held is None or held.state.generation != state.generation:
            held = self._held[namespace] = _Held(state, Matrix(state.dimension))
        if len(changes) > _INLINE_CHANGES:
            await asyncio.to_thread(held.matrix.apply, changes)
        else:
            held.matrix.apply(changes)
        held.state = state
        return held


def _news(conn: Connection, namespace: str, known: State | None) -> tuple[State | None, list[Change]]:
    """The namespace's state, and what was written since the `known` one; both from one transaction."""
    states = read_states(conn, namespace)
    if not states:
        return None, []
    state = states[0]
    same = known is not None and known.generation == state.generation
    after = known.version if known and same else 0
    return state, read_changes(conn, namespace, after) if after < state.version else []
