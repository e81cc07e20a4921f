"""Classifiers and their critics put together from the files that the operator named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, cast

import prompts
from app.critic.classifier import ClassifierSystem, ModelClassifier, NotedSystem, TakesNotes
from app.critic.config import ClassifierConfig, load_classifier
from app.critic.model import Classifier, Plan
from app.critic.pipeline import Critic, CriticSystem
from app.settings import Settings
from app.wiring.adjudication import secrets_of
from app.wiring.layers import JudgeIn
from layers.critic import VERSION
from layers.errors import ConfigurationError
from layers.ports import Answerer, Pipeline, System, SystemUnderTest
from layers.profile import SystemProfile
from layers.rubric import Rubric, cut_rubric
from layers.scrubbing import Scrubber
from layers.structured_call import Parameters, StructuredCall

NewCalls = Callable[[], StructuredCall]
"""A fresh memory of answers for each run that is opened: no arm is ever told what another one was answered."""

_NO_MODEL = "no model is configured: set OLLAMA_JUDGE_HOST, GEMINI_API_KEY or OPENAI_BASE_URL"


def classifier_systems(
    settings: Settings, judges: tuple[JudgeIn, ...], systems: Mapping[str, System], new_calls: NewCalls
) -> dict[str, System]:
    """A system for each file of `ARBITER_CLASSIFIERS`, with the pipelines `offline` (it alone) and `critic`.

    All its models are of the first configured judge's vendor. Raises `ConfigurationError` for a file that does not fit,
    a name that is taken, or a premium model.
    """
    made: dict[str, System] = {}
    for path in settings.critic.classifiers:
        config = load_classifier(path)
        name = config.file.name
        if name in systems or name in made:
            raise ConfigurationError(f"{path.name}: there is a system {name} already")
        made[name] = _Maker(settings, config, judges, systems, new_calls).system() if judges else _closed(config)
    return made


def _profile(config: ClassifierConfig) -> SystemProfile:
    axis = config.file.axes[config.primary]
    return SystemProfile(name=config.file.name, labels=tuple(dict.fromkeys((*axis.labels, axis.sentinel))))


def _closed(config: ClassifierConfig) -> System:
    return System(_profile(config), why_closed=_NO_MODEL)


class _Maker:
    """One classifier with its critic."""

    def __init__(
        self,
        settings: Settings,
        config: ClassifierConfig,
        judges: tuple[JudgeIn, ...],
        systems: Mapping[str, System],
        new_calls: NewCalls,
    ) -> None:
        own, self.settings, self.config, self.new_calls = config.file.models, settings, config, new_calls
        self.models: dict[str, Answerer] = {
            role: self._not_premium(judges[0]("run", wanted), wanted)
            for role, wanted in (
                ("classifier", own.classifier),
                ("triage", own.triage),
                ("critic", own.critic or settings.models.critic),
            )
        }
        self.inner = None if config.file.system is None else _takes_notes(config, systems)
        text = self.inner().prompt_text if self.inner else config.prompt.text if config.prompt else ""
        lines = config.file.rubric
        self.rubric: Rubric = cut_rubric(text, lines.begin, lines.end)
        self.parameters = Parameters(seed=settings.judge.seed)

    def _not_premium(self, model: Answerer, wanted: str | None) -> Answerer:
        roles = self.settings.models
        reserved = {role for role in (roles.escalation, roles.arbiter) if role is not None}
        names = {model.identity, model.identity.rpartition("/")[2], wanted or ""}
        if wanted in reserved or any(
            fnmatchcase(name, pattern) for name in names for pattern in self.settings.critic.premium
        ):
            raise ConfigurationError(
                f"{self.config.file.name}: {wanted or model.identity} is a premium model; a critic's pipeline uses none"
            )
        return model

    def system(self) -> System:
        """The system with both its pipelines."""
        plan = self._plan().model_dump(mode="json")
        return System(
            _profile(self.config),
            open=self._alone,
            pipelines={"offline": Pipeline(self._alone, plan), "critic": Pipeline(self._under_critic, plan)},
        )

    def _alone(self, _driver: str | None) -> SystemUnderTest:
        return ClassifierSystem(self._classifier(self.new_calls()), self.config.primary)

    def _under_critic(self, _driver: str | None) -> SystemUnderTest:
        file, calls = self.config.file, self.new_calls()
        critic = Critic(
            self.models["critic"],
            prompts.load("critic"),
            file.critic,
            triage=self.models["triage"],
            triage_prompt=prompts.load("triage"),
            signals=dict(file.triage.signals),
        )
        return CriticSystem(
            self._classifier(calls),
            critic,
            calls,
            self.config.primary,
            file.rubric,
            self.rubric.sha256,
            parameters=self.parameters,
            scrub=Scrubber(secrets_of(self.settings)).text,
            timeout=self.settings.critic.row_timeout,
        )

    def _classifier(self, calls: StructuredCall) -> Classifier:
        file = self.config.file
        if self.inner is not None:
            return NotedSystem(self.inner(), str(file.system), file.axes, self.config.primary)
        if self.config.prompt is None:
            raise ConfigurationError(f"{file.name}: it has no prompt")
        return ModelClassifier(
            self.models["classifier"],
            self.config.prompt,
            prompts.load("reclassify"),
            file.axes,
            calls,
            self.parameters,
            file.extra_fields,
        )

    def _plan(self) -> Plan:
        file, prompt = self.config.file, self.config.prompt
        told: dict[str, Any] = {
            "version": VERSION,
            "system": file.system,
            "prompt": None if prompt is None else prompt.ref.model_dump(),
            "extra_fields": list(file.extra_fields),
            "parameters": {"temperature": self.parameters.temperature, "seed": self.parameters.seed},
        }
        return Plan(
            name=file.name,
            classifier=told,
            rubric_sha256=self.rubric.sha256,
            rules=tuple(rule.id for rule in self.rubric.rules),
            axes=file.axes,
            primary=self.config.primary,
            signals=file.triage.signals,
            critic=file.critic,
            prompts={name: prompts.load(name).ref for name in ("triage", "critic", "reclassify")},
            models={role: model.identity for role, model in self.models.items()},
            clusters=file.clusters,
            adopt=file.adopt,
        )


def _takes_notes(config: ClassifierConfig, systems: Mapping[str, System]) -> Callable[[], TakesNotes]:
    name = str(config.file.system)
    system = systems.get(name)
    if system is None or system.open is None:
        raise ConfigurationError(f"{config.file.name}: the system {name} can't be asked")
    opened = system.open(None)
    if not hasattr(opened, "predict_again") or not hasattr(opened, "prompt_text"):
        raise ConfigurationError(
            f"{config.file.name}: the adapter of {name} takes no notes (predict_again, prompt_text)"
        )
    return lambda: cast(TakesNotes, opened)
