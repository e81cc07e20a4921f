"""A project's quality laws, numbered by code so that a model can only point to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from layers.model import Value

MAX_LAWS = 200
MAX_LAW = 1_000
"""Characters of one law."""
MAX_TEXT = 20_000
"""Characters of all laws: they stand in every question."""

_ITEM = re.compile(r"\s{0,3}(?:[-*+]|\d{1,3}[.)])\s+")
_HEADING = re.compile(r"#{1,6}\s+(.*)")


class LawsTooLong(Exception):
    """The laws do not fit into a question."""


class Law(Value):
    """One law. `id` is what a finding names."""

    id: str
    text: str
    source: str | None = None


ASPECTS = (
    Law(id="architecture", text="Each thing is in its place and depends only on what it may depend on."),
    Law(id="correctness", text="It does what it must, also for odd, empty, huge and hostile input."),
    Law(id="coherence", text="Code, tests, documentation and names say the same."),
    Law(id="scope", text="It does what was asked, and no more."),
)
"""Laws that hold for every project."""


def number_laws(documents: Iterable[tuple[str, str]]) -> tuple[Law, ...]:
    """The aspects, then each list item and paragraph of the documents (name, Markdown) as `L1`, `L2`, ...

    Raises `LawsTooLong`.
    """
    laws = list(ASPECTS)
    for source, text in documents:
        for block in _blocks(text):
            if len(block) > MAX_LAW:
                raise LawsTooLong(f"a law in {source} is longer than {MAX_LAW} characters")
            laws.append(Law(id=f"L{len(laws) - len(ASPECTS) + 1}", text=block, source=source))
    if len(laws) > MAX_LAWS + len(ASPECTS) or sum(len(law.text) for law in laws) > MAX_TEXT:
        raise LawsTooLong(f"there are more than {MAX_LAWS} laws, or {MAX_TEXT} characters of them")
    return tuple(laws)


def _blocks(text: str) -> Iterator[str]:
    """List items and paragraphs, each under its heading."""
    heading, lines = "", [""]
    for line in [*text.splitlines(), ""]:
        title = _HEADING.fullmatch(line.strip())
        if title or not line.strip() or _ITEM.match(line):
            if (block := " ".join(filter(None, lines))) != "":
                yield f"{heading}: {block}" if heading else block
            lines = [""]
        if title:
            heading = title.group(1).strip()
        else:
            lines.append(_ITEM.sub("", line).strip())
