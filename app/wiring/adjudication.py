"""Adjudication put together: the models of its roles, its prefilter, its snapshots."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, SecretStr

import prompts
from adapters.limits import Lane
from app.adjudication.entailment import Entailment
from app.adjudication.failures import RunFailures
from app.adjudication.record_store import Ledger
from app.adjudication.service import AdjudicationService, Options
from app.adjudication.snapshot import Snapshots
from app.adjudication.synthesis_service import SynthesisModel, SynthesisService
from app.index.lexical import LexicalEmbedder
from app.settings import Settings
from app.store.database import Database
from app.wiring.layers import JudgeIn
from layers.adjudication import Adjudicator
from layers.adjudication_rules import Thresholds
from layers.ports import Answerer, Embedder
from layers.scrubbing import Scrubber
from layers.structured_call import Parameters, StructuredCall


def adjudicator(
    settings: Settings,
    judges: tuple[JudgeIn, ...],
    calls: StructuredCall,
    embedder: Embedder | None,
    lane: Lane,
) -> Adjudicator | None:
    """Who interprets evidence: a model of the first configured judge's vendor; None = no judge is configured.

    A role without a model of its own uses that judge's; no role ever falls over to another vendor.
    """
    if not judges:
        return None
    own, roles = settings.adjudication, settings.models
    return Adjudicator(
        judges[0](lane, roles.adjudication),
        prompts.load("adjudication"),
        calls,
        escalation=judges[0](lane, roles.escalation) if roles.escalation is not None else None,
        # The embedded embedder knows spelling only: it would throw out whatever is said in other words.
        embedder=None if isinstance(embedder, LexicalEmbedder) else embedder,
        thresholds=Thresholds(
            min_relevance=own.min_relevance,
            min_confidence=own.min_confidence,
            escalate_below=own.escalate_below,
            escalate_min_importance=own.escalate_min_importance,
            prefilter_similarity=own.prefilter_similarity,
        ),
        parameters=Parameters(seed=settings.judge.seed),
        timeout=own.pair_timeout,
    )


def connect_adjudication(
    settings: Settings,
    judges: tuple[JudgeIn, ...],
    calls: StructuredCall,
    database: Database,
    embedder: Embedder,
    ledger: Ledger | None,
) -> AdjudicationService:
    """The service. Without a configured judge it stores, asserts, reads and exports, and asks nobody."""
    own, scrubber = settings.adjudication, Scrubber(secrets_of(settings))
    model: Answerer | None = judges[0]("run", settings.models.synthesis) if judges else None
    asked = SynthesisModel(model, prompts.load("synthesis"), calls, Parameters(seed=settings.judge.seed))
    key = own.snapshot_key.get_secret_value().encode() if own.snapshot_key is not None else None
    return AdjudicationService(
        database,
        adjudicator(settings, judges, calls, embedder, "run"),
        scrubber,
        syntheses=SynthesisService(database, RunFailures(database), asked, scrubber),
        snapshots=Snapshots(database, scrubber, key=key, ledger=ledger),
        options=Options(concurrency=own.concurrency, max_pairs=own.max_pairs, ledger=ledger),
    )


def claim_check(settings: Settings, judges: tuple[JudgeIn, ...], calls: StructuredCall) -> Entailment | None:
    """What `/evaluate` holds claims against policies with; None = no model is configured."""
    asked = adjudicator(settings, judges, calls, None, "evaluate")
    return None if asked is None else Entailment(asked, Scrubber(secrets_of(settings)))


def secrets_of(settings: BaseModel) -> Iterator[str]:
    """Every secret that the operator set, so that none of them is ever stored."""
    for name in settings.model_fields_set:
        yield from _secrets_in(getattr(settings, name))


def _secrets_in(value: object) -> Iterator[str]:
    if isinstance(value, SecretStr):
        secret = value.get_secret_value()
        yield secret
        yield secret.rpartition(":")[2]  # an API key is given with its name and scopes before it
    elif isinstance(value, BaseModel):
        yield from secrets_of(value)
    elif isinstance(value, tuple):
        for item in value:
            yield from _secrets_in(item)
