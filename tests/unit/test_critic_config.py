"""A classifier's file: what it may hold, and what is refused before anything is asked."""

import json
from pathlib import Path

import pytest

from app.critic.config import load_classifier
from app.settings import CriticSettings, ModelRoles, Settings
from app.wiring.critic import classifier_systems
from layers.canonical import sha256_of
from layers.errors import ConfigurationError
from layers.model import EvalExample, EvalPrediction
from layers.ports import System
from layers.profile import SystemProfile
from layers.structured_call import StructuredCall
from tests.critics import TEXT
from tests.unit.answerers import ScriptedAnswerer

FILE = """
name = "tickets"
prompt = "tickets.txt"
rubric = {begin = "## Rubric", end = "## Answer"}

[axes.category]
labels = ["fee", "refund", "other"]
sentinel = "unclear"
[axes.domain]
labels = ["cards", "loans"]
sentinel = "unclear"

[triage.signals.mentions_fee]
description = "The message speaks of a fee."

[critic]
axes = ["category"]
only_when = [{signal = "mentions_fee", op = "eq", value = true}]
expected_challenge_rate = 0.13

[[clusters]]
name = "fees"
axis = "category"
ids = ["e1"]
"""


def written(folder: Path, text: str = FILE, prompt: str = TEXT, name: str = "tickets.toml") -> Path:
    (folder / "tickets.txt").write_text(prompt)
    path = folder / name
    path.write_text(text)
    return path


def systems(path: Path, known: dict[str, System] | None = None, **settings: object) -> dict[str, System]:
    asked = Settings(critic=CriticSettings(classifiers=(path,), premium=("*-large",)), **settings)

    def judge(_lane: str, model: str | None = None) -> ScriptedAnswerer:
        return ScriptedAnswerer(lambda _: "{}", identity=f"ollama/{model or 'small'}")

    return classifier_systems(asked, (judge,), known or {}, StructuredCall)


def test_a_file_names_prompt_rubric_and_axes(tmp_path: Path) -> None:
    config = load_classifier(written(tmp_path))
    assert config.primary == "category"
    assert config.prompt is not None
    assert (config.prompt.text, config.prompt.sha256) == (TEXT, sha256_of(TEXT.encode()))
    assert config.rubric is not None
    assert config.rubric.ids == {"C1", "C2", "D1"}


def test_json_says_the_same_as_toml(tmp_path: Path) -> None:
    config = load_classifier(written(tmp_path))
    text = config.file.model_dump_json(exclude_none=True)
    assert load_classifier(written(tmp_path, text, name="tickets.json")) == config


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('prompt = "tickets.txt"', "", "either `prompt` or `system`"),
        ('prompt = "tickets.txt"', 'prompt = "none.txt"', "none.txt can't be read"),
        ('axes = ["category"]', 'axes = ["tone"]', "no such axis: tone"),
        ('axis = "category"', 'axis = "tone"', "no such axis: tone"),
        ('signal = "mentions_fee"', 'signal = "tone"', "does not note: tone"),
        ('begin = "## Rubric"', 'begin = "## Rules"', "once, not 0 times"),
        ("expected_challenge_rate = 0.13", "", "expected_challenge_rate"),
        ("expected_challenge_rate = 0.13", "expected_challenge_rate = 13", "expected_challenge_rate"),
        ('sentinel = "unclear"\n[axes.domain]', "[axes.domain]", "sentinel"),
        ('ids = ["e1"]', "", "either ids"),
        ('name = "tickets"', 'name = "tickets"\nlabel = "x"', "label"),
        ("[axes.domain]", "[axes.confidence]", "the same name: confidence"),
        ('name = "tickets"', "name = ", "tickets.toml"),
        ('labels = ["cards", "loans"]', 'labels = ["cards", "Cards"]', "labels repeat"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in FILE
    with pytest.raises(ConfigurationError, match=said):
        load_classifier(written(tmp_path, FILE.replace(old, new, 1)))


@pytest.mark.parametrize("prompt", [TEXT.replace("{{input}}", ""), TEXT + "{{secret}}"])
def test_a_prompt_has_the_one_placeholder(tmp_path: Path, prompt: str) -> None:
    with pytest.raises(ConfigurationError, match="placeholders"):
        load_classifier(written(tmp_path, prompt=prompt))


def test_a_classifier_is_a_system_with_both_pipelines_of_one_plan(tmp_path: Path) -> None:
    system = systems(written(tmp_path))["tickets"]
    assert set(system.pipelines) == {"offline", "critic"}
    assert system.pipelines["offline"].plan == system.pipelines["critic"].plan
    assert system.profile.labels == ("fee", "refund", "other", "unclear")
    plan = system.pipelines["critic"].plan
    assert plan["rubric_sha256"] in json.dumps(plan)
    assert plan["rules"] == ["C1", "C2", "D1"]


@pytest.mark.parametrize(
    ("models", "roles"),
    [
        ('critic = "strong"', {"escalation": "strong"}),
        ('classifier = "strong"', {"arbiter": "strong"}),
        ('triage = "some-large"', {}),
        ("", {"critic": "strong", "arbiter": "strong"}),
        ("", {"critic": "some-large"}),
    ],
)
def test_no_premium_model_gets_into_the_pipeline(tmp_path: Path, models: str, roles: dict[str, str]) -> None:
    path = written(tmp_path, FILE + f"\n[models]\n{models}\n")
    with pytest.raises(ConfigurationError, match="premium"):
        systems(path, models=ModelRoles(**roles))


def test_the_critics_model_is_the_files_else_the_roles_else_the_default(tmp_path: Path) -> None:
    own = written(tmp_path, FILE + '\n[models]\ncritic = "mine"\n')
    roles = ModelRoles(critic="role")

    def critic(path: Path, **settings: object) -> str:
        models: dict[str, str] = systems(path, **settings)["tickets"].pipelines["critic"].plan["models"]
        return models["critic"]

    assert critic(own, models=roles) == "ollama/mine"
    assert critic(written(tmp_path), models=roles) == "ollama/role"
    assert critic(written(tmp_path)) == "ollama/small"


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="already"):
        systems(written(tmp_path), {"tickets": System(SystemProfile(name="tickets"))})


def test_without_a_model_the_system_says_what_to_set(tmp_path: Path) -> None:
    settings = Settings(critic=CriticSettings(classifiers=(written(tmp_path),)))
    system = classifier_systems(settings, (), {}, StructuredCall)["tickets"]
    assert system.open is None
    assert "OLLAMA_JUDGE_HOST" in (system.why_closed or "")


class Noted:
    """An adapter that takes notes."""

    prompt_text = TEXT

    async def predict(self, example: EvalExample) -> EvalPrediction:
        raise NotImplementedError

    async def predict_again(self, example: EvalExample, note: str) -> EvalPrediction:
        raise NotImplementedError


def test_a_system_of_ones_own_is_put_before_a_critic_when_its_adapter_takes_notes(tmp_path: Path) -> None:
    path = written(tmp_path, FILE.replace('prompt = "tickets.txt"', 'system = "desk"'))
    profile = SystemProfile(name="desk")
    made = systems(path, {"desk": System(profile, open=lambda _: Noted())})
    assert made["tickets"].pipelines["critic"].plan["classifier"]["system"] == "desk"
    with pytest.raises(ConfigurationError, match="takes no notes"):
        systems(path, {"desk": System(profile, open=lambda _: object())})
    with pytest.raises(ConfigurationError, match="can't be asked"):
        systems(path)
