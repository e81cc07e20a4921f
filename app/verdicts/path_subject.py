"""A file or a folder as an artifact: every file in it by name and content."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from app.errors import NotFound, Unprocessable
from app.verdicts.model import Artifact, ArtifactKind
from app.verdicts.process import NotRun
from app.verdicts.subject import MAX_HUNK, MAX_MATERIAL, TooLarge, count_lines, in_parts, line_of, packed
from app.verdicts.text import shown
from layers.canonical import canonical_bytes, sha256_of
from layers.model import JsonObject

MAX_FILES = 100_000
MAX_BYTES = 4_000_000_000
_BLOCK = 1 << 20
_LEFT_OUT = frozenset({b".git", b"__pycache__"})
"""What is no content: git's own files, which hold times and ids, and what Python leaves behind when checks run."""


@dataclass(frozen=True)
class PathSubject:
    """A file or folder. Build it with `open_path`."""

    root: Path
    artifact: Artifact
    ignored: frozenset[bytes] = frozenset()
    run_id: None = None
    keeps_inside: bool = False
    commits: None = None

    async def hash_now(self) -> str:
        return (await asyncio.to_thread(path_hashes, self.root, self.ignored)).exact

    async def why_not_in_place(self) -> str | None:
        return None

    async def material(self) -> Sequence[JsonObject]:
        return await asyncio.to_thread(lambda: list(_material(self.root, self.ignored)))

    async def holds(self, place: str) -> bool:
        return await asyncio.to_thread(_holds, self.root, self.ignored, place)

    def files(self) -> Iterator[tuple[bytes, Path]]:
        """Regular files by their names relative to the root."""
        for name, path, kind in _walk(self.root, self.ignored):
            if stat.S_ISREG(kind):
                yield name, path


async def open_path(root: Path, ignored: frozenset[bytes] = frozenset(), base: Path | None = None) -> PathSubject:
    """The path as an artifact without `ignored`, paths of our own files. It is named as seen from `base`.

    Raises `NotFound`, `Unprocessable`.
    """
    root = await asyncio.to_thread(_found, root)
    content, exact = await asyncio.to_thread(path_hashes, root, ignored)
    artifact = Artifact(kind=ArtifactKind.PATH, name=shown(_label(root, base)), sha256=content, exact_sha256=exact)
    return PathSubject(root, artifact, ignored)


def _label(root: Path, base: Path | None) -> str:
    """Below `base` the way from there, elsewhere its own name: verdicts are read by others than know our folders."""
    start = root if base is None else base.resolve()
    inside = root != start and root.is_relative_to(start)
    return str(root.relative_to(start)) if inside else root.name or str(root)


def _found(root: Path) -> Path:
    if not os.path.lexists(root):
        raise NotFound(f"there is no {shown(str(root))[:300]}")
    return root.resolve()


class PathHashes(NamedTuple):
    """`content` is what a block stands for; `exact` holds executable bits too, and the name of a file judged alone."""

    content: str
    exact: str


def path_hashes(root: Path, ignored: frozenset[bytes] = frozenset()) -> PathHashes:
    """Of every file's kind and content, with its name in the folder. Links are what they say, and are not followed.

    A file that is the artifact itself has no name in its content: a copy under another name is the same.
    """
    content = hashlib.sha256(canonical_bytes({"artifact": 2, "kind": "path"}))
    exact = hashlib.sha256(canonical_bytes({"artifact": 1, "kind": "path"}))
    room, folder = MAX_BYTES, root.is_dir()
    for name, path, mode in _walk(root, ignored):
        digest, size = _content(path, mode)
        if (room := room - size) < 0:
            raise Unprocessable(f"the artifact is larger than {MAX_BYTES} bytes")
        kind = f"{stat.S_IFMT(mode):o}"
        exact.update(f"{len(name)} {kind} {int(bool(mode & 0o100))} {digest} ".encode() + name + b"\n")
        inner = name if folder else b""
        content.update(f"{len(inner)} {kind} {digest} ".encode() + inner + b"\n")
    return PathHashes("sha256:" + content.hexdigest(), "sha256:" + exact.hexdigest())


def _walk(root: Path, ignored: frozenset[bytes]) -> Iterator[tuple[bytes, Path, int]]:
    """Name, path and mode of all that is there, in the order of names as bytes."""
    mode = root.lstat().st_mode
    if not stat.S_ISDIR(mode):
        yield os.fsencode(root.name), root, mode
        return
    found: list[tuple[bytes, Path, int]] = []
    for folder, folders, files in os.walk(os.fsencode(root), onerror=_unreadable):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]  # noqa: PTH114, PTH118 - bytes
        for name in (*files, *links):
            path = os.path.join(folder, name)  # noqa: PTH118 - bytes
            if path not in ignored:
                found.append(
                    (os.path.relpath(path, os.fsencode(root)), Path(os.fsdecode(path)), os.lstat(path).st_mode)
                )
        if len(found) > MAX_FILES:
            raise Unprocessable(f"the artifact has more than {MAX_FILES} files")
    yield from sorted(found)


def _unreadable(exc: OSError) -> None:
    raise NotRun(f"a folder of the artifact cannot be read: {exc.strerror}")


def _content(path: Path, mode: int) -> tuple[str, int]:
    if stat.S_ISLNK(mode):
        return hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest(), 0  # noqa: PTH115 - the target as it is written
    if not stat.S_ISREG(mode):
        return "-", 0
    digest, size = hashlib.sha256(), 0
    for block in _blocks(path):
        digest.update(block)
        size += len(block)
    return digest.hexdigest(), size


def _blocks(path: Path) -> Iterator[bytes]:
    try:
        # A file may have become a link or a pipe since it was looked at.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", 0) as file:
            while block := file.read(_BLOCK):
                yield block
    except OSError as exc:
        raise NotRun(f"{shown(str(path))[:300]} cannot be read: {exc.strerror}") from None


def _material(root: Path, ignored: frozenset[bytes]) -> Iterator[JsonObject]:
    room = MAX_MATERIAL
    for name, path, mode in _walk(root, ignored):
        if not stat.S_ISREG(mode):
            yield {"file": shown(name), "is": oct(stat.S_IFMT(mode))}
            continue
        if (room := room - path.lstat().st_size) < 0:
            raise TooLarge(f"the files are larger than {MAX_MATERIAL} bytes")
        data = b"".join(_blocks(path))
        if b"\0" in data:
            yield {"file": shown(name), "bytes": len(data), "sha256": sha256_of(data)}
        else:
            yield from _text_pieces(shown(name), data.decode("utf-8", "replace"))


def _text_pieces(name: str, text: str) -> Iterator[JsonObject]:
    parts = (f"{number} {part}" for number, line in enumerate(text.split("\n"), 1) for part in in_parts(line))
    for lines in packed(parts, MAX_HUNK):
        yield {"file": name, "lines": lines}


def _holds(root: Path, ignored: frozenset[bytes], place: str) -> bool:
    for name, path, mode in _walk(root, ignored):
        line = line_of(place, shown(name))
        if line == 0 or (line and stat.S_ISREG(mode) and line <= count_lines(b"".join(_blocks(path)))):
            return True
    return False
