"""What judges' adapters share: reading a reply's envelope, and telling the model's doing from the server's."""

from __future__ import annotations

import json
from typing import Any

from adapters.reply import Reply
from layers.errors import DependencyMalformed, NotAVerdict
from layers.model import JsonObject


def read_envelope(reply: Reply) -> JsonObject:
    """The reply's JSON object.

    Raises `DependencyMalformed` for a server that sends no object, and `NotAVerdict` where the envelope is sound JSON
    that only holds characters which strict reading refuses: a model can be talked into writing those, which must not
    open its circuit.
    """
    try:
        value = reply.json()
    except DependencyMalformed as exc:
        if _is_json(reply.body):
            raise NotAVerdict(reply.dependency, "malformed", "the model wrote characters that are not text") from exc
        raise
    if not isinstance(value, dict):
        raise DependencyMalformed(reply.dependency, "malformed", "the reply is not a JSON object")
    return value


def _is_json(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False


def part(reply: Reply, value: Any, key: str, kind: type) -> Any:
    """`value[key]`, which must be of type `kind`. Raises `DependencyMalformed` naming the key."""
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, kind):
        raise DependencyMalformed(reply.dependency, "malformed", f"the reply's `{key}` is missing or of another type")
    return found


def count(value: Any, key: str) -> int | None:
    """A token count, None when it was not reported as one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def no_verdict(reply: Reply, kind: str, message: str, **tokens: int | None) -> NotAVerdict:
    """The server is well and there is nothing to read: `truncated`, `prompt_truncated`, `blocked`, `empty_output`."""
    return NotAVerdict(reply.dependency, kind, message, detail=dict(tokens))
