"""Prompts as values, and how untrusted text is put into them without ever becoming an instruction."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from layers.canonical import canonical_bytes, sha256_of
from layers.errors import ConfigurationError
from layers.model import PromptRef

_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}")
_TOKEN_IN_KEY = "token"  # noqa: S105 - what the random token counts as when prompts are compared
_SURROGATE = re.compile("[\ud800-\udfff]")
_RISKY = re.compile(
    "[<>`\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uff1c\uff1e\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    r"|\[(?=/?[A-Z])"
)
"""What could pass for a delimiter, a chat template's control token or an invisible instruction. All of it can stand
only inside strings of a JSON text (`[` before a capital letter too), so it can be written as an escape."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's text with `{{placeholders}}`; `sha256` is the hash of exactly this text."""

    name: str
    version: str
    text: str
    sha256: str

    @property
    def ref(self) -> PromptRef:
        """How results name it."""
        return PromptRef(name=self.name, version=self.version, sha256=self.sha256)


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """What a model is sent. `key` identifies the question: it is the same for every fresh delimiter token."""

    prompt: Prompt
    text: str
    token: str
    key: str


def render(
    prompt: Prompt, values: Mapping[str, str], *, new_token: Callable[[], str] = lambda: secrets.token_hex(8)
) -> RenderedPrompt:
    """Put `values` in place of the placeholders, literally and once: nothing inside a value is replaced.

    `{{token}}` becomes a random word, drawn afresh, that stands in no value: whoever wrote the values can't have known
    it. Raises `ConfigurationError` when the placeholders and the values are not the same set.
    """
    names = set(_PLACEHOLDER.findall(prompt.text)) - {"token"}
    if names != set(values):
        odd = ", ".join(sorted(names ^ set(values)))
        raise ConfigurationError(f"prompt {prompt.name} {prompt.version}: placeholders and values differ in {odd}")
    token = new_token()
    while any(token in value for value in values.values()):
        token = new_token()
    key = sha256_of(_fill(prompt.text, {**values, "token": _TOKEN_IN_KEY}).encode("utf-8", "replace"))
    return RenderedPrompt(prompt, _fill(prompt.text, {**values, "token": token}), token, key)


def _fill(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values[match.group(1)], text)


def quoted(value: Any) -> str:
    """An untrusted JSON-ready value as one line of canonical JSON, in which nothing can act as anything but data.

    Lossless but for lone surrogates, which become U+FFFD: delimiters, control tokens and invisible characters are
    written as `\\u` escapes. Raises `ValueError` for what JSON can't carry (NaN, cycles).
    """
    text = canonical_bytes(_without_surrogates(value)).decode()
    return _RISKY.sub(lambda match: _escaped(match.group()), text)


def quoted_lines(values: Iterable[Any]) -> str:
    """Untrusted values, one `quoted` line each."""
    return "\n".join(quoted(value) for value in values)


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return _SURROGATE.sub("\ufffd", value)
        case dict():
            return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [_without_surrogates(item) for item in value]
        case _:
            return value
