"""What callers can do about hypotheses and evidence: state, show, assert, adjudicate, read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from app.adjudication.model import (
    AdjudicationRecord,
    AdjudicationRequest,
    Assertion,
    Evidence,
    Hypothesis,
    HypothesisView,
    NewAssertion,
    NewEvidence,
    NewHypothesis,
    Origin,
    Page,
    RecordFilters,
    RunView,
    StoredRun,
    Transition,
)
from app.adjudication.record_store import Ledger, RecordStore
from app.adjudication.rules import evidence_hash, hypothesis_hash
from app.adjudication.snapshot import Snapshots
from app.adjudication.store import FactStore
from app.adjudication.synthesis_service import SynthesisService
from app.adjudication.work import PairWork
from app.errors import FieldError, NotFound, Unavailable, Unprocessable
from app.store.database import Database
from app.store.ids import now, uuid7
from layers.adjudication import Adjudicator
from layers.adjudication_rules import Qualification
from layers.model import Value
from layers.scrubbing import Scrubber

V = TypeVar("V", bound=Value)
NO_MODEL = "no model is configured: set OLLAMA_JUDGE_HOST, GEMINI_API_KEY or OPENAI_BASE_URL"


@dataclass(frozen=True)
class Options:
    """How pairs are worked off. `ledger` None = records enter no log."""

    concurrency: int = 4
    max_pairs: int = 10_000
    ledger: Ledger | None = None


class AdjudicationService:
    """The use cases of adjudication. `adjudicator` None = no model is configured: everything but asking works.

    Raises the `ServiceError` family. All that comes in is scrubbed of secrets before it is hashed and stored.
    """

    def __init__(
        self,
        database: Database,
        adjudicator: Adjudicator | None,
        scrubber: Scrubber,
        *,
        syntheses: SynthesisService,
        snapshots: Snapshots,
        options: Options | None = None,
    ) -> None:
        self._options = options or Options()
        self._facts = FactStore(database)
        self._records = RecordStore(database, self._options.ledger)
        self._scrubber = scrubber
        self._adjudicator = adjudicator
        self.syntheses = syntheses
        self.snapshots = snapshots
        self._work: PairWork | None = None
        if adjudicator is not None:
            concurrency = self._options.concurrency
            self._work = PairWork(self._facts, self._records, adjudicator, scrubber, concurrency=concurrency)

    async def work(self) -> None:
        """Work off what was accepted, for ever; nothing without a model."""
        if self._work is not None:
            await self._work.work()

    async def drain(self) -> None:
        """Work off what was accepted, and return."""
        if self._work is not None:
            await self._work.drain()

    # --- stating and showing ------------------------------------------------------------------------------------------

    async def add_hypothesis(self, new: NewHypothesis) -> HypothesisView:
        """Store a statement without support. Evidence named with it becomes assertions of its author.

        One that matches a stored statement is that one, with its relationships, importance and origin.
        """
        new = self._clean(new)
        if new.evidence and new.by is None:
            raise Unprocessable("evidence is named, so `by` must say who does", [FieldError("/by", "is missing")])
        await self._check_known((), [named.evidence_id for named in new.evidence], "/evidence")
        hypothesis = Hypothesis(
            hypothesis_id=uuid7(),
            text=new.text,
            importance=new.importance,
            origin=Origin.STATED,
            by=new.by,
            sha256=hypothesis_hash(new.text, new.importance),
            created_at=now(),
        )
        said = [
            NewAssertion(evidence_id=named.evidence_id, relation=named.relation, by=new.by)
            for named in new.evidence
            if new.by is not None
        ]
        assertions = [_assertion(each, hypothesis.hypothesis_id) for each in said]
        stored, existing = await self._facts.add_hypothesis(hypothesis, assertions)
        view = await self.hypothesis(stored.hypothesis_id)
        return view.model_copy(update={"existing": existing})

    async def add_evidence(self, new: NewEvidence) -> Evidence:
        """Store a piece of evidence; the same text of the same source again is the same piece."""
        new = self._clean(new)
        piece = Evidence(
            evidence_id=uuid7(), **new.model_dump(), sha256=evidence_hash(new.text, new.source), created_at=now()
        )
        return await self._facts.add_evidence(piece)

    async def add_assertion(self, hypothesis_id: str, new: NewAssertion) -> Assertion:
        """Record what somebody declares. It changes no score. Raises `NotFound`, `Unprocessable`."""
        await self.hypothesis(hypothesis_id)
        await self._check_known((), [new.evidence_id], "/evidence_id")
        return await self._facts.add_assertion(_assertion(self._clean(new), hypothesis_id))

    async def adjudicate(self, request: AdjudicationRequest) -> RunView:
        """Accept a run over every pair. It survives a restart. Raises `Unavailable` where no model is configured."""
        request = self._clean(request)
        n_pairs = len(set(request.hypothesis_ids)) * len(set(request.evidence_ids))
        if n_pairs > self._options.max_pairs:
            raise Unprocessable(f"a run may have at most {self._options.max_pairs} pairs, not {n_pairs}")
        await self._check_known(request.hypothesis_ids, request.evidence_ids, "")
        if self._adjudicator is None or self._work is None:
            raise Unavailable(NO_MODEL)
        run = StoredRun(
            run_id=uuid7(),
            request=request,
            configuration=self._adjudicator.configuration(),
            created_at=now(),
        )
        await self._records.add_run(run, n_pairs)
        self._work.wake()
        return await self.run(run.run_id)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def hypothesis(self, hypothesis_id: str) -> HypothesisView:
        """One hypothesis with its links and assertions. Raises `NotFound`."""
        return _found(await self._facts.hypothesis(hypothesis_id), "hypothesis")

    async def hypotheses(
        self, qualification: Qualification | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[HypothesisView]:
        """Hypotheses as they stand, newest first."""
        return await self._facts.hypotheses(qualification, limit, cursor)

    async def transitions(self, hypothesis_id: str, *, limit: int = 50, cursor: str | None = None) -> Page[Transition]:
        """How a hypothesis came to stand as it does, oldest first. Raises `NotFound`."""
        await self.hypothesis(hypothesis_id)
        return await self._facts.transitions(hypothesis_id, limit, cursor)

    async def evidence(self, evidence_id: str) -> Evidence:
        """One piece of evidence. Raises `NotFound`."""
        return _found(await self._facts.evidence(evidence_id), "evidence")

    async def evidence_page(self, *, limit: int = 50, cursor: str | None = None) -> Page[Evidence]:
        """Evidence, newest first."""
        return await self._facts.evidence_page(limit, cursor)

    async def run(self, run_id: str) -> RunView:
        """A run and how far it is. Raises `NotFound`."""
        return _found(await self._records.run(run_id), "adjudication")

    async def runs(self, *, limit: int = 50, cursor: str | None = None) -> Page[RunView]:
        """Runs, newest first."""
        return await self._records.run_page(limit, cursor)

    async def record(self, record_id: str) -> AdjudicationRecord:
        """One record in full. Raises `NotFound`."""
        return _found(await self._records.record(record_id), "adjudication record")

    async def records(
        self, filters: RecordFilters, *, limit: int = 50, cursor: str | None = None
    ) -> Page[AdjudicationRecord]:
        """Records, newest first."""
        return await self._records.records(filters, limit, cursor)

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _clean(self, value: V) -> V:
        return type(value).model_validate(self._scrubber.value(value.model_dump(mode="json")))

    async def _check_known(
        self, hypothesis_ids: tuple[str, ...], evidence_ids: tuple[str, ...] | list[str], where: str
    ) -> None:
        if missing := await self._facts.missing(dict.fromkeys(hypothesis_ids), dict.fromkeys(evidence_ids)):
            shown = ", ".join(missing[:5])
            raise Unprocessable(f"there is no such thing as {shown}", [FieldError(where, f"unknown: {shown}")])


def _found(value: V | None, what: str) -> V:
    if value is None:
        raise NotFound(f"there is no such {what}")
    return value


def _assertion(new: NewAssertion, hypothesis_id: str) -> Assertion:
    return Assertion(assertion_id=uuid7(), hypothesis_id=hypothesis_id, **new.model_dump(), created_at=now())
