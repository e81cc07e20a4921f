"""What the tests of the critic share: a classifier's prompt, its plan, models that do as they are told."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import prompts
from app.critic.audit import events_of, lines_of
from app.critic.classifier import ClassifierSystem, ModelClassifier
from app.critic.config import RubricLines
from app.critic.events import Header
from app.critic.model import Adopt, Axis, Cluster, CriticRules, Plan, SignalSpec
from app.critic.pipeline import Critic, CriticSystem
from app.runs.asking import Asker, Item
from app.runs.gate import Gate
from app.runs.limits import Standing
from app.runs.model import Record
from layers.canonical import canonical_bytes, sha256_of
from layers.critic import Condition
from layers.model import EvalExample, EvalPrediction, JsonObject
from layers.ports import SystemUnderTest
from layers.profile import SystemProfile
from layers.prompting import Prompt, RenderedPrompt
from layers.rubric import cut_rubric
from layers.structured_call import StructuredCall
from tests.unit.answerers import ScriptedAnswerer

RUBRIC = """C1: A message about money that was charged is a "fee".
C2: A message that asks for money back is a "refund",
    whatever else it speaks of.
D1: The domain is "cards" only where a card is named.
"""
TEXT = f"""You label support messages.

## Rubric
{RUBRIC}
## Answer
Answer with one JSON object that has "category", "domain" and "confidence".
The message: {{{{input}}}}
"""
LINES = RubricLines(begin="## Rubric", end="## Answer")
PROMPT = Prompt("tickets", "1", TEXT, sha256_of(TEXT.encode()))
AXES = {
    "category": Axis(labels=("fee", "refund", "other"), sentinel="unclear"),
    "domain": Axis(labels=("cards", "loans"), sentinel="unclear"),
}
SIGNALS = {"mentions_fee": SignalSpec(description="The message speaks of a fee.")}
FEE = Condition(signal="mentions_fee", op="eq", value=True)
EVERYWHERE = CriticRules(axes=("category", "domain"), expected_challenge_rate=0.13)
RESTRAINED = CriticRules(axes=("category",), only_when=(FEE,), expected_challenge_rate=0.13)
PROFILE = SystemProfile(name="tickets", labels=("fee", "refund", "other", "unclear"))

Said = str | Exception | Awaitable[str]


def accept() -> str:
    return json.dumps({"gap": "", "axis": "", "rule": "", "decision": "accept"})


def challenge(axis: str = "category", rule: str = "C1", gap: str = "the message says that money was charged") -> str:
    return json.dumps({"gap": gap, "axis": axis, "rule": rule, "decision": "challenge"})


def labels(category: str = "fee", domain: str = "cards", **more: object) -> str:
    return json.dumps({"category": category, "domain": domain, "confidence": 0.8, **more})


def shown(prompt: RenderedPrompt, line: str) -> Any:
    """The JSON value behind `line: ` in a prompt."""
    found = [text for text in prompt.text.splitlines() if text.startswith(f"{line}: ")]
    return json.loads(found[-1].partition(": ")[2])


@dataclass
class Models:
    """What each role says about a case (a row's input). `asked` holds the roles in the order in which they were."""

    triage: Callable[[Any], Said] = lambda case: json.dumps({"signals": {"mentions_fee": True}})
    classify: Callable[[Any], Said] = lambda case: labels()
    again: Callable[[Any], Said] = lambda case: labels("refund")
    review: Callable[[Any], Said] = lambda case: accept()
    second: Callable[[Any], Said] = lambda case: accept()
    asked: list[str] = field(default_factory=list)
    prompts: list[RenderedPrompt] = field(default_factory=list)

    def answerer(self) -> ScriptedAnswerer:
        return ScriptedAnswerer(self._speak)

    def _speak(self, prompt: RenderedPrompt) -> Said:
        role = self._role(prompt)
        self.asked.append(role)
        self.prompts.append(prompt)
        line = "The message" if role in {"classify", "again"} else "The case"
        speak: Callable[[Any], Said] = getattr(self, role)
        return speak(shown(prompt, line))

    def _role(self, prompt: RenderedPrompt) -> str:
        name = prompt.prompt.name
        if name == "critic":
            return "review" if shown(prompt, _EARLIER) is None else "second"
        return {"triage": "triage", "tickets": "classify", "tickets+reclassify": "again"}[name]


_EARLIER = "An earlier challenge, after which the classifier looked again"


def classifier(models: Models, calls: StructuredCall | None = None, prompt: Prompt = PROMPT) -> ModelClassifier:
    calls = calls or StructuredCall()
    return ModelClassifier(models.answerer(), prompt, prompts.load("reclassify"), AXES, calls)


def alone(models: Models) -> ClassifierSystem:
    return ClassifierSystem(classifier(models), "category")


def under_critic(models: Models, rules: CriticRules = RESTRAINED, **parts: Any) -> CriticSystem:
    calls, prompt = StructuredCall(), parts.pop("prompt", PROMPT)
    critic = Critic(
        models.answerer(),
        prompts.load("critic"),
        rules,
        triage=models.answerer(),
        triage_prompt=prompts.load("triage"),
        signals=SIGNALS,
    )
    sha256 = cut_rubric(prompt.text, LINES.begin, LINES.end).sha256
    made = classifier(models, calls, prompt)
    return CriticSystem(made, critic, calls, "category", LINES, sha256, **parts)


def plan(
    rules: CriticRules = RESTRAINED, *clusters: Cluster, adopt: Adopt | None = None, prompt: Prompt = PROMPT
) -> Plan:
    rubric = cut_rubric(prompt.text, LINES.begin, LINES.end)
    return Plan(
        name="tickets",
        classifier={"prompt": prompt.ref.model_dump()},
        rubric_sha256=rubric.sha256,
        rules=tuple(rule.id for rule in rubric.rules),
        axes=AXES,
        primary="category",
        signals=SIGNALS,
        critic=rules,
        prompts={},
        models={},
        clusters=clusters,
        adopt=adopt or Adopt(),
    )


def header(made: Plan, n_total: int, pipeline: str = "critic", **fields: Any) -> Header:
    given = {"run_id": "r", "dataset_id": "d", "system": "tickets", "created_at": "2026-01-01T00:00:00.000000Z"}
    return Header(**{**given, **fields}, pipeline=pipeline, n_total=n_total, plan=made)


def example(name: str = "e1", category: str = "fee", domain: str | None = "cards", **case: object) -> EvalExample:
    expected = None if domain is None else {"domain": domain}
    return EvalExample(id=name, input={"id": name, **case}, expected_label=category, expected_labels=expected)


async def record_of(system: SystemUnderTest, row: EvalExample) -> Record:
    """The record that a run would keep."""
    return await Asker(system, PROFILE, Gate(), Standing()).ask(Item(0, 0, row))


async def trail_of(system: SystemUnderTest, head: Header, rows: Iterable[EvalExample]) -> bytes:
    """The audit trail of these rows, as the service writes it."""
    lines = [canonical_bytes(head.model_dump(mode="json")) + b"\n"]
    for row in rows:
        record = await record_of(system, row)
        lines.append(lines_of(events_of(record, row.model_dump(), head.plan)))
    return b"".join(lines)


def audit(prediction: EvalPrediction) -> list[JsonObject]:
    return list(prediction.raw_output["audit"])


def kinds(prediction: EvalPrediction) -> list[str]:
    return [event["event"] for event in audit(prediction)]
