"""Whether earlier verdicts on near-identical items agree with this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from layers.errors import ConfigurationError
from layers.json_pointer import resolve
from layers.model import ConsistencyResult, EvalPrediction, JsonObject, Neighbor, SkipReason
from layers.ports import Embedder, LayerInput, Match, Skip, Vector, VectorIndex
from layers.profile import SystemProfile

VERSION = "1"

OWN_ENTRIES = 2
"""Entries that may have to be left out: the item's own, and the one that its answer was copied from."""


class Entry(Protocol):
    """An earlier verdict: its label, and the policy epoch that it was given under (None where unknown)."""

    @property
    def label(self) -> str: ...
    @property
    def epoch(self) -> str | None: ...


class Space(Protocol):
    """How a system's items are found again: what text is embedded, which entries are the item itself, how to read."""

    @property
    def namespace(self) -> str: ...
    @property
    def fingerprint(self) -> Callable[[JsonObject], str]: ...
    @property
    def entry_ids(self) -> Callable[[EvalPrediction, JsonObject], frozenset[str]]: ...
    @property
    def read(self) -> Callable[[JsonObject], Entry | None]: ...


@dataclass(frozen=True)
class Consistency:
    """The layer. It embeds the item's fingerprint as a *document*, as it was stored, and compares labels.

    `space_of` gives the space of a system, None where its items are kept in no index (`Skip(DISABLED)`).
    `threshold` is the similarity in 0..1 that a neighbour needs; `policy_epoch` the epoch in force, None = unknown:
    then nothing is called stale. Raises `DependencyError` when embedder or index fail, `ConfigurationError` when the
    vectors do not fit together.
    """

    embedder: Embedder
    index: VectorIndex
    space_of: Callable[[SystemProfile], Space | None]
    threshold: float = 0.90
    top_k: int = 5
    policy_epoch: str | None = None

    async def __call__(self, item: LayerInput) -> ConsistencyResult:
        space = self.space_of(item.profile)
        if space is None:
            raise Skip(SkipReason.DISABLED)
        if not item.input:
            raise Skip(SkipReason.NO_INPUT)
        text = space.fingerprint(item.input)
        fetch = 2 * self.top_k + OWN_ENTRIES
        item.trace.note("retrieval_plan", self._plan(space, text, fetch))
        vector = await self.embedder.embed(text, "document")
        self._check_dimension(vector)
        matches = await self.index.query(space.namespace, vector, top_k=fetch)
        others = without_own(matches, space.entry_ids(item.prediction, item.input), is_copy(item))
        neighbors = self._neighbors(others, space, item.profile)
        item.trace.note("neighbors", _as_json(matches, neighbors))
        majority = majority_label(neighbors, item.profile)
        return ConsistencyResult(
            consistent=None if majority is None else item.profile.fold(item.prediction.label) == majority,
            majority_label=majority,
            neighbors=neighbors,
            embedder=self.embedder.name,
            threshold=self.threshold,
        )

    def _neighbors(self, matches: Sequence[Match], space: Space, profile: SystemProfile) -> tuple[Neighbor, ...]:
        """Nearest first, until `top_k` of them are in force; stale ones among them are shown and have no vote."""
        found: list[Neighbor] = []
        in_force = 0
        for match in matches:
            if in_force == self.top_k or not match.score >= self.threshold:
                break
            entry = space.read(match.metadata)
            if entry is not None and entry.label not in profile.not_verdicts:
                stale = self.policy_epoch is not None and entry.epoch != self.policy_epoch
                found.append(Neighbor(id=match.id, label=entry.label, similarity=match.score, stale=stale))
                in_force += not stale
        return tuple(found)

    def _check_dimension(self, vector: Vector) -> None:
        promised = self.embedder.dimension
        if promised is not None and len(vector) != promised:
            raise ConfigurationError(
                f"{self.embedder.name} gave a vector of {len(vector)} dimensions where {promised} were promised: "
                "embedder and index must use the same model"
            )

    def _plan(self, space: Space, text: str, fetch: int) -> JsonObject:
        return {
            "layer": "consistency", "source": self.index.name, "embedder": self.embedder.name, "task": "document",
            "namespace": space.namespace, "queries": [text], "threshold": self.threshold, "top_k": self.top_k,
            "over_fetch": fetch - self.top_k, "context_cap": None, "filter": None, "policy_epoch": self.policy_epoch,
        }  # fmt: skip


def is_copy(item: LayerInput) -> bool:
    """Whether the answer was copied from an earlier one: from the nearest entry that is not the item's own."""
    pointer = item.profile.source_pointer
    source = None if pointer is None else resolve(item.prediction.raw_output, pointer)
    return isinstance(source, str) and source in item.profile.cached_sources


def without_own(matches: Sequence[Match], own: frozenset[str], copied: bool) -> list[Match]:
    """The matches that can confirm something, nearest first: not the item's own entry, nor the origin of a copy."""
    others = sorted((match for match in matches if match.id not in own), key=lambda match: (-match.score, match.id))
    return others[1:] if copied else others


def majority_label(neighbors: Sequence[Neighbor], profile: SystemProfile) -> str | None:
    """The label with the greatest sum of similarities among neighbours in force; None for none, and for a tie."""
    weights: dict[str, float] = {}
    for near in neighbors:
        if not near.stale:
            label = profile.fold(near.label)
            weights[label] = weights.get(label, 0.0) + near.similarity
    if not weights:
        return None
    best = max(weights.values())
    leaders = [label for label, weight in weights.items() if best - weight < TIE]
    return leaders[0] if len(leaders) == 1 else None


TIE = 1e-9
"""Sums of similarities nearer than this are equal: they differ by rounding only."""


def _as_json(matches: Sequence[Match], neighbors: Sequence[Neighbor]) -> JsonObject:
    return {
        "layer": "consistency",
        "matches": [{"id": match.id, "score": match.score} for match in matches],
        "neighbors": [near.model_dump() for near in neighbors],
    }
