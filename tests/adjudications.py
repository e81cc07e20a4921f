"""What the tests of adjudication share: a model that answers as told, and a service over it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import prompts
from app.adjudication.model import AdjudicationRequest, Evidence, HypothesisView, NewEvidence, NewHypothesis, RunView
from app.adjudication.service import AdjudicationService, Options
from app.adjudication.snapshot import Snapshots
from app.adjudication.synthesis import Failure
from app.adjudication.synthesis_service import SynthesisModel, SynthesisService
from app.errors import NotFound
from app.store.database import Database
from layers.adjudication import Adjudicator
from layers.prompting import RenderedPrompt
from layers.scrubbing import Scrubber
from layers.structured_call import StructuredCall
from tests.unit.answerers import ScriptedAnswerer

SECRET = "correct-horse-battery"


def reply(relation: str = "supports", *, relevance: float = 90, confidence: float = 90, **more: Any) -> str:
    """A model's answer in the form asked for; `more` adds fields or replaces them."""
    answer = {
        "relevance": relevance,
        "relation": relation,
        "directness": "direct",
        "confidence": confidence,
        "rationale": "It says so.",
    }
    return json.dumps(answer | more)


def says(text: str | Exception) -> ScriptedAnswerer:
    return ScriptedAnswerer(lambda _: text)


def by_evidence(answers: dict[str, str | Exception], default: str = "") -> Callable[[RenderedPrompt], str | Exception]:
    """Answers by a word that stands in the evidence."""

    def speak(prompt: RenderedPrompt) -> str | Exception:
        line = next(each for each in prompt.text.splitlines() if each.startswith("The evidence: "))
        return next((answer for word, answer in answers.items() if word in line), default or reply("neutral"))

    return speak


@dataclass
class GivenFailures:
    """The failures of runs, as given."""

    by_run: dict[str, list[Failure]] = field(default_factory=dict)

    async def failures(self, run_id: str) -> list[Failure]:
        if run_id not in self.by_run:
            raise NotFound("there is no such run")
        return self.by_run[run_id]


def build(
    database: Database,
    model: ScriptedAnswerer | None,
    *,
    synthesis: ScriptedAnswerer | None = None,
    failures: GivenFailures | None = None,
    key: bytes | None = None,
    concurrency: int = 4,
    ledger: Any = None,
    **adjudicator: Any,
) -> AdjudicationService:
    """The service over scripted models; each one has its own answers in memory."""
    scrubber = Scrubber([SECRET])
    asked = SynthesisModel(synthesis, prompts.load("synthesis"), StructuredCall())
    made = None
    if model is not None:
        made = Adjudicator(model, prompts.load("adjudication"), StructuredCall(), **adjudicator)
    return AdjudicationService(
        database,
        made,
        scrubber,
        syntheses=SynthesisService(database, failures or GivenFailures(), asked, scrubber),
        snapshots=Snapshots(database, scrubber, key=key, ledger=ledger),
        options=Options(concurrency=concurrency, max_pairs=100, ledger=ledger),
    )


async def state(service: AdjudicationService, text: str = "It rains.", **fields: Any) -> HypothesisView:
    return await service.add_hypothesis(NewHypothesis.model_validate({"text": text, **fields}))


async def show(service: AdjudicationService, text: str, source: str | None = None) -> Evidence:
    return await service.add_evidence(NewEvidence(text=text, source=source or text))


async def adjudicate(
    service: AdjudicationService, hypotheses: list[HypothesisView], evidence: list[Evidence], **fields: Any
) -> RunView:
    """A run to its end."""
    request = AdjudicationRequest(
        hypothesis_ids=tuple(each.hypothesis_id for each in hypotheses),
        evidence_ids=tuple(each.evidence_id for each in evidence),
        **fields,
    )
    run = await service.adjudicate(request)
    await service.drain()
    return await service.run(run.run_id)
