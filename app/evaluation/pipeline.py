"""One evaluation from its item to its stored record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from app.evaluation.drafting import Place, make_draft
from app.evaluation.evaluator import Evaluator
from app.evaluation.evidence import number_evidence
from app.evaluation.inquiry import Inquiry, NumberEvidence
from app.evaluation.item import Item
from app.evaluation.model import OnlineScoringResult
from app.evaluation.observe import UNWATCHED, Ending, Observer, Watch
from app.evaluation.plan import Plan, Trigger, is_drawn, make_plan, refuse
from app.evaluation.record import carry_over, known_outcomes, must_run_again
from app.evaluation.store import EvaluationStore, Stored
from app.evaluation.work import work_row
from app.store.ids import uuid7
from app.store.rows import Row
from layers.contracts import Contracts, PreflightPolicy
from layers.model import LayerName, Outcome
from layers.ports import LayerInput
from layers.provenance import Recorder, Stage

NewRecorder = Callable[[], Recorder]


class Entail(Protocol):
    """Hold what the judge claimed against the policy text that it points to, and raise the rungs that follow.

    It may replace the judge's outcome, and changes nothing where it has nothing to ask or not the time (`seconds`).
    """

    async def __call__(self, item: LayerInput, outcomes: dict[LayerName, Outcome], /, *, seconds: float) -> None: ...


async def no_entailment(_item: LayerInput, _outcomes: dict[LayerName, Outcome], *, seconds: float) -> None:
    """Where no model is configured no claim is lifted."""


@dataclass(frozen=True)
class AuditSample:
    """How the sample of unflagged items is drawn."""

    rate: float
    key: bytes

    def draws(self, item: Item) -> bool:
        """Whether this item belongs to it; the same item always does or never."""
        return self.rate > 0 and is_drawn(item.system, item.prediction.id, key=self.key, rate=self.rate)


@dataclass(frozen=True)
class Rules:
    """The contracts of each system by its name, how preflight looks, and how evidence is numbered."""

    contracts: Mapping[str, Contracts]
    preflight: PreflightPolicy
    number: NumberEvidence = number_evidence

    def inquire(self, item: Item, outcomes: Mapping[LayerName, Outcome], recorder: Recorder | None) -> Inquiry:
        """An item set on its way; `outcomes` fills up as layers end."""
        contracts = self.contracts[item.system]
        return Inquiry(item, outcomes, contracts, self.preflight, recorder=recorder, number=self.number)


class Pipeline:
    """Screen, plan, look ahead, escalate, decide, store. `new_recorder` None = no provenance is kept."""

    def __init__(
        self,
        evaluator: Evaluator,
        store: EvaluationStore,
        sample: AuditSample,
        rules: Rules,
        *,
        observer: Observer = UNWATCHED,
        new_recorder: NewRecorder | None = None,
        on_follow_up: Callable[[], None] = lambda: None,
        entail: Entail = no_entailment,
    ) -> None:
        self._evaluator = evaluator
        self._store = store
        self._sample = sample
        self._rules = rules
        self._observer = observer
        self._new_recorder = new_recorder
        self._on_follow_up = on_follow_up
        self._entail = entail

    async def evaluate(self, item: Item, place: Place) -> Stored:
        """Evaluate a new item. If its content has an answer already, that is returned, and costly layers do not run."""
        return await self._watched(item, place, {}, self._recorder(item))

    async def mend(self, item: Item, stored: Stored, *, work_id: str | None = None) -> Stored:
        """Run the layers again for whose failure a stored answer is degraded; the next revision, or the same one when
        there is nothing to mend."""
        if not stored.degraded:
            return stored
        result = OnlineScoringResult.model_validate_json(stored.record)
        if not must_run_again(result):
            return stored
        known, recorder = known_outcomes(result), self._recorder(item)
        if recorder is not None:
            stages = await self._store.stages(stored.evaluation_id, stored.revision)
            carry_over(recorder, stages, known, revision=stored.revision)
        place = Place(stored.evaluation_id, stored.revision + 1, stored.occurrence, False, result.parent_id, work_id)
        return await self._watched(item, place, known, recorder)

    def _recorder(self, item: Item) -> Recorder | None:
        if self._new_recorder is None:
            return None
        recorder = self._new_recorder()
        recorder.note_bytes(Stage.INPUT, item.content)
        return recorder

    async def _watched(
        self, item: Item, place: Place, outcomes: dict[LayerName, Outcome], recorder: Recorder | None
    ) -> Stored:
        watch = self._observer.begin(item)
        ending = Ending(outcomes=outcomes)
        try:
            return await self._run(item, place, outcomes, recorder, watch, ending)
        finally:
            watch.end(ending)

    async def _run(
        self,
        item: Item,
        place: Place,
        outcomes: dict[LayerName, Outcome],
        recorder: Recorder | None,
        watch: Watch,
        ending: Ending,
    ) -> Stored:
        inquiry = self._rules.inquire(item, outcomes, recorder)
        deadline = self._evaluator.deadline()
        await self._evaluator.screen(inquiry, outcomes, deadline=deadline, watch=watch)
        plan = ending.plan = make_plan(outcomes, audit_rate=self._sample.rate, audit=place.parent_id is not None)
        if plan.escalate and _is_first_look(place) and (stored := await self._store.find(item.digest)) is not None:
            ending.evaluation_id = stored.evaluation_id
            return stored
        if (plan.escalate or inquiry.was_asked) and not inquiry.may_ask():
            plan = ending.plan = refuse(plan, inquiry.refusals)
        if plan.escalate:
            await self._evaluator.escalate(inquiry, outcomes, deadline=deadline, watch=watch)
            await self._entail(inquiry.grown(), outcomes, seconds=max(0.0, deadline - self._evaluator.now()))
        inquiry.conclude()
        draft, verdict = make_draft(
            item,
            place,
            self._evaluator.complete(outcomes, plan),
            plan,
            recorder=recorder,
            follow_up=self._follow_up(item, place, plan),
        )
        stored = await self._store.save(draft)
        ending.evaluation_id = stored.evaluation_id
        if stored.created:
            ending.verdict = verdict
            if draft.follow_up is not None:
                self._on_follow_up()
        return stored

    def _follow_up(self, item: Item, place: Place, plan: Plan) -> Row | None:
        """Work that re-examines an unflagged item of the sample, stored with its answer."""
        if plan.trigger not in _UNFLAGGED or place.revision > 1 or not self._sample.draws(item):
            return None
        return work_row(
            uuid7(), item.content, kind="audit", parent_id=place.evaluation_id, traceparent=self._observer.caller()
        )


_UNFLAGGED = frozenset({Trigger.NONE, Trigger.BLIND})


def _is_first_look(place: Place) -> bool:
    return place.revision == 1 and not place.fresh and place.parent_id is None
