"""Which systems there are: profiles from TOML files, and plugins found by entry point."""

from __future__ import annotations

import difflib
import importlib.metadata
import inspect
import math
import re
import tomllib
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from layers.errors import ConfigurationError
from layers.ports import System
from layers.profile import SystemProfile

ENTRY_POINT_GROUP = "arbiter_l8.systems"
"""Where third-party systems announce themselves: `name = "package.module:factory"`."""

_PROFILES = Path(__file__).parent / "profiles"
_OWN_KEYS = frozenset({"extends", "replace"})

T = TypeVar("T")


# --- profiles ---------------------------------------------------------------------------------------------------------


def load_profiles(extra: Path | None = None) -> dict[str, SystemProfile]:
    """The built-in profiles (`sentinel-l7`, `synapse-l4`, `generic`) and, on top, those of the TOML file `extra`.

    A table `[systems.NAME]` holds the fields of `SystemProfile`. `extends = "OTHER"` starts from another profile, keys
    given here win. A name that is already there is refused unless the table says `replace = true`.
    Raises `ConfigurationError` naming file, key and problem.
    """
    profiles: dict[str, SystemProfile] = {}
    for path in sorted(_PROFILES.glob("*.toml")):
        _add(profiles, path)
    if extra is not None:
        _add(profiles, extra)
    return profiles


def _add(profiles: dict[str, SystemProfile], path: Path) -> None:
    for name, table in _read(path).items():
        where = f"{path}: systems.{name}"
        if not isinstance(table, dict):
            raise ConfigurationError(f"{where}: must be a table [systems.{name}]")
        if name in profiles and table.get("replace") is not True:
            raise ConfigurationError(
                f"{where}.replace: a profile of that name exists already; set `replace = true` to put this in its place"
            )
        profiles[name] = _profile(name, table, profiles, where)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigurationError(f"{path}: can't be read: {exc.strerror or type(exc).__name__}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigurationError(f"{path}: not valid UTF-8 at byte {exc.start}") from exc
    except tomllib.TOMLDecodeError as exc:
        raise ConfigurationError(f"{path}: not valid TOML: {exc}") from exc
    except RecursionError as exc:
        raise ConfigurationError(f"{path}: nested too deep") from exc
    for key in document:
        if key != "systems":
            raise ConfigurationError(f"{path}: {key}: unknown key; profiles are tables [systems.NAME]")
    systems = document.get("systems")
    if not isinstance(systems, dict) or not systems:
        raise ConfigurationError(f"{path}: systems: there must be at least one table [systems.NAME]")
    return systems


def _profile(name: str, table: dict[str, Any], known: Mapping[str, SystemProfile], where: str) -> SystemProfile:
    base: dict[str, Any] = {}
    if (parent := table.get("extends")) is not None:
        if not isinstance(parent, str) or parent not in known:
            raise ConfigurationError(f"{where}.extends: no profile {parent!r}; there are {', '.join(sorted(known))}")
        base = known[parent].model_dump(exclude_unset=True)
    own = {key: value for key, value in table.items() if key not in _OWN_KEYS}
    _refuse_not_finite(own, where)
    try:
        return SystemProfile.model_validate({**_merged(base, own), "name": name})
    except ValidationError as exc:
        raise ConfigurationError("; ".join(_explain(error, where) for error in exc.errors())) from None


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """`own` on top of `base`: tables key by key, everything else as a whole."""
    result = dict(base)
    for key, value in own.items():
        below = result.get(key)
        result[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def _refuse_not_finite(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_not_finite(item, f"{where}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_not_finite(item, f"{where}.{index}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigurationError(f"{where}: must be a finite number")


def _explain(error: Any, where: str) -> str:
    path = ".".join(str(part) for part in error["loc"])
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        message = "unknown key"
        close = difflib.get_close_matches(str(error["loc"][-1]), SystemProfile.model_fields, n=1)
        if len(error["loc"]) == 1 and close:
            message += f"; did you mean {close[0]}?"
    return f"{where}.{path}: {message}" if path else f"{where}: {message}"


# --- plugins ----------------------------------------------------------------------------------------------------------


class SystemClient(Protocol):
    """The service's own client of one remote: time-outs, retries, slots, breaker, error translation.

    `read` turns the reply (`status`, `headers`, `body`, `media_type`, `json()`) into a value and runs inside the
    breaker. Statuses in `expect` reach `read`; every other failure is raised as `DependencyError`. A call that is not
    `repeatable` is never sent twice once the remote may have worked on it.
    """

    async def call(
        self,
        method: str,
        url: str,
        *,
        read: Callable[[Any], T],
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        expect: Container[int] = (),
        deadline: float | None = None,
        repeatable: bool = True,
    ) -> T: ...


@dataclass(frozen=True)
class AtBase:
    """A `SystemClient` whose addresses are paths below one base address."""

    inner: SystemClient
    base_url: str

    async def call(
        self,
        method: str,
        url: str,
        *,
        read: Callable[[Any], T],
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        expect: Container[int] = (),
        deadline: float | None = None,
        repeatable: bool = True,
    ) -> T:
        """Call `url`, a path such as `/classify`, below the base address."""
        return await self.inner.call(
            method,
            f"{self.base_url.rstrip('/')}/{url.lstrip('/')}",
            read=read,
            json=json,
            headers=headers,
            expect=expect,
            deadline=deadline,
            repeatable=repeatable,
        )


@dataclass(frozen=True)
class SystemContext:
    """What a plugin is given at start: the environment, and clients of the remotes it needs.

    `connect` makes the client (and the breaker) of a remote by name. The registry of breakers is fixed once all plugins
    were called, so clients are asked for in the factory and never later.
    """

    environ: Mapping[str, str]
    connect: Callable[[str], SystemClient]

    def client(self, name: str, base_url: str) -> SystemClient:
        """The client of the remote `name`; calls take paths below `base_url`. `name` is what `/breakers` shows."""
        if not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", base_url):
            raise ConfigurationError(f"{name}: its base address must be http:// or https:// without credentials")
        return AtBase(self.connect(name), base_url)


class SystemPlugin(Protocol):
    """The value of an entry point: build one system. Raises `ConfigurationError` when something is not set."""

    def __call__(self, context: SystemContext) -> System: ...


def load_plugins(
    context: SystemContext,
    entry_points: Iterable[importlib.metadata.EntryPoint] | None = None,
    *,
    reserved: Container[str] = (),
) -> dict[str, System]:
    """The third-party systems, by their profile's name.

    Raises `ConfigurationError` naming the plugin when one can't be imported, fails, returns something else than a
    `System`, or takes a name that is `reserved` or taken already.
    """
    found = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP) if entry_points is None else entry_points
    systems: dict[str, System] = {}
    for entry in sorted(found, key=lambda point: point.name):
        system = _build(entry, context)
        name = system.profile.name
        if name in reserved or name in systems:
            raise ConfigurationError(f"system plugin {entry.name} ({entry.value}): the name {name!r} is taken")
        systems[name] = system
    return systems


def _build(entry: importlib.metadata.EntryPoint, context: SystemContext) -> System:
    where = f"system plugin {entry.name} ({entry.value})"
    try:
        system = entry.load()(context)
    except ConfigurationError as exc:
        raise ConfigurationError(f"{where}: {exc}") from exc
    except Exception as exc:
        raise ConfigurationError(f"{where}: {type(exc).__name__}: {exc}") from exc
    if inspect.iscoroutine(system):
        system.close()
        raise ConfigurationError(f"{where}: the factory must be a plain function, not async")
    if not isinstance(system, System):
        raise ConfigurationError(f"{where}: must return a System, not {type(system).__name__}")
    return system
