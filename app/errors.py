"""What the service tells its callers when it can't do what they asked; HTTP statuses are one table elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field. `pointer` is a JSON Pointer into the body; empty = the whole body."""

    pointer: str
    message: str


class ServiceError(Exception):
    """A refusal with a sentence for the caller. `detail` is safe to show: it never holds a secret."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(detail)


class NotFound(ServiceError):
    """There is no such thing (any more)."""


class Conflict(ServiceError):
    """The request contradicts what is stored or going on."""


class Blocked(Conflict):
    """The arbiter blocked what the request is about. `verdict` is the block, JSON-ready."""

    def __init__(self, detail: str, verdict: dict[str, Any]) -> None:
        super().__init__(detail)
        self.verdict = verdict


class BadRequest(ServiceError):
    """The request can't be read: not JSON, undecodable bytes, a bad cursor or query parameter."""


class Unprocessable(ServiceError):
    """The request can be read and does not make sense. `errors` names each field."""

    def __init__(self, detail: str, errors: Iterable[FieldError] = ()) -> None:
        super().__init__(detail)
        self.errors = tuple(errors)


class TooLarge(ServiceError):
    """The body is over the route's limit."""


class UnsupportedMedia(ServiceError):
    """A content type that the route does not read."""


class NotAcceptable(ServiceError):
    """The caller accepts none of the media types that the route writes."""


class Unauthorized(ServiceError):
    """No key, or one that is not known."""


class Forbidden(ServiceError):
    """The key's scopes do not reach that far."""


class Overloaded(ServiceError):
    """Too much is in flight. `retry_after` is in seconds."""

    def __init__(self, detail: str = "too much work is in flight", *, retry_after: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class Unavailable(ServiceError):
    """A part that the request can't do without is out of reach. `retry_after` is in seconds, None = unknown."""

    def __init__(self, detail: str, *, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class TooSlow(ServiceError):
    """The rest of the body did not come in time."""


class TimedOut(ServiceError):
    """The request's deadline passed before there was an answer."""
