"""What git knows about a range of commits: trees, changed files, the patch. Nothing here trusts a name or a config."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from app.verdicts.process import NotRun, clean_environment, run_program
from app.verdicts.text import shown

TIMEOUT_S = 60.0
MAX_PATCH = 32_000_000
"""Bytes of a patch that are looked at; a larger one is refused, not cut."""

_SAFE = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=true"),
    *("-c", "color.ui=never", "-c", "diff.suppressBlankEmpty=false"),
)
_DIFF = ("-O/dev/null", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none")
_OBJECT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_QUOTED = re.compile(rb'\\([0-7]{3}|[abfnrtv"\\])')
_UNQUOTED = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
GONE = "0" * 40


@dataclass(frozen=True, slots=True)
class Commits:
    """A range, resolved to trees: commits carry times and words, trees only content. `top` is the working tree."""

    text: str
    top: Path
    base_tree: str
    head_tree: str


@dataclass(frozen=True, slots=True)
class Changed:
    """One changed file: its name as bytes, its modes and its content before and after by object id."""

    name: bytes
    status: str
    old_mode: str
    new_mode: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A line of a patch: `+`, `-` or blank; `number` counts in the new file (for `-`, where it stood before)."""

    sign: str
    number: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Hunk:
    """Some lines of one file that changed together."""

    name: bytes
    lines: tuple[PatchLine, ...]


async def git(root: Path, *arguments: str, given: bytes | None = None, limit: int = MAX_PATCH) -> bytes:
    """What git answers. Raises `NotRun` for its errors, and for an answer that is too long."""
    env = clean_environment({"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_LITERAL_PATHSPECS": "1"})
    argv = ("git", *_SAFE, *arguments)
    ended = await run_program(argv, cwd=root, env=env, timeout=TIMEOUT_S, given=given, max_output=limit)
    if ended.code != 0:
        raise NotRun(f"git {arguments[0]} failed: {ended.text[:500].strip()}")
    if ended.cut:
        raise NotRun(f"git {arguments[0]} answered more than {limit} bytes")
    return ended.output


async def resolve(root: Path, text: str) -> Commits:
    """The range `A..B`, or `A...B` from where they parted; an empty side is HEAD. Raises `NotRun`."""
    left, dots, right = re.split(r"(\.{2,3})", text, maxsplit=1) if ".." in text else (text, "", "")
    if not dots or ".." in right or text.startswith("-") or not text.isprintable():
        raise NotRun(f"{shown(text)[:200]} is not a range of commits (A..B)")
    base, head = await _commit(root, left or "HEAD"), await _commit(root, right or "HEAD")
    if dots == "...":
        base = _object(await git(root, "merge-base", base, head))
    top = Path((await git(root, "rev-parse", "--show-toplevel")).decode(errors="surrogateescape").rstrip("\n"))
    return Commits(text, top, await _tree(root, base), await _tree(root, head))


async def _commit(root: Path, name: str) -> str:
    return _object(await git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"))


async def _tree(root: Path, commit: str) -> str:
    return _object(await git(root, "rev-parse", "--verify", "--quiet", f"{commit}^{{tree}}"))


def _object(data: bytes) -> str:
    text = data.decode("ascii", "replace").strip()
    if not _OBJECT.fullmatch(text):
        raise NotRun("git answered no object id")
    return text


async def changed_files(commits: Commits) -> tuple[Changed, ...]:
    """Every file that differs between the two trees; a renamed one is two."""
    trees = (commits.base_tree, commits.head_tree)
    data = await git(commits.top, "diff", "--raw", "-z", "--no-abbrev", *_DIFF, *trees, "--")
    parts = data.split(b"\0")[:-1]
    return tuple(_changed(parts[at], parts[at + 1]) for at in range(0, len(parts), 2))


def _changed(about: bytes, name: bytes) -> Changed:
    old_mode, new_mode, old, new, status = about.decode("ascii").removeprefix(":").split(" ")
    return Changed(name, status[:1], old_mode, new_mode, old, new)


async def patch(commits: Commits, *, context: int) -> tuple[Hunk, ...]:
    """The patch, with all content as text: a file can't hide by being declared binary."""
    shape = (
        "--text",
        f"-U{context}",
        "--src-prefix=a/",
        "--dst-prefix=b/",
        "--submodule=short",
        "--inter-hunk-context=0",
    )
    data = await git(commits.top, "diff", *shape, *_DIFF, commits.base_tree, commits.head_tree, "--")
    return tuple(parse_patch(data))


def parse_patch(data: bytes) -> Iterator[Hunk]:
    """The hunks of a patch. Headers are told from content by counting lines, never by how they look."""
    lines = iter(data.split(b"\n"))
    name = before = b""
    for line in lines:
        if line.startswith(b"--- "):
            before = _name(line[4:], b"a/")
        elif line.startswith(b"+++ "):
            name = _name(line[4:], b"b/") or before
        elif (hunk := _HUNK.match(line)) is not None:
            old, start, new = int(hunk.group(1) or 1), int(hunk.group(2)), int(hunk.group(3) or 1)
            yield Hunk(name, tuple(_hunk_lines(lines, old, start, new)))


def _hunk_lines(lines: Iterator[bytes], old: int, number: int, new: int) -> Iterator[PatchLine]:
    while old > 0 or new > 0:
        line = next(lines, None)
        if line is None:
            return
        sign, text = line[:1], line[1:]
        if sign == b"\\":
            continue
        yield PatchLine(sign.decode("ascii", "replace") or " ", number, text)
        old -= sign != b"+"
        new -= sign != b"-"
        number += sign != b"-"


def _name(text: bytes, prefix: bytes) -> bytes:
    """A file's name out of a header; empty for `/dev/null`. Git appends a tab to names with blanks."""
    text = text.removesuffix(b"\t")
    if text.startswith(b'"') and text.endswith(b'"'):
        text = _QUOTED.sub(lambda match: _unquoted(match.group(1)), text[1:-1])
    return text.removeprefix(prefix) if text.startswith(prefix) else b""


def _unquoted(code: bytes) -> bytes:
    return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else _UNQUOTED.get(code, code)


async def blob(commits: Commits, oid: str) -> bytes:
    """A file's content. Raises `NotRun`."""
    return await git(commits.top, "cat-file", "blob", oid)


async def why_not_checked_out(commits: Commits, ignored: Container[bytes] = ()) -> str | None:
    """Why the working tree is not the range's head, so that programs run there would look at something else.

    `ignored` are absolute paths that do not matter: our own database.
    """
    tree = _object(await git(commits.top, "rev-parse", "--verify", "--quiet", "HEAD^{tree}"))
    if tree != commits.head_tree:
        return "the working tree is not at the head of the range"
    state = await git(commits.top, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
    for entry in state.split(b"\0")[:-1]:
        path = bytes(commits.top) + b"/" + entry[3:]
        if path not in ignored:
            return f"the working tree differs from the head of the range in {shown(entry[3:])[:200]}"
    return None
