"""Policy text near a query, from an index: by vectors, or by spelling where the embedder knows no meaning."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.index.embedded import EmbeddedIndex
from app.index.lexical import distinct_grams
from app.index.rows import State
from layers.model import JsonObject
from layers.ports import Embedder, Match, PolicyChunk, VectorIndex


@dataclass(frozen=True)
class VectorPolicySource:
    """Searches the policies namespace of an index with the query's vector (query task).

    `embedded` is the same index where it is the embedded one, which knows whether there is anything to search.
    """

    index: VectorIndex
    embedder: Embedder
    namespace: str
    embedded: EmbeddedIndex | None = None

    @property
    def name(self) -> str:
        return self.index.name

    async def search(self, query: str, *, limit: int, threshold: float) -> list[PolicyChunk] | None:
        """At most `limit` chunks at or above `threshold`, best first; None when the corpus is empty."""
        if self.embedded is not None and await self.embedded.size(self.namespace) == 0:
            return None
        vector = await self.embedder.embed(query, "query")
        matches = await self.index.query(self.namespace, vector, top_k=limit)
        chunks = [_chunk(match.id, match.score, match.metadata) for match in matches if match.score >= threshold]
        return [chunk for chunk in chunks if chunk.text]


class LexicalPolicySource:
    """Searches the embedded index's policies by shared spelling, for a service without a real embedding model.

    A chunk's weight is the sum, over the query's character n-grams in it, of how rare they are in the corpus
    (log(1 + N / df)); n-grams that stand nowhere say nothing. Scores are (1 + share) / 2, where share compares with
    the best chunk, or with half of what could be shared if even that one has less. So 0.70 admits chunks that share
    two fifths as much as the best; whether a chunk really holds a claim is for the caller to check.
    """

    name = "embedded-lexical"

    def __init__(self, index: EmbeddedIndex, namespace: str) -> None:
        self.namespace = namespace
        self._index = index
        self._corpus: _Corpus | None = None
        self._state: State | None = None
        self._lock = asyncio.Lock()

    async def search(self, query: str, *, limit: int, threshold: float) -> list[PolicyChunk] | None:
        """At most `limit` chunks at or above `threshold`, best first; None when the corpus is empty."""
        corpus = await self._current()
        if corpus is None:
            return None
        return await asyncio.to_thread(corpus.search, query, limit, threshold)

    async def _current(self) -> _Corpus | None:
        async with self._lock:
            contents = await self._index.contents(self.namespace)
            if contents is None or not contents.matches:
                return None
            if self._corpus is None or contents.state != self._state:
                self._corpus = await asyncio.to_thread(_Corpus, contents.matches)
                self._state = contents.state
            return self._corpus


class _Corpus:
    """An inverted index: every n-gram with the chunks it stands in, as two parallel arrays sorted by n-gram."""

    def __init__(self, entries: Sequence[Match]) -> None:
        self._entries = entries
        grams = [distinct_grams(str(entry.metadata.get("text", ""))) for entry in entries]
        owners = np.repeat(np.arange(len(entries)), [len(each) for each in grams])
        every = np.concatenate(grams)
        order = np.argsort(every, kind="stable")
        self._grams, self._owners = every[order], owners[order]

    def search(self, query: str, limit: int, threshold: float) -> list[PolicyChunk]:
        scores = self._scores(distinct_grams(query))
        ranked = sorted(range(len(scores)), key=lambda at: (-scores[at], self._entries[at].id))[:limit]
        chunks = [_chunk(self._entries[at].id, float(scores[at]), self._entries[at].metadata) for at in ranked]
        return [chunk for chunk in chunks if chunk.score >= threshold and chunk.score > _NOTHING and chunk.text]

    def _scores(self, wanted: NDArray[np.uint64]) -> NDArray[np.float64]:
        first = np.searchsorted(self._grams, wanted, side="left")
        df = np.searchsorted(self._grams, wanted, side="right") - first
        rarity = np.log1p(len(self._entries) / np.maximum(df, 1))
        places = np.repeat(first - np.cumsum(df) + df, df) + np.arange(df.sum())
        weights = np.bincount(self._owners[places], np.repeat(rarity, df), minlength=len(self._entries))
        full = max(float(weights.max()), float(rarity[df > 0].sum()) / 2)
        share = weights / full if full else weights
        return np.round((1 + share) / 2, 6)


_NOTHING = 0.5
"""The score of a chunk that shares nothing."""


def _chunk(chunk_id: str, score: float, metadata: JsonObject) -> PolicyChunk:
    text, source, domain = (metadata.get(key) for key in ("text", "source", "domain"))
    return PolicyChunk(
        id=chunk_id,
        score=score,
        text=text if isinstance(text, str) else "",
        source=source if isinstance(source, str) else "",
        domain=domain if isinstance(domain, str) else None,
    )
