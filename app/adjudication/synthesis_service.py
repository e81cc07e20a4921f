"""Synthesis as callers use it: once per input and routing, with at most two calls of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from sqlalchemy import select

from app.adjudication.model import Evidence, Hypothesis, HypothesisView, Origin, Page, Speaker
from app.adjudication.rules import hypothesis_hash
from app.adjudication.store import FactStore, page_of
from app.adjudication.synthesis import (
    SCHEMA_VERSION,
    Failure,
    Observation,
    choose,
    clusters_of,
    observe_failures,
    synthesis_question,
)
from app.adjudication.synthesis_model import (
    MAX_CALLS,
    Cluster,
    ModelCall,
    Piece,
    Proposal,
    SynthesisRecord,
    SynthesisRequest,
    SynthesisView,
    Written,
)
from app.adjudication.synthesis_store import save_synthesis
from app.adjudication.tables import syntheses
from app.errors import NotFound, Unprocessable
from app.store.database import Database
from app.store.ids import now, uuid7
from layers.canonical import canonical_bytes, sha256_of
from layers.errors import ConfigurationError, DependencyError, NotAVerdict
from layers.ports import Answerer
from layers.prompting import Prompt
from layers.scrubbing import Scrubber
from layers.structured_call import Parameters, StructuredCall

NOT_CONFIGURED = "not_configured"


class Failures(Protocol):
    """Where a run's failures are read. Raises `NotFound`."""

    async def failures(self, run_id: str) -> list[Failure]: ...


@dataclass(frozen=True)
class SynthesisModel:
    """Who is asked for themes, and how. `model` None = nobody."""

    model: Answerer | None
    prompt: Prompt
    calls: StructuredCall
    parameters: Parameters = field(default_factory=Parameters)


@dataclass(frozen=True)
class _Input:
    clusters: tuple[Cluster, ...]
    pieces: dict[str, str]
    named: tuple[Piece, ...]
    n_left_out: int

    @property
    def sha256(self) -> str:
        shown = [each.model_dump(mode="json") for each in self.clusters]
        return sha256_of(canonical_bytes({"clusters": shown, "pieces": self.pieces, "n_left_out": self.n_left_out}))


class SynthesisService:
    """Looks for patterns. Raises the `ServiceError` family."""

    def __init__(self, database: Database, failures: Failures, asked: SynthesisModel, scrubber: Scrubber) -> None:
        self._database = database
        self._facts = FactStore(database)
        self._failures = failures
        self._asked = asked
        self._scrubber = scrubber

    async def synthesise(self, request: SynthesisRequest) -> SynthesisView:
        """What there is to be seen; a stored answer where input, mode and routing are the same, fallbacks included.

        Raises `NotFound` for an unknown run, `Unprocessable` for an unknown hypothesis.
        """
        given = await self._input(request)
        key = self._key(request, given)
        if (known := await self._find(key)) is not None:
            return _view(known, reused=True)
        written, calls, fallback = await self._ask(request, given)
        record, drafts = self._record(request, given, key, written, calls, fallback)
        stored, reused = await self._database.write(lambda conn: save_synthesis(conn, record, drafts))
        return _view(stored, reused=reused)

    async def get(self, synthesis_id: str) -> SynthesisView:
        """One synthesis. Raises `NotFound`."""
        query = select(syntheses.c.record).where(syntheses.c.synthesis_id == synthesis_id)
        found = await self._database.read(lambda conn: conn.scalar(query))
        if found is None:
            raise NotFound("there is no such synthesis")
        return _view(SynthesisRecord.model_validate_json(found), reused=False)

    async def page(self, *, limit: int = 50, cursor: str | None = None) -> Page[SynthesisRecord]:
        """Syntheses, newest first."""
        key = syntheses.c.synthesis_id
        return await self._database.read(lambda conn: page_of(conn, syntheses, key, SynthesisRecord, [], limit, cursor))

    # --- input --------------------------------------------------------------------------------------------------------

    async def _input(self, request: SynthesisRequest) -> _Input:
        if request.run_id is not None:
            seen = observe_failures(
                [self._cleaned_failure(each) for each in await self._failures.failures(request.run_id)]
            )
        else:
            seen = await self._evidence_of(request.hypothesis_ids)
        chosen = choose(seen)
        pieces = {f"E{number}": each.text for number, each in enumerate(chosen, 1)}
        named = tuple(
            Piece(id=name, ref=each.ref, sha256=sha256_of(each.text.encode("utf-8", "replace")))
            for name, each in zip(pieces, chosen, strict=True)
        )
        return _Input(clusters_of(seen), pieces, named, len(seen) - len(chosen))

    def _cleaned_failure(self, failure: Failure) -> Failure:
        """Before anything is cut or counted: half a secret does not look like one, nor does one without its name."""
        return Failure(**self._scrubber.value(asdict(failure)))

    async def _evidence_of(self, ids: Sequence[str]) -> list[Observation]:
        views = []
        for each in dict.fromkeys(ids):
            view = await self._facts.hypothesis(each)
            if view is None:
                raise Unprocessable(f"there is no hypothesis {each}")
            views.append(view)
        wanted = list(dict.fromkeys(evidence_id for view in views for evidence_id in _about(view)))
        pieces = {piece.evidence_id: piece for piece in await self._facts.pieces(wanted)}
        return [
            _observe(view, pieces[evidence_id])
            for view in views
            for evidence_id in _about(view)
            if evidence_id in pieces
        ]

    def _key(self, request: SynthesisRequest, given: _Input) -> str:
        asked = self._asked
        routing: dict[str, Any] = {}
        if request.mode != "deterministic":
            routing = {
                "model": None if asked.model is None else asked.model.identity,
                "prompt": asked.prompt.ref.model_dump(),
                "temperature": asked.parameters.temperature,
                "seed": asked.parameters.seed,
            }
        subject = {"run_id": request.run_id, "hypothesis_ids": list(request.hypothesis_ids)}
        parts = {"input": given.sha256, "mode": request.mode, "schema": SCHEMA_VERSION, **subject, **routing}
        return sha256_of(canonical_bytes(parts))

    # --- the model ----------------------------------------------------------------------------------------------------

    async def _ask(
        self, request: SynthesisRequest, given: _Input
    ) -> tuple[Written | None, tuple[ModelCall, ...], str | None]:
        """What a model wrote, the calls that took, and why there is nothing where there is nothing."""
        if request.mode == "deterministic" or not given.pieces:
            return None, (), None
        if self._asked.model is None:
            return None, (), NOT_CONFIGURED
        calls: list[ModelCall] = []
        for repeat in range(MAX_CALLS):
            written, call = await self._call(self._asked.model, given, repeat)
            calls.append(call)
            if written is not None:
                return written, tuple(calls), None
            if call.outcome == "failed":  # it is away: asking again at once helps nobody
                break
        return None, tuple(calls), calls[-1].error_type

    async def _call(self, model: Answerer, given: _Input, repeat: int) -> tuple[Written | None, ModelCall]:
        asked = self._asked
        parameters = Parameters(asked.parameters.temperature, asked.parameters.seed, repeat)
        question = synthesis_question(asked.prompt, given.clusters, given.pieces, parameters)
        base = {"provider": model.source.value, "model": model.identity}
        try:
            answer = await asked.calls.ask(model, question)
        except (DependencyError, ConfigurationError) as exc:
            outcome = "void" if isinstance(exc, NotAVerdict) else "failed"
            return None, ModelCall(**base, outcome=outcome, error_type=getattr(exc, "kind", "configuration"))
        value = answer.value
        call = ModelCall(
            **base,
            outcome="void" if isinstance(value, str) else "answered",
            error_type=value if isinstance(value, str) else None,
            reply_sha256=sha256_of(answer.reply.text.encode("utf-8", "surrogatepass")),
            cached=answer.cached,
            input_tokens=None if answer.cached else answer.reply.input_tokens,
            output_tokens=None if answer.cached else answer.reply.output_tokens,
        )
        return (None if isinstance(value, str) else value), call

    def _record(
        self,
        request: SynthesisRequest,
        given: _Input,
        key: str,
        written: Written | None,
        calls: tuple[ModelCall, ...],
        fallback: str | None,
    ) -> tuple[SynthesisRecord, list[Hypothesis]]:
        wrote = Written(themes=(), hypotheses=()) if written is None else self._cleaned(written)
        model = self._asked.model if request.mode != "deterministic" else None
        drafts = [_draft(each.text, model) for each in wrote.hypotheses]
        record = SynthesisRecord(
            synthesis_id=uuid7(),
            key=key,
            mode=request.mode,
            run_id=request.run_id,
            hypothesis_ids=request.hypothesis_ids,
            clusters=() if request.mode == "llm" and fallback is None else given.clusters,
            pieces=given.named,
            n_left_out=given.n_left_out,
            themes=wrote.themes,
            proposals=tuple(
                Proposal(text=each.text, evidence_ids=each.evidence_ids, hypothesis_id=draft.hypothesis_id)
                for each, draft in zip(wrote.hypotheses, drafts, strict=True)
            ),
            calls=calls,
            fallback=fallback,
            model=None if model is None else model.identity,
            provider=None if model is None else model.source.value,
            prompt=self._asked.prompt.ref,
            schema_version=SCHEMA_VERSION,
            input_sha256=given.sha256,
            created_at=now(),
        )
        return record, drafts

    def _cleaned(self, written: Written) -> Written:
        return Written.model_validate(self._scrubber.value(written.model_dump(mode="json")))

    async def _find(self, key: str) -> SynthesisRecord | None:
        query = select(syntheses.c.record).where(syntheses.c.key == key)
        found = await self._database.read(lambda conn: conn.scalar(query))
        return None if found is None else SynthesisRecord.model_validate_json(found)


def _draft(text: str, model: Answerer | None) -> Hypothesis:
    """A proposal of a model: no importance beyond the usual, no support, and marked as what it is."""
    author = None if model is None else Speaker(kind="system", name=model.identity[:256])
    return Hypothesis(
        hypothesis_id=uuid7(),
        text=text,
        importance=50,
        origin=Origin.DRAFT_AI,
        by=author,
        sha256=hypothesis_hash(text, 50),
        created_at=now(),
    )


def _about(view: HypothesisView) -> list[str]:
    """The evidence that was linked with a hypothesis, or asserted of it."""
    said = [assertion.evidence_id for assertion in view.assertions or ()]
    return list(dict.fromkeys([*(view.links or {}), *said]))


def _observe(view: HypothesisView, piece: Evidence) -> Observation:
    link = (view.links or {}).get(piece.evidence_id)
    of = {"hypothesis_id": view.hypothesis_id, "qualification": view.standing.qualification.value}
    shown = {
        "hypothesis": view.text,
        "relation": "asserted" if link is None else link.relation.value,
        "source": piece.source,
        "text": piece.text,
    }
    cuts = (("source", {"source": piece.source}),)
    return Observation(piece.evidence_id, canonical_bytes(shown).decode()[:1_000], ("qualification", of), cuts)


def _view(record: SynthesisRecord, *, reused: bool) -> SynthesisView:
    return SynthesisView(**record.model_dump(), reused=reused)
