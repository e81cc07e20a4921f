"""What every kind of artifact can tell: its hash, what a model is shown of it, and whether a place is in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from app.verdicts.git import Commits
from app.verdicts.model import Artifact
from layers.model import JsonObject

MAX_LINE = 2_000
"""Characters of one line as it is shown; a longer one is shown in several."""
MAX_HUNK = 8_000
"""Characters of one piece of material."""
MAX_MATERIAL = 2_000_000
"""Characters that are shown at all."""


class TooLarge(Exception):
    """There is more than a model can be shown, so nobody could look at the whole."""


class Subject(Protocol):
    """One artifact, at hand. Its methods raise `NotRun` where it can't be read, `ServiceError` where there is none."""

    @property
    def artifact(self) -> Artifact: ...
    @property
    def run_id(self) -> str | None:
        """The run, where it is one."""
        ...

    @property
    def commits(self) -> Commits | None:
        """The range of commits, where it is one."""
        ...

    @property
    def root(self) -> Path | None:
        """The folder or file, where it is one."""
        ...

    @property
    def keeps_inside(self) -> bool:
        """Whether it may be shown to no model outside the operator's machines."""
        ...

    async def hash_now(self) -> str:
        """Its hash as it is at this moment: `artifact.as_it_is`, as long as nothing changed."""
        ...

    async def why_not_in_place(self) -> str | None:
        """Why programs would look at something else than the artifact; None = they would not."""
        ...

    async def material(self) -> Sequence[JsonObject]:
        """All that a model is shown, as JSON values that may be packed together. Raises `TooLarge`."""
        ...

    async def holds(self, place: str) -> bool:
        """Whether there is such a place: `file:line`, `file` for the whole of it, or a record's id."""
        ...


def line_of(place: str, name: str) -> int | None:
    """Which line of the file `name` a place is: 0 for the whole file, None for no place in it."""
    if place == name:
        return 0
    number = place[len(name) + 1 :] if place.startswith(f"{name}:") else ""
    if not (number.isascii() and number.isdigit() and len(number) <= 9):
        return None
    return int(number) or None


def count_lines(data: bytes) -> int:
    """Lines of a file; what follows the last newline is one. An empty file has one to point to."""
    return max(1, data.count(b"\n") + (not data.endswith(b"\n") and bool(data)))


def in_parts(line: str) -> Iterator[str]:
    """A line, in parts where it is long."""
    yield line[:MAX_LINE]
    for start in range(MAX_LINE, len(line), MAX_LINE):
        yield line[start : start + MAX_LINE]


def packed(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """The texts in groups of at most `size` characters; one that is longer alone is a group of its own."""
    group: list[str] = []
    used = 0
    for text in texts:
        if group and used + len(text) > size:
            yield group
            group, used = [], 0
        group.append(text)
        used += len(text)
    if group:
        yield group
