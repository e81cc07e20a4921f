"""One evaluation from its item to its stored record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.evaluation.evaluator import Evaluator
from app.evaluation.item import Item
from app.evaluation.model import OnlineScoringResult
from app.evaluation.observe import UNWATCHED, Ending, Observer, Watch
from app.evaluation.plan import Plan, is_drawn, make_plan
from app.evaluation.record import build_record, known_outcomes, must_run_again, with_root, without_unwritable
from app.evaluation.store import Draft, EvaluationStore, Stored
from app.evaluation.verdict import Verdict, decide
from app.evaluation.work import work_row
from app.store.ids import now, uuid7
from app.store.rows import Row
from layers.canonical import canonical_bytes
from layers.model import LayerName, Outcome
from layers.ports import NO_TRACE, LayerInput
from layers.provenance import Recorder, Stage

NewRecorder = Callable[[], Recorder]


@dataclass(frozen=True)
class AuditSample:
    """How the sample of unflagged items is drawn."""

    rate: float
    key: bytes

    def draws(self, item: Item) -> bool:
        """Whether this item belongs to it; the same item always does or never."""
        return self.rate > 0 and is_drawn(item.system, item.prediction.id, key=self.key, rate=self.rate)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record goes: a new evaluation, a next revision, or a re-examination of `parent_id`."""

    evaluation_id: str
    revision: int = 1
    occurrence: str = ""
    fresh: bool = False
    parent_id: str | None = None


class Pipeline:
    """Screen, plan, escalate, decide, store. `new_recorder` None = no provenance is kept."""

    def __init__(
        self,
        evaluator: Evaluator,
        store: EvaluationStore,
        sample: AuditSample,
        *,
        observer: Observer = UNWATCHED,
        new_recorder: NewRecorder | None = None,
        on_follow_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._evaluator = evaluator
        self._store = store
        self._sample = sample
        self._observer = observer
        self._new_recorder = new_recorder
        self._on_follow_up = on_follow_up

    async def evaluate(self, item: Item, place: Place) -> Stored:
        """Evaluate a new item. If its content has an answer already, that is returned, and costly layers do not run."""
        return await self._watched(item, place, {})

    async def mend(self, item: Item, stored: Stored) -> Stored:
        """Run the layers again for whose failure a stored answer is degraded; the next revision, or the same one when
        there is nothing to mend."""
        if not stored.degraded:
            return stored
        result = OnlineScoringResult.model_validate_json(stored.record)
        if not must_run_again(result):
            return stored
        place = Place(stored.evaluation_id, stored.revision + 1, stored.occurrence, parent_id=result.parent_id)
        return await self._watched(item, place, known_outcomes(result))

    async def _watched(self, item: Item, place: Place, outcomes: dict[LayerName, Outcome]) -> Stored:
        watch = self._observer.begin(item)
        ending = Ending(outcomes=outcomes)
        try:
            return await self._run(item, place, outcomes, watch, ending)
        finally:
            watch.end(ending)

    async def _run(
        self, item: Item, place: Place, outcomes: dict[LayerName, Outcome], watch: Watch, ending: Ending
    ) -> Stored:
        recorder = None if self._new_recorder is None else self._new_recorder()
        if recorder is not None:
            recorder.note_bytes(Stage.INPUT, item.content)
        looked_at = LayerInput(item.prediction, item.profile, item.input, (), {}, recorder or NO_TRACE)
        deadline = self._evaluator.deadline()
        await self._evaluator.screen(looked_at, outcomes, deadline=deadline, watch=watch)
        plan = ending.plan = make_plan(outcomes, audit_rate=self._sample.rate, audit=place.parent_id is not None)
        if plan.escalate:
            if _is_first_look(place) and (stored := await self._store.find(item.digest)) is not None:
                ending.evaluation_id = stored.evaluation_id
                return stored
            await self._evaluator.escalate(looked_at, outcomes, deadline=deadline, watch=watch)
        draft, verdict = self._draft(item, place, self._evaluator.complete(outcomes, plan), plan, recorder)
        stored = await self._store.save(draft)
        ending.evaluation_id = stored.evaluation_id
        if stored.created:
            ending.verdict = verdict
            if draft.follow_up is not None:
                self._on_follow_up()
        return stored

    def _draft(
        self,
        item: Item,
        place: Place,
        outcomes: dict[LayerName, Outcome],
        plan: Plan,
        recorder: Recorder | None,
    ) -> tuple[Draft, Verdict]:
        try:
            return self._write(item, place, outcomes, plan, recorder)
        except ValueError:
            # A remote's NaN or lone surrogate came as far as a finding: that layer has failed, the record has not.
            return self._write(item, place, without_unwritable(outcomes), plan, recorder)

    def _write(
        self,
        item: Item,
        place: Place,
        outcomes: Mapping[LayerName, Outcome],
        plan: Plan,
        recorder: Recorder | None,
    ) -> tuple[Draft, Verdict]:
        verdict = decide(item.prediction, item.profile, outcomes, plan)
        created_at = now()
        record = canonical_bytes(
            build_record(item, outcomes, plan, verdict)
            | {
                "evaluation_id": place.evaluation_id,
                "provenance_root": None,
                "log_index": None,
                "parent_id": place.parent_id,
                "revision": place.revision,
                "replayed": False,
                "created_at": created_at,
            },
            keys_are_strings=True,
        )
        # The verdict stage is the record itself, as it stands before its root and its place in the log are known.
        provenance = None if recorder is None else recorder.finish(record)
        if provenance is not None:
            record = with_root(record, provenance.root)
        draft = Draft(
            evaluation_id=place.evaluation_id,
            revision=place.revision,
            system=item.system,
            prediction_id=item.prediction.id,
            digest=item.digest,
            disposition=verdict.disposition.value,
            degraded=verdict.degraded,
            created_at=created_at,
            record=record,
            occurrence=place.occurrence,
            fresh=place.fresh,
            parent_id=place.parent_id,
            provenance=provenance,
            follow_up=self._follow_up(item, place, plan),
        )
        return draft, verdict

    def _follow_up(self, item: Item, place: Place, plan: Plan) -> Row | None:
        """Work that re-examines an unflagged item of the sample, stored with its answer."""
        if plan.escalate or place.revision > 1 or not self._sample.draws(item):
            return None
        return work_row(uuid7(), item.content, kind="audit", parent_id=place.evaluation_id)


def _is_first_look(place: Place) -> bool:
    return place.revision == 1 and not place.fresh and place.parent_id is None
