"""From what the layers said to the record that is stored: verdict, canonical bytes, provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.evaluation.item import Item
from app.evaluation.plan import Plan
from app.evaluation.record import build_record, with_root, without_unwritable
from app.evaluation.store import Draft
from app.evaluation.verdict import Verdict, decide
from app.store.ids import now
from app.store.rows import Row
from layers.canonical import canonical_bytes
from layers.compliance import row_so_far
from layers.model import JsonObject, LayerName, Outcome
from layers.provenance import Recorder


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record goes: a new evaluation, a next revision, or a re-examination of `parent_id`.

    `work_id` is the accepted work that it is made for.
    """

    evaluation_id: str
    revision: int = 1
    occurrence: str = ""
    fresh: bool = False
    parent_id: str | None = None
    work_id: str | None = None


def make_draft(
    item: Item,
    place: Place,
    outcomes: Mapping[LayerName, Outcome],
    plan: Plan,
    *,
    recorder: Recorder | None,
    follow_up: Row | None,
) -> tuple[Draft, Verdict]:
    """Decide and write down. `recorder` None = no provenance; `follow_up` is stored beside the record."""
    try:
        return _write(item, place, outcomes, plan, recorder, follow_up)
    except ValueError:
        # A remote's NaN or lone surrogate came as far as a finding: that layer has failed, the record has not.
        return _write(item, place, without_unwritable(outcomes), plan, recorder, follow_up)


def _write(
    item: Item,
    place: Place,
    outcomes: Mapping[LayerName, Outcome],
    plan: Plan,
    recorder: Recorder | None,
    follow_up: Row | None,
) -> tuple[Draft, Verdict]:
    verdict = decide(item.prediction, item.profile, outcomes, plan)
    created_at = now()
    record = build_record(item, outcomes, plan, verdict) | _stands(place, created_at)
    if recorder is not None:
        record["compliance"] = row_so_far(recorder, record)
    data = canonical_bytes(record, keys_are_strings=True)
    # The verdict stage is the record itself, as it stands before its root and its place in the log are known.
    provenance = None if recorder is None else recorder.finish(data)
    draft = Draft(
        evaluation_id=place.evaluation_id,
        revision=place.revision,
        system=item.system,
        prediction_id=item.prediction.id,
        digest=item.digest,
        disposition=verdict.disposition.value,
        degraded=verdict.degraded,
        instrument_path=None if verdict.instrument_path is None else verdict.instrument_path.value,
        created_at=created_at,
        record=data if provenance is None else with_root(data, provenance.root),
        occurrence=place.occurrence,
        fresh=place.fresh,
        parent_id=place.parent_id,
        provenance=provenance,
        follow_up=follow_up,
        work_id=place.work_id,
    )
    return draft, verdict


def _stands(place: Place, created_at: str) -> JsonObject:
    return {
        "evaluation_id": place.evaluation_id,
        "provenance_root": None,
        "log_index": None,
        "parent_id": place.parent_id,
        "revision": place.revision,
        "replayed": False,
        "created_at": created_at,
    }
