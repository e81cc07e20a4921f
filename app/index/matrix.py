"""One namespace in memory: a matrix of unit vectors that is searched exactly."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from app.index.rows import Change
from layers.errors import ConfigurationError
from layers.model import JsonObject
from layers.ports import Match, Vector

_FILTER = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*'((?:[^']|'')*)'\s*")
_DECIMALS = 6
"""Scores are rounded, since a vector's place in the matrix can change its product's last digits."""


class Matrix:
    """Vectors by id. Rows are only ever appended or marked dead, so that a search in a thread needs no lock."""

    def __init__(self, dimension: int) -> None:
        self._rows = np.zeros((0, dimension), dtype=np.float32)
        self._alive = np.zeros(0, dtype=bool)
        self._ids: list[str] = []
        self._metadata: list[bytes] = []
        self._place: dict[str, int] = {}
        self._entries: tuple[Match, ...] | None = None

    def __len__(self) -> int:
        return len(self._place)

    def apply(self, changes: Sequence[Change]) -> None:
        """Take over what was written. Searches under way see the rows as they were."""
        if not changes:
            return
        self._entries = None
        start = len(self._ids)
        fresh = [change for change in changes if not change.gone]
        dead = [place for change in changes if (place := self._place.pop(change.id, None)) is not None]
        self._reserve(start + len(fresh))
        alive = np.concatenate([self._alive, np.ones(len(fresh), dtype=bool)])
        alive[dead] = False
        for place, change in enumerate(fresh, start):
            self._rows[place] = _unit(change.vector)
            self._place[change.id] = place
        self._ids.extend(change.id for change in fresh)
        self._metadata.extend(change.metadata for change in fresh)
        self._alive = alive
        if len(self._ids) > 1024 and len(self._place) * 2 < len(self._ids):
            self._compact()

    def entries(self) -> tuple[Match, ...]:
        """Every entry in the order of ids, with the score 0. Decoded once and kept until something changes."""
        if self._entries is None:
            places = sorted(self._place.items())
            self._entries = tuple(Match(name, 0.0, json.loads(self._metadata[place])) for name, place in places)
        return self._entries

    def search(self, vector: Vector, top_k: int, filter: str | None = None) -> Callable[[], list[Match]]:
        """The search as a function that may run in a thread. Equal scores are in order of their ids.

        Raises `ConfigurationError` for a filter other than `field = 'value'`.
        """
        rows, alive, ids, metadata = self._rows[: len(self._ids)], self._alive, self._ids, self._metadata
        wanted = _wanted(filter)
        return lambda: _search(rows, alive, ids, metadata, vector, top_k, wanted)

    def _reserve(self, size: int) -> None:
        if size > len(self._rows):
            grown = np.zeros((max(size, 2 * len(self._rows)), self._rows.shape[1]), dtype=np.float32)
            grown[: len(self._ids)] = self._rows[: len(self._ids)]
            self._rows = grown

    def _compact(self) -> None:
        keep = np.flatnonzero(self._alive)
        self._rows = self._rows[keep]
        self._ids = [self._ids[place] for place in keep]
        self._metadata = [self._metadata[place] for place in keep]
        self._alive = np.ones(len(keep), dtype=bool)
        self._place = {entry_id: place for place, entry_id in enumerate(self._ids)}


def _search(
    rows: NDArray[np.float32],
    alive: NDArray[np.bool_],
    ids: list[str],
    metadata: list[bytes],
    vector: Vector,
    top_k: int,
    wanted: tuple[str, str] | None,
) -> list[Match]:
    cosines = rows @ _unit(np.asarray(vector, dtype=np.float32))
    scores = np.round((1 + cosines.astype(np.float64)) / 2, _DECIMALS).clip(0, 1)
    places = np.flatnonzero(alive)
    if wanted is None and len(places) > top_k:
        floor = np.partition(scores[places], -top_k)[-top_k]
        places = places[scores[places] >= floor]
    found: list[Match] = []
    for place in sorted(places.tolist(), key=lambda place: (-scores[place], ids[place])):
        said: JsonObject = json.loads(metadata[place])
        if wanted is None or said.get(wanted[0]) == wanted[1]:
            found.append(Match(ids[place], float(scores[place]), said))
            if len(found) == top_k:
                break
    return found


def _wanted(filter: str | None) -> tuple[str, str] | None:
    if filter is None:
        return None
    if not (match := _FILTER.fullmatch(filter)):
        raise ConfigurationError(f"the embedded index knows filters of the form field = 'value' only, not {filter!r}")
    return match.group(1), match.group(2).replace("''", "'")


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    length = float(np.linalg.norm(vector.astype(np.float64)))
    return (vector / length).astype(np.float32) if length else vector
