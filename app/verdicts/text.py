"""Text of others as it may stand in a record: scrubbed of secrets, without control characters, and bounded."""

from __future__ import annotations

import os
import re

from app.verdicts.model import MAX_DETAIL
from layers.scrubbing import Scrubber

_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
CUT = "[...]"


def shown(name: bytes | str) -> str:
    """A file name as text that can be stored and printed; bytes that are no UTF-8, and controls, as escapes."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return re.sub(_UNSHOWABLE, lambda match: _escape(match.group()), text.replace("\n", "\\n").replace("\t", "\\t"))


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) > 0xFF else f"\\x{ord(char):02x}"


def clean(text: str, scrubber: Scrubber, limit: int = MAX_DETAIL) -> str:
    """A text of others, scrubbed first, then shortened in its middle: what a program says last matters most."""
    text = _UNSHOWABLE.sub("\ufffd", scrubber.text(text.replace("\r\n", "\n")))
    if len(text) <= limit:
        return text
    head = limit // 4
    return text[:head] + f"\n{CUT}\n" + text[len(text) - (limit - head - len(CUT) - 2) :]
