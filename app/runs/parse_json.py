"""Cut a JSON dataset of any size into examples, holding one at a time."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import BinaryIO

from app.runs.parsing import MAX_EXAMPLE, Raw, bad, decode

BLOCK = 64 * 1024

_HEAD = re.compile(r'\s*(?:\[|\{\s*"examples"\s*:\s*\[)')
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}"]', re.DOTALL)
_SPACE = re.compile(r"[ \t\r\n]*")


def read_json(file: BinaryIO) -> Iterator[Raw]:
    """Examples of `{"examples": [...]}` or `[...]`, decoded one by one."""
    text = _Window(file)
    head = text.match(_HEAD)
    if head is None:
        raise bad('expected {"examples": [...]} or a list of examples', line=text.line)
    wrapped = "{" in head
    index = 0
    text.skip_space()
    if text.peek() == "]":
        text.take(1)
    else:
        while True:
            yield _element(text, index)
            index += 1
            text.skip_space()
            char = text.take(1)
            if char == "]":
                break
            if char != ",":
                raise bad("expected , or ] after an example", pointer=f"/examples/{index - 1}", line=text.line)
            text.skip_space()
    _end(text, wrapped=wrapped)


def _end(text: _Window, *, wrapped: bool) -> None:
    text.skip_space()
    if wrapped:
        if text.peek() == ",":
            raise bad('a dataset has the one field "examples"', line=text.line)
        if text.take(1) != "}":
            raise bad("expected } after the examples", line=text.line)
        text.skip_space()
    if text.peek():
        raise bad("text after the end of the dataset", line=text.line)


def _element(text: _Window, index: int) -> Raw:
    pointer, line = f"/examples/{index}", text.line
    if text.peek() != "{":
        raise bad("an example must be a JSON object", pointer=pointer, line=line)
    return Raw(decode(text.take_object(pointer), pointer, line), line)


class _Window:
    """The part of a text file that is being looked at; it grows to hold one example and no more."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._ended = False
        self.line = 1

    def _grow(self, size: int = BLOCK) -> bool:
        """Read on; False at the end of the file."""
        if self._ended:
            return False
        data = self._file.read(size)
        self._ended = not data
        try:
            more = self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError:
            raise bad("not valid UTF-8", line=self.line + self._text.count("\n", self._at)) from None
        self._text = self._text[self._at :] + more
        self._at = 0
        return True

    def peek(self) -> str:
        """The next character, empty at the end."""
        while self._at >= len(self._text):
            if not self._grow():
                return ""
        return self._text[self._at]

    def take(self, size: int) -> str:
        self.peek()
        taken = self._text[self._at : self._at + size]
        self._at += size
        self.line += taken.count("\n")
        return taken

    def skip_space(self) -> None:
        while True:
            match = _SPACE.match(self._text, self._at)
            self.take(match.end() - self._at if match else 0)
            if self._at < len(self._text) or not self._grow():
                return

    def match(self, pattern: re.Pattern[str]) -> str | None:
        """What `pattern` matches here, taken; it may span the first block only."""
        self.skip_space()
        while len(self._text) - self._at < BLOCK and self._grow():
            pass
        match = pattern.match(self._text, self._at)
        return self.take(match.end() - self._at) if match else None

    def take_object(self, pointer: str) -> str:
        """The object that begins here, up to its closing bracket."""
        depth, scanned = 0, 0
        while True:
            for match in _STRING_OR_BRACKET.finditer(self._text, self._at + scanned):
                piece = match.group()
                if piece == '"':  # a string that is not through yet
                    break
                scanned = match.end() - self._at
                if piece in "[{":
                    depth += 1
                elif piece in "]}":
                    depth -= 1
                    if depth == 0:
                        return self.take(scanned)
            size = len(self._text) - self._at
            if size > MAX_EXAMPLE:
                raise bad(f"an example has more than {MAX_EXAMPLE} characters", pointer=pointer, line=self.line)
            if not self._grow(max(BLOCK, size)):
                raise bad("the file ends inside an example", pointer=pointer, line=self.line)
