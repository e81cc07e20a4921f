"""Whether what a narrative cites stands in its references, in its payload, or in the policy corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from layers.anchors import AnchorToken, Held, find_claims
from layers.json_pointer import resolve
from layers.model import Anchor, AnchorStatus, Evidence, JsonObject, NarrativeGroundingResult, SkipReason
from layers.ports import LayerInput, PolicyChunk, PolicySource, Skip
from layers.profile import SystemProfile
from layers.references import Ground, Place, is_title

VERSION = "1"

MOST_ANCHORS = 128
"""Distinct claims that are checked; a narrative with more is flagged as it is."""

LONGEST_INLINE = 20_000
"""Characters of a narrative up to which stages 1 and 2 are quicker than handing them to a thread."""

LONGEST_CHUNK = 8_000
LONGEST_QUERY = 400
SHORTEST_QUERY = 3


@dataclass(frozen=True, slots=True)
class Settlement:
    """What stage 2 says of one claim. `status` None = it cannot settle it: somebody has to look into the policies."""

    anchor: AnchorToken
    status: AnchorStatus | None
    places: tuple[Place, ...] = ()


def settle_all(narrative: str, ground: Ground) -> tuple[list[Settlement], bool]:
    """Stages 1 and 2: what is known of each distinct claim, and whether there are more than are looked at."""
    claims = list({claim.key: claim for claim in reversed(find_claims(narrative))}.values())[::-1]
    return [settle(claim, ground) for claim in claims[:MOST_ANCHORS]], len(claims) > MOST_ANCHORS


def settle(anchor: AnchorToken, ground: Ground) -> Settlement:
    """Stage 2, the decision tree for one claim.

    - Named by a reference: grounded. Numbers may also stand in the input or in another field of the raw output.
    - A citation that the references do not name: not grounded, unless one is a title and the other an id, which can't
      be compared as they stand: a title that fits an id is grounded, any other such pair is left to stage 3.
    - A keyword where there are references, none of which holds the word: unknown. It has a reference, unread.
    - Everything else is a claim without reference, left to stage 3.
    """
    if places := ground.naming(anchor):
        return Settlement(anchor, AnchorStatus.BY_REFERENCE, places)
    if anchor.kind in {"amount", "percent"}:
        places = ground.counting(anchor)
        return Settlement(anchor, AnchorStatus.BY_REFERENCE if places else None, places)
    if not ground.references:
        return Settlement(anchor, None)
    if anchor.kind == "keyword":
        return Settlement(anchor, AnchorStatus.UNKNOWN)
    return _settle_citation(anchor, ground)


def _settle_citation(anchor: AnchorToken, ground: Ground) -> Settlement:
    related = ground.related(anchor)
    if is_title(anchor):
        if related:
            return Settlement(anchor, AnchorStatus.BY_REFERENCE, related)
        only_ids = all(reference.ids for _, reference in ground.references)
        return Settlement(anchor, None if only_ids else AnchorStatus.UNGROUNDED)
    return Settlement(anchor, None if related else AnchorStatus.UNGROUNDED)


@dataclass(frozen=True)
class NarrativeGrounding:
    """The layer. Stages 1 and 2 are free; stage 3 asks `source`, and only for claims that stage 2 can't settle.

    `threshold` is the similarity in 0..1 below which a chunk is not looked at; `top_k` chunks are taken for each of at
    most `max_queries` sentences. A claim whose sentence was not asked about, and which no chunk holds, is unknown; so
    is every open claim of an item about which nobody may be asked.
    Raises `Skip` for a rule's answer, without a narrative and without a claim; `DependencyError` when retrieval fails.
    """

    source: PolicySource | None = None
    threshold: float = 0.70
    top_k: int = 5
    max_queries: int = 3

    async def __call__(self, item: LayerInput) -> NarrativeGroundingResult:
        narrative = read_narrative(item.prediction.raw_output, item.profile)
        ground = Ground(item.prediction.raw_output, item.input, item.profile)
        if len(narrative) <= LONGEST_INLINE:
            settled, more = settle_all(narrative, ground)
        else:
            settled, more = await anyio.to_thread.run_sync(settle_all, narrative, ground, abandon_on_cancel=True)
        if not settled:
            raise Skip(SkipReason.NOTHING_TO_GROUND)
        looked_up = await self._look_up(narrative, settled, item)
        evidence = item.evidence or (item.desk.number() if any(each.places for each in settled) else ())
        anchors = _anchors(settled, looked_up or {}, evidence)
        flagged = more or any(each.status is AnchorStatus.UNGROUNDED for each in anchors)
        return NarrativeGroundingResult(ng_flagged=flagged, stage=2 if looked_up is None else 3, anchors=anchors)

    async def _look_up(
        self, narrative: str, settled: Sequence[Settlement], item: LayerInput
    ) -> dict[str, AnchorStatus] | None:
        """Stage 3: what the policies say of each claim by its key, or None when they were not looked into."""
        asking = [each.anchor for each in settled if each.status is None]
        if self.source is None or not asking or not item.desk.may_ask():
            return None
        sentences = {claim.key: sentence_around(narrative, claim.start, claim.end) for claim in asking}
        queries = list(dict.fromkeys(sentences.values()))[: self.max_queries]
        item.trace.note("retrieval_plan", self._plan(self.source, queries))
        chunks = await self._retrieve(self.source, queries)
        if chunks is None:
            return None
        unsure = [each.anchor for each in settled if each.status in {None, AnchorStatus.UNKNOWN}]
        holders = _holders(unsure, chunks)
        item.trace.note("policy_chunks", _as_json(chunks, unsure, holders))
        asked = {claim.key for claim in asking if sentences[claim.key] in queries}
        return {claim.key: _status(bool(holders[claim.key]), asked=claim.key in asked) for claim in unsure}

    def _plan(self, source: PolicySource, queries: list[str]) -> JsonObject:
        return {
            "layer": "narrative_grounding", "source": source.name, "namespace": source.namespace, "queries": queries,
            "threshold": self.threshold, "top_k": self.top_k, "over_fetch": 0, "context_cap": LONGEST_CHUNK,
            "filter": None,
        }  # fmt: skip

    async def _retrieve(self, source: PolicySource, queries: Sequence[str]) -> list[PolicyChunk] | None:
        """The chunks for all queries, asked at once, each chunk once. The first failure is the layer's."""
        answers: list[list[PolicyChunk] | Exception | None] = [None] * len(queries)

        async def ask(at: int, query: str) -> None:
            try:
                answers[at] = await source.search(query, limit=self.top_k, threshold=self.threshold)
            except Exception as exc:
                answers[at] = exc

        async with anyio.create_task_group() as group:
            for at, query in enumerate(queries):
                group.start_soon(ask, at, query)
        found: dict[str, PolicyChunk] = {}
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
            found |= {chunk.id: chunk for chunk in answer or () if chunk.score >= self.threshold}
        return None if all(answer is None for answer in answers) else list(found.values())


def read_narrative(raw_output: JsonObject, profile: SystemProfile) -> str:
    """The narrative that is to be grounded. Raises `Skip` for an answer of a rule, and where there is none."""
    if profile.source_pointer is not None:
        source: Any = resolve(raw_output, profile.source_pointer)
        if isinstance(source, str) and source in profile.fallback_sources:
            raise Skip(SkipReason.FALLBACK_PREDICTION)
    narrative: Any = None if profile.narrative_pointer is None else resolve(raw_output, profile.narrative_pointer)
    if not isinstance(narrative, str) or not narrative.strip():
        raise Skip(SkipReason.NO_NARRATIVE)
    return narrative


def sentence_around(text: str, start: int, end: int) -> str:
    """The sentence in which something stands, cut to what a query may be long."""
    earliest = max(0, start - LONGEST_QUERY // 2)
    begin = max(earliest, *(text.rfind(mark, earliest, start) + 1 for mark in _ENDS))
    stops = [at for mark in _ENDS if (at := text.find(mark, end, end + LONGEST_QUERY)) >= 0]
    stop = min(stops, default=end + LONGEST_QUERY)
    sentence = " ".join(text[begin : stop + 1].split())[:LONGEST_QUERY]
    return sentence if len(sentence) >= SHORTEST_QUERY else f"policy {sentence}"


_ENDS = (". ", "! ", "? ", ".\n", "\n", "; ")


def _holders(claims: Sequence[AnchorToken], chunks: Sequence[PolicyChunk]) -> dict[str, list[str]]:
    """By claim, the ids of the chunks that hold it. The name of a chunk's document counts as part of its text."""
    texts = [(chunk.id, Held(f"{chunk.source}\n{chunk.text[:LONGEST_CHUNK]}")) for chunk in chunks]
    return {claim.key: [chunk_id for chunk_id, text in texts if text.has(claim)] for claim in claims}


def _status(is_held: bool, *, asked: bool) -> AnchorStatus:
    if is_held:
        return AnchorStatus.BY_RETRIEVAL
    return AnchorStatus.UNGROUNDED if asked else AnchorStatus.UNKNOWN


def _as_json(
    chunks: Sequence[PolicyChunk], claims: Sequence[AnchorToken], holders: Mapping[str, Sequence[str]]
) -> JsonObject:
    return {
        "layer": "narrative_grounding",
        "chunks": [
            {"id": chunk.id, "score": chunk.score, "text": chunk.text, "source": chunk.source, "domain": chunk.domain}
            for chunk in chunks
        ],
        "held": [{"anchor": claim.text, "chunks": list(holders[claim.key])} for claim in claims],
    }


def _anchors(
    settled: Sequence[Settlement], looked_up: Mapping[str, AnchorStatus], evidence: Sequence[Evidence]
) -> tuple[Anchor, ...]:
    ids = {(piece.role, piece.pointer): piece.id for piece in evidence}
    return tuple(
        Anchor(
            text=each.anchor.text,
            kind=each.anchor.kind,
            status=looked_up.get(each.anchor.key) or each.status or AnchorStatus.UNKNOWN,
            evidence_ids=tuple(ids[place] for place in each.places if place in ids),
        )
        for each in settled
    )
