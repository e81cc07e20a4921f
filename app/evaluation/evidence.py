"""Number what may be pointed to, from the item, from what cheaper layers found, and from what they retrieved."""

from __future__ import annotations

from collections.abc import Iterator

from layers.evidence import build_map
from layers.model import Evidence, LayerName
from layers.ports import LayerInput, PolicyChunk
from layers.provenance import Recorder, Stage


def number_evidence(item: LayerInput) -> tuple[Evidence, ...]:
    """The evidence map of an item as it stands; the map that the judge gets is bound into the provenance."""
    trace = item.trace if isinstance(item.trace, Recorder) else None
    policies = tuple(_retrieved(trace)) if trace is not None else ()
    built = build_map(item.prediction, profile=item.profile, input=item.input, outcomes=item.earlier, policies=policies)
    if trace is not None and LayerName.DISAGREEMENT in item.earlier:
        trace.note(
            Stage.EVIDENCE,
            {
                "items": [piece.model_dump(mode="json") for piece in built.items],
                "incomplete": [role.value for role in built.incomplete],
                "cut": list(built.cut),
            },
        )
    return built.items


def _retrieved(trace: Recorder) -> Iterator[PolicyChunk]:
    for note in trace.values(Stage.POLICY_CHUNKS):
        for chunk in note.get("chunks", ()):
            yield PolicyChunk(**chunk)
