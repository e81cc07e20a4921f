"""What an arbiter judges by: a TOML file that names the checks, the laws and what may be accepted."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, ValidationError, model_validator

from layers.canonical import canonical_bytes, sha256_of
from layers.errors import ConfigurationError
from layers.model import UnitInterval, Value

MAX_CONFIG = 256_000
"""Bytes of the file."""


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold a NUL")
    return text


def _inside(text: str) -> str:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError("must be a relative pattern without '..'")
    return text


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as exc:
        raise ValueError(f"is not a regular expression: {exc}") from None
    return text


Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
Word: TypeAlias = Annotated[str, Field(max_length=10_000), AfterValidator(_no_nul)]
Glob: TypeAlias = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_no_nul), AfterValidator(_inside)]
Regex: TypeAlias = Annotated[str, Field(min_length=1, max_length=1_000), AfterValidator(_regex)]
EnvName: TypeAlias = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Timeout: TypeAlias = Annotated[float, Field(gt=0, le=3_600, allow_inf_nan=False)]
Range: TypeAlias = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x20\x7f-][^\x00-\x20\x7f]*$")]


class _Check(Value):
    name: Name


class _Program(_Check):
    """A program with fixed arguments. It sees `PATH`, `HOME`, the names in `pass_env`, and `env`; nothing else."""

    argv: Annotated[tuple[Word, ...], Field(min_length=1, max_length=500)]
    cwd: Glob = "."
    timeout: Timeout = 600
    env: dict[EnvName, Word] = Field(default_factory=dict, max_length=100)
    pass_env: Annotated[tuple[EnvName, ...], Field(max_length=100)] = ()


class CommandCheck(_Program):
    """Passes when the program ends with one of `exit_codes`.

    One of `could_not_run_codes` means that it gave no answer; by default those with which shells and their like say
    that a program can't be run (126) or was not found (127).
    """

    kind: Literal["command"]
    exit_codes: Annotated[tuple[int, ...], Field(min_length=1, max_length=50)] = (0,)
    could_not_run_codes: Annotated[tuple[int, ...], Field(max_length=50)] = (126, 127)

    @model_validator(mode="after")
    def _one_meaning_each(self) -> CommandCheck:
        if "could_not_run_codes" in self.model_fields_set and set(self.exit_codes) & set(self.could_not_run_codes):
            raise ValueError("could_not_run_codes: one of them is among exit_codes")
        return self


class BaselineCheck(_Program):
    """Passes when the program reports no more errors than are known: lines of its output in which `pattern` is found.

    `known` is a number, `known_file` a file with the known lines: then each line that is not among them is new. An
    exit code that is not among `exit_codes` means that the program did not do its work.
    """

    kind: Literal["baseline"]
    pattern: Regex
    known: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    known_file: Glob | None = None
    exit_codes: Annotated[tuple[int, ...], Field(min_length=1, max_length=50)] = (0, 1)

    @model_validator(mode="after")
    def _one_of_them(self) -> BaselineCheck:
        if (self.known is None) == (self.known_file is None):
            raise ValueError("needs either known or known_file")
        return self


class GateCheck(_Check):
    """Passes when the run's gate says PASS or WARN. The artifact must be a run."""

    kind: Literal["gate"]
    policy: Glob
    baseline: Name | None = None


class ScopeCheck(_Check):
    """Passes when every file that a range of commits changes lies inside `paths`; the artifact's own range if unset."""

    kind: Literal["scope"]
    paths: Annotated[tuple[Glob, ...], Field(min_length=1, max_length=500)]
    range: Range | None = None


class BannedCheck(_Check):
    """Passes when no pattern is found in the files that `paths` name: in a range of commits, in the lines it adds."""

    kind: Literal["banned"]
    patterns: Annotated[tuple[Regex, ...], Field(min_length=1, max_length=200)]
    paths: Annotated[tuple[Glob, ...], Field(min_length=1, max_length=500)] = ("**",)
    range: Range | None = None
    timeout: Timeout = 60


Check: TypeAlias = Annotated[
    CommandCheck | BaselineCheck | GateCheck | ScopeCheck | BannedCheck, Field(discriminator="kind")
]


class ArbiterConfig(Value):
    """The whole file.

    `root` is the folder that every other path starts from and that programs run in, seen from the file's own folder.
    `made_by` is the model that made the artifact, or its family; `human` where none did. `laws` are Markdown files
    with the project's own quality laws, `narrative` a file in which the maker says what was done. `confidence_floor`
    is in 0..1. `rules` says whether an artifact may change the files that it is judged by.
    """

    root: Annotated[Word, Field(min_length=1)] = "."
    artifact: Word | None = None
    made_by: Name | None = None
    laws: Annotated[tuple[Glob, ...], Field(max_length=50)] = ()
    narrative: Glob | None = None
    holistic: Literal["required", "optional"] = "required"
    confidence_floor: UnitInterval = 0.7
    max_calls: Annotated[int, Field(ge=1, le=50)] = 8
    rules: Literal["fixed", "may_change"] = "fixed"
    checks: Annotated[tuple[Check, ...], Field(max_length=50)] = ()

    @model_validator(mode="after")
    def _names_differ(self) -> ArbiterConfig:
        names = [check.name for check in self.checks]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"checks: two are called {min(twice)}")
        return self


class LoadedConfig(Value):
    """A config with where its paths start from. `sha256` covers what it says, not where it lies."""

    config: ArbiterConfig
    file: Path
    root: Path
    sha256: str

    def only(self, names: tuple[str, ...]) -> LoadedConfig:
        """With none but the checks of these names."""
        kept = tuple(check for check in self.config.checks if check.name in names)
        return self.model_copy(update={"config": self.config.model_copy(update={"checks": kept})})

    @property
    def rule_files(self) -> tuple[Path, ...]:
        """Every file that decides how the artifact is judged."""
        named: list[str] = [*self.config.laws]
        for check in self.config.checks:
            if isinstance(check, GateCheck):
                named.append(check.policy)
            elif isinstance(check, BaselineCheck) and check.known_file is not None:
                named.append(check.known_file)
        return (self.file, *(self.root / name for name in named))


def load_config(path: Path) -> LoadedConfig:
    """Read the file; paths in it start from its `root`, by default its folder.

    Raises `ConfigurationError` naming the key that is wrong, also where `root` or a file of laws is not there.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_CONFIG + 1)
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be read: {exc.strerror}") from None
    if len(data) > MAX_CONFIG:
        raise ConfigurationError(f"{path} is larger than {MAX_CONFIG} bytes")
    config = parse_config(data, str(path))
    file = path.resolve()
    digest = sha256_of(canonical_bytes(config.model_dump(mode="json")))
    return LoadedConfig(config=config, file=file, root=_root(config, file, str(path)), sha256=digest)


def _root(config: ArbiterConfig, file: Path, name: str) -> Path:
    root = (file.parent / config.root).resolve()
    if not root.is_dir():
        raise ConfigurationError(f"{name}: root: {root} is no folder")
    for law in config.laws:
        if not (root / law).is_file():
            raise ConfigurationError(f"{name}: laws: there is no file {law} in {root}")
    return root


def parse_config(data: bytes, name: str) -> ArbiterConfig:
    """The config in a TOML text. Raises `ConfigurationError`."""
    try:
        values: Any = tomllib.loads(data.decode())
    except UnicodeDecodeError as exc:
        raise ConfigurationError(f"{name} is not valid UTF-8 at byte {exc.start}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise ConfigurationError(f"{name} is not TOML: {exc}") from None
    try:
        return ArbiterConfig.model_validate(values)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"{name}: {where + ': ' if where else ''}{message}") from None
