"""Cut policy text into pieces of about 500 words that begin and end at paragraphs."""

from __future__ import annotations

import re

WORDS = 500

_PARAGRAPHS = re.compile(r"\n[ \t]*\n\s*")
_HEADING = re.compile(r"#{1,6}\s")


def chunk_markdown(text: str, words: int = WORDS) -> list[str]:
    """Pieces of at most `words` words, in order; no word is lost and none stands twice.

    A heading stays with the paragraph after it. A paragraph that is longer than a piece is cut between words.
    """
    chunks: list[str] = []
    current: list[str] = []
    size = 0
    for block in _blocks(text, words):
        length = len(block.split())
        if current and size + length > words:
            chunks.append("\n\n".join(current))
            current, size = [], 0
        current.append(block)
        size += length
    if current:
        chunks.append("\n\n".join(current))
    return chunks


def _blocks(text: str, words: int) -> list[str]:
    """Paragraphs, headings joined to what follows them, none longer than a piece."""
    joined: list[str] = []
    heading = ""
    for paragraph in _PARAGRAPHS.split(text.replace("\r\n", "\n").strip()):
        block = f"{heading}\n\n{paragraph}".strip()
        if _HEADING.match(paragraph) and "\n" not in paragraph:
            heading = block
        else:
            heading = ""
            joined.append(block)
    if heading:
        joined.append(heading)
    return [piece for block in joined for piece in _cut(block, words) if piece]


def _cut(block: str, words: int) -> list[str]:
    every = block.split()
    if len(every) <= words:
        return [block]
    return [" ".join(every[start : start + words]) for start in range(0, len(every), words)]


def domain_of(source: str) -> str:
    """The first part of a file's name, in lower case: `aml-bsa.md` belongs to `aml`."""
    return re.split(r"[-_. ]", source.rpartition("/")[2].lower(), maxsplit=1)[0]
