"""Which media type to write, by the caller's `Accept` header (RFC 9110, section 12.5.1)."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import Scope

from app.errors import NotAcceptable


def negotiate(scope: Scope, offered: Sequence[str]) -> str:
    """The offered type the caller likes best; the first offered one decides a tie, and speaks when nothing is asked.

    Raises `NotAcceptable` when the caller takes none of them.
    """
    given = b",".join(value for name, value in scope["headers"] if name == b"accept").decode("latin-1").lower()
    if not given.strip():
        return offered[0]
    ranges = [_range(part) for part in given.split(",") if part.strip()]
    best = max(offered, key=lambda name: _quality(name, ranges))
    if _quality(best, ranges) <= 0:
        raise NotAcceptable(f"this can be written as {', '.join(offered)}")
    return best


def _range(text: str) -> tuple[str, float]:
    name, *parameters = (part.strip() for part in text.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            return name, _weight(parameter[2:])
    return name, 1.0


def _weight(text: str) -> float:
    """A weight in 0..1; what is none counts as 0."""
    whole, _, fraction = text.partition(".")
    if whole not in {"0", "1"} or not (fraction.isascii() and (fraction.isdigit() or not fraction)):
        return 0.0
    return min(float(text), 1.0)


def _quality(name: str, ranges: Sequence[tuple[str, float]]) -> float:
    """The weight of the most specific range that covers `name`."""
    for pattern in (name, name.split("/", maxsplit=1)[0] + "/*", "*/*"):
        weights = [weight for given, weight in ranges if given == pattern]
        if weights:
            return max(weights)
    return 0.0
