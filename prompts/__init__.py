"""Prompt texts (`NAME.txt`) and what is said about them (`NAME.md`), loaded once and checked against each other."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from layers.canonical import sha256_of
from layers.errors import ConfigurationError
from layers.prompting import Prompt

__all__ = ["Prompt", "load"]

_FOLDER = Path(__file__).parent
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_VERSION = re.compile(r"^Version: (\S+)$", re.MULTILINE)
_HASH = re.compile(r"^SHA-256: (\S+)$", re.MULTILINE)


@cache
def load(name: str, folder: Path = _FOLDER) -> Prompt:
    """The prompt `name`, with the version and the hash that its description states.

    Raises `ConfigurationError` where there is no such prompt, its description has no version, or the text is not the
    one that was described: a prompt is not changed without saying so.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{name!r} is not the name of a prompt")
    try:
        data = (folder / f"{name}.txt").read_bytes().replace(b"\r\n", b"\n")
        description = (folder / f"{name}.md").read_text("utf-8")
    except FileNotFoundError as exc:
        raise ConfigurationError(f"prompt {name}: {Path(str(exc.filename)).name} is missing") from None
    version, stated, actual = _VERSION.search(description), _HASH.search(description), sha256_of(data)
    if version is None or f"\n- {version.group(1)}" not in description:
        raise ConfigurationError(f"prompt {name}: {name}.md must state a Version that its changelog knows")
    if stated is None or stated.group(1) != actual:
        raise ConfigurationError(
            f"prompt {name}: its text has the hash {actual}, which is not the one that {name}.md states for "
            f"version {version.group(1)}; give a changed prompt a new version, a changelog line and its hash"
        )
    return Prompt(name, version.group(1), data.decode("utf-8"), actual)
