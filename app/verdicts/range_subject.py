"""A range of commits as an artifact: the two trees it lies between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.verdicts.git import (
    GONE,
    Changed,
    Commits,
    Hunk,
    PatchLine,
    blob,
    changed_files,
    patch,
    resolve,
    why_not_checked_out,
)
from app.verdicts.model import Artifact, ArtifactKind
from app.verdicts.subject import MAX_HUNK, MAX_MATERIAL, TooLarge, count_lines, in_parts, line_of, packed
from app.verdicts.text import shown
from layers.canonical import canonical_bytes, sha256_of
from layers.model import JsonObject

CONTEXT = 6
"""Unchanged lines shown around a change."""
_SUBMODULE = "160000"


@dataclass(frozen=True)
class RangeSubject:
    """What lies between two trees. Build it with `open_range`."""

    commits: Commits
    artifact: Artifact
    changed: tuple[Changed, ...]
    ignored: frozenset[bytes] = frozenset()
    run_id: None = None
    keeps_inside: bool = False
    root: None = None

    async def hash_now(self) -> str:
        """The range may mean other commits by now."""
        return range_hash(await resolve(self.commits.top, self.commits.text))

    async def why_not_in_place(self) -> str | None:
        return await why_not_checked_out(self.commits, self.ignored)

    async def material(self) -> Sequence[JsonObject]:
        files: list[JsonObject] = [
            {"file": shown(one.name), "status": one.status, "mode": one.new_mode} for one in self.changed
        ]
        pieces = [*files, *(piece for hunk in await patch(self.commits, context=CONTEXT) for piece in _pieces(hunk))]
        if sum(len(str(piece)) for piece in pieces) > MAX_MATERIAL:
            raise TooLarge(f"the patch is longer than {MAX_MATERIAL} characters")
        return pieces

    async def holds(self, place: str) -> bool:
        """A changed file, or a line of it as it is now; of a deleted one, as it was."""
        for one in self.changed:
            line = line_of(place, shown(one.name))
            if line == 0 or (line and line <= await self._lines(one)):
                return True
        return False

    async def _lines(self, file: Changed) -> int:
        if _SUBMODULE in (file.old_mode, file.new_mode):
            return 1
        return count_lines(await blob(self.commits, file.old if file.new.startswith(GONE) else file.new))


async def open_range(root: Path, text: str, ignored: frozenset[bytes] = frozenset()) -> RangeSubject:
    """The range as an artifact. Raises `NotRun` for what is none."""
    commits = await resolve(root, text)
    artifact = Artifact(kind=ArtifactKind.RANGE, name=shown(text), sha256=range_hash(commits))
    return RangeSubject(commits, artifact, await changed_files(commits), ignored)


def range_hash(commits: Commits) -> str:
    """Of the trees: neither a commit's time nor its message, nor how it is named, makes it another artifact."""
    trees = {"kind": "git_range", "base": commits.base_tree, "head": commits.head_tree}
    return sha256_of(canonical_bytes({"artifact": 1, **trees}))


def _pieces(hunk: Hunk) -> Iterator[JsonObject]:
    """A hunk as the model sees it, each line with its number in the file as it is now."""
    name = shown(hunk.name)
    if any(b"\0" in line.text for line in hunk.lines):
        yield {"file": name, "binary": True, "bytes": sum(len(line.text) + 1 for line in hunk.lines)}
        return
    for lines in packed((part for line in hunk.lines for part in _shown_line(line)), MAX_HUNK):
        yield {"file": name, "patch": lines}


def _shown_line(line: PatchLine) -> Iterator[str]:
    number = "" if line.sign == "-" else line.number
    for part in in_parts(line.text.decode("utf-8", "replace")):
        yield f"{line.sign}{number} {part}"
