"""Number what may be pointed to, from the item, from what cheaper layers found, and from what they retrieved."""

from __future__ import annotations

from collections.abc import Iterator

from layers.evidence import EvidenceMap, build_map
from layers.ports import LayerInput, PolicyChunk
from layers.provenance import Recorder, Stage


def number_evidence(item: LayerInput) -> EvidenceMap:
    """The evidence map of an item as it stands: what its `earlier` layers found, and the policies they retrieved."""
    policies = tuple(_retrieved(item.trace)) if isinstance(item.trace, Recorder) else ()
    return build_map(item.prediction, profile=item.profile, input=item.input, outcomes=item.earlier, policies=policies)


def _retrieved(trace: Recorder) -> Iterator[PolicyChunk]:
    for note in trace.values(Stage.POLICY_CHUNKS):
        for chunk in note.get("chunks", ()):
            yield PolicyChunk(**chunk)
