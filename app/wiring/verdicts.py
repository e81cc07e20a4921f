"""The arbiter put together: the model that looks at the whole, and what it may not take for part of an artifact."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import prompts
from app.log.keys import key_path
from app.log.service import LogService
from app.settings import Settings
from app.store.database import Database
from app.store.engines import locate
from app.verdicts.checks import Gates
from app.verdicts.families import ArbiterModel, Families
from app.verdicts.holistic import HolisticPass
from app.verdicts.service import Parts, VerdictService
from app.wiring.adjudication import secrets_of
from app.wiring.layers import MARGIN_S, JudgeIn
from layers.scrubbing import Scrubber
from layers.structured_call import StructuredCall


def connect_verdicts(
    settings: Settings,
    judges: tuple[JudgeIn, ...],
    calls: StructuredCall,
    database: Database,
    log: LogService,
    gates: Gates,
    on_verdict: Callable[[str], None],
) -> VerdictService:
    """The service; `on_verdict` is told of each verdict.

    The model is one of the first configured judge's vendor; no other one stands in for it.

    Raises `ConfigurationError` for families that can't be read.
    """
    scrubber = Scrubber(secrets_of(settings))
    families = Families.parse(settings.models.families)
    holistic = None
    if judges:
        patience = settings.verdicts.model_timeout
        answerer = judges[0]("run", settings.models.arbiter, patience)
        model = ArbiterModel(answerer, arbiter_model(settings), families)
        holistic = HolisticPass(model, prompts.load("arbiter"), calls, scrubber, patience + MARGIN_S)
    parts = Parts(gates, holistic, scrubber, own_files(settings), on_verdict)
    return VerdictService(database, log, parts, settings.verdicts)


def arbiter_model(settings: Settings) -> str:
    """The id of the model in the arbiter's role: its own, else the first configured judge's."""
    if settings.models.arbiter is not None:
        return settings.models.arbiter
    configured = {
        "ollama": settings.ollama.model if settings.ollama.given("host") else None,
        "gemini_flash": _gemini_model(settings.gemini.url) if settings.gemini.api_key is not None else None,
        "openai_compatible": settings.openai.judge_model if settings.openai.base_url is not None else None,
    }
    return next((model for name in settings.judge.order if (model := configured[name]) is not None), "")


def _gemini_model(url: str) -> str:
    match = re.search(r"/models/([^/:?]+)", url)
    return match.group(1) if match else ""


def own_files(settings: Settings) -> frozenset[bytes]:
    """Our own files, which change whenever a verdict is given: the database with what lies beside it, and the key."""
    location = locate(settings.store.url)
    paths = [key_path(settings.store.url, settings.log.key_file)]
    if location.dialect == "sqlite":
        file = str(location.url.database)
        paths += [Path(file + end) for end in ("", "-wal", "-shm", "-journal")]
    return frozenset(os.fsencode(path.resolve()) for path in paths)
