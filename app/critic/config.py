"""A classifier's file: its prompt, its rubric, its axes, and where its critic may challenge it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from app.critic.model import Adopt, Axis, Cluster, CriticRules, Name, SignalSpec
from layers.canonical import sha256_of
from layers.errors import ConfigurationError
from layers.model import Label, Value
from layers.prompting import Prompt, render
from layers.rubric import Rubric, cut_rubric
from layers.strict_json import StrictJsonError, loads

MAX_BYTES = 1_000_000
CONFIDENCE = "confidence"


class RubricLines(Value):
    """Which lines of the prompt the rubric stands between; no `end` = it goes on to the prompt's end."""

    begin: str = Field(min_length=1)
    end: str | None = Field(default=None, min_length=1)


class Triage(Value):
    """What is noted about a row before it is classified."""

    signals: dict[Name, SignalSpec] = Field(default_factory=dict, max_length=100)


class Models(Value):
    """Opaque model ids; left out = the role's own setting, else the default model."""

    classifier: str | None = None
    triage: str | None = None
    critic: str | None = None


class ClassifierFile(Value):
    """The file as it is written. Either `prompt` (a path beside it) or `system` (one that takes notes) is given."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    prompt: str | None = None
    system: str | None = None
    rubric: RubricLines
    axes: dict[Label, Axis] = Field(min_length=1, max_length=20)
    primary: Label | None = None
    extra_fields: tuple[Name, ...] = ()
    """Text fields that the prompt asks for beside the labels, in front of them; they are not read."""
    triage: Triage = Triage()
    critic: CriticRules
    clusters: tuple[Cluster, ...] = ()
    adopt: Adopt = Adopt()
    models: Models = Models()

    @model_validator(mode="after")
    def _fits_together(self) -> ClassifierFile:
        if (self.prompt is None) == (self.system is None):
            raise ValueError("give either `prompt` or `system`")
        named = [*self.critic.axes, *(cluster.axis for cluster in self.clusters), *filter(None, [self.primary])]
        if unknown := sorted(set(named) - set(self.axes)):
            raise ValueError(f"no such axis: {', '.join(unknown)}")
        if unknown := sorted({condition.signal for condition in self.critic.only_when} - set(self.triage.signals)):
            raise ValueError(f"critic.only_when rests on signals that triage does not note: {', '.join(unknown)}")
        if taken := {CONFIDENCE, *self.extra_fields} & set(self.axes):
            raise ValueError(f"a field of the answer and an axis have the same name: {', '.join(sorted(taken))}")
        if len({cluster.name for cluster in self.clusters}) != len(self.clusters):
            raise ValueError("names of clusters repeat")
        return self


@dataclass(frozen=True)
class ClassifierConfig:
    """A file that was read: its prompt as it lies on disk (None = a system's own), with the rubric cut from it."""

    file: ClassifierFile
    prompt: Prompt | None = None
    rubric: Rubric | None = None

    @property
    def primary(self) -> str:
        """The axis whose label is the prediction's label."""
        return self.file.primary or next(iter(self.file.axes))


def load_classifier(path: Path) -> ClassifierConfig:
    """Read a classifier's file, TOML or JSON, and the prompt it names.

    The prompt is a UTF-8 text with the placeholder `{{input}}`, and `{{token}}` where it wants a random delimiter.
    Raises `ConfigurationError`.
    """
    file = _parse(path)
    if file.prompt is None:
        return ClassifierConfig(file)
    data = _read(path.parent / file.prompt).replace(b"\r\n", b"\n")
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        raise ConfigurationError(f"{file.prompt} is not valid UTF-8 at byte {exc.start}") from None
    sha256 = sha256_of(data)
    prompt = Prompt(file.name, sha256.removeprefix("sha256:")[:12], text, sha256)
    render(prompt, {"input": ""})
    return ClassifierConfig(file, prompt, cut_rubric(text, file.rubric.begin, file.rubric.end))


def _parse(path: Path) -> ClassifierFile:
    data = _read(path)
    try:
        value: Any = loads(data) if path.suffix.lower() == ".json" else tomllib.loads(data.decode())
        return ClassifierFile.model_validate(value)
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_input=False, include_context=False)
        said = "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in errors[:5])
        raise ConfigurationError(f"{path.name}: {said}") from None
    except (StrictJsonError, tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"{path.name}: {exc}") from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as exc:
        raise ConfigurationError(f"{path.name} can't be read: {exc.strerror}") from None
    if len(data) > MAX_BYTES:
        raise ConfigurationError(f"{path.name} is larger than {MAX_BYTES} bytes")
    return data
