"""Take secrets out of what will be stored: known ones, such as look like one, and values whose name says so."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

MARK = "***"
"""What stands where a secret was. No longer than any secret, so that a text never grows."""

MAX_LEVELS = 6
"""How often a text is unescaped: JSON inside JSON inside a URL is three."""

_SHORTEST_KNOWN = 6
_NAMES = (
    "password passwd pwd passphrase secret secretkey token apikey accesskey privatekey authorization credential "
    "credentials cookie clientsecret connectionstring"
)
_SENSITIVE = tuple(_NAMES.split())
_NAME = (
    r"(?:password|passwd|pwd|passphrase|secret(?:[_\- ]?key)?|token|api[_\- ]?key|access[_\- ]?key|private[_\- ]?key"
    r"|authorization|credentials?|cookie)"
)
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
        r"\b(?:sk|rk|pk)-[A-Za-z0-9_-]{16,}",
        r"\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{8,}",
        r"\bgh[pousr]_[A-Za-z0-9]{16,}",
        r"\bgithub_pat_[A-Za-z0-9_]{16,}",
        r"\bglpat-[A-Za-z0-9_-]{16,}",
        r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
        r"\b(?:hf|npm)_[A-Za-z0-9]{20,}",
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"\bAIza[0-9A-Za-z_-]{30,}",
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
        r"(?i:\b(?:bearer|basic)\s{1,4})(?P<secret>(?=[A-Za-z._~+/=-]{0,200}[0-9])[A-Za-z0-9._~+/=-]{8,})",
        r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/@:]{0,100}:(?P<secret>[^\s/@]{3,200})@",
        rf"(?i:{_NAME})[\"'\\]{{0,8}}\s{{0,4}}(?:=>|[:=])\s{{0,4}}[\"'](?P<secret>[^\"'\n]{{3,500}})[\"']",
        rf"(?i:{_NAME})[\"'\\]{{0,8}}\s{{0,4}}(?:=>|[:=])\s{{0,4}}[\"'\\]{{0,8}}"
        r"(?P<secret>(?:(?i:bearer|basic|token)\s{1,4})?[^\s\"'\\,;}&<>]{4,})",
    )
)
_ESCAPE = re.compile(
    r"\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\[\\\"'/bfnrt]|%[0-9a-fA-F]{2}|&#[0-9]{1,6};|&#[xX][0-9a-fA-F]{1,5};"
    r"|&(?:amp|quot|apos|lt|gt);"
)
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ENTITIES = {"amp": "&", "quot": '"', "apos": "'", "lt": "<", "gt": ">"}


@dataclass(frozen=True, slots=True)
class _View:
    """A text unescaped some times, with the place in the original from and to which each character stands."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]


class Scrubber:
    """Replaces secrets by `MARK`. `secrets` are known values (keys that the service holds); short ones are ignored.

    Scrubbing twice changes nothing more. What merely looks like a secret goes too: a lost word is the cheaper mistake.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {secret for secret in secrets if len(secret) >= _SHORTEST_KNOWN}
        encoded = {base64.b64encode(secret.encode()).decode().rstrip("=") for secret in known}
        self._known = tuple(sorted(known | encoded, key=lambda secret: (-len(secret), secret)))

    def text(self, text: str) -> str:
        """The text without secrets, escaped ones included."""
        for _ in range(3):  # what is left of two secrets that stood side by side may look like a third
            spans = sorted(self._spans(text))
            if not spans or (scrubbed := _replace(text, spans)) == text:
                break
            text = scrubbed
        return text

    def value(self, value: Any) -> Any:
        """A JSON-ready value without secrets, in keys and values at any depth."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(key): self._named(key, item) for key, item in value.items()}
            case list() | tuple():
                return [self.value(item) for item in value]
            case _:
                return value

    def _named(self, name: str, value: Any) -> Any:
        plain = re.sub(r"[^a-z]", "", name.lower())
        if plain.endswith(_SENSITIVE) and value is not None and not isinstance(value, bool):
            return MARK
        return self.value(value)

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        for view in _views(text):
            for secret in self._known:
                at = view.text.find(secret)
                while at >= 0:
                    yield view.starts[at], view.ends[at + len(secret) - 1]
                    at = view.text.find(secret, at + 1)
            for pattern in _PATTERNS:
                name = "secret" if "secret" in pattern.groupindex else 0
                for match in pattern.finditer(view.text):
                    start, end = match.span(name)
                    yield view.starts[start], view.ends[end - 1]


def _views(text: str) -> Iterator[_View]:
    view = _View(text, range(len(text)), range(1, len(text) + 1))
    for _ in range(MAX_LEVELS):
        yield view
        plainer = _unescaped(view)
        if plainer is None:
            return
        view = plainer


def _unescaped(view: _View) -> _View | None:
    """The view with every escape sequence resolved once; None without any."""
    if not any(sign in view.text for sign in "\\%&"):
        return None
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    done = 0
    for match in _ESCAPE.finditer(view.text):
        start, end = match.span()
        parts += (view.text[done:start], _char(match.group()))
        starts += (*view.starts[done:start], view.starts[start])
        ends += (*view.ends[done:start], view.ends[end - 1])
        done = end
    if not parts:
        return None
    parts.append(view.text[done:])
    starts += view.starts[done:]
    ends += view.ends[done:]
    return _View("".join(parts), starts, ends)


def _char(escape: str) -> str:
    if escape[0] == "%":
        return chr(int(escape[1:], 16))
    if escape[0] == "\\":
        return chr(int(escape[2:], 16)) if escape[1] in "ux" else _SHORT.get(escape[1], escape[1])
    name = escape[1:-1]
    if name[0] != "#":
        return _ENTITIES[name]
    code = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
    return chr(code) if code <= 0x10FFFF else "?"


def _replace(text: str, spans: Sequence[tuple[int, int]]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in spans:
        if end <= done:
            continue
        if start >= done:
            parts += (text[done:start], MARK)
        done = end  # one that overlaps the last goes into the same mark
    return "".join([*parts, text[done:]])
