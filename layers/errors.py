"""How a dependency can fail, in the words every layer, adapter and run shares."""

from __future__ import annotations

from typing import Any, ClassVar


class DependencyError(Exception):
    """A remote system gave no usable answer.

    `kind` is a stable, lower-case cause (`timeout`, `refused`, `rate_limited`, `server_error`, `circuit_open`,
    `rejected`, `malformed`, `not_a_label`, `truncated`, `empty_output`, `blocked`, `tool_failed`, `duplicate`, ...).
    `message` is safe to show: it never holds a secret or a URL with credentials.
    `detail` keeps what the remote said beside that, as JSON-ready values.
    """

    retryable: ClassVar[bool] = False
    """Whether the same call may be sent again."""
    counts: ClassVar[bool] = False
    """Whether it is evidence that the dependency is sick (the circuit breaker counts it)."""

    def __init__(
        self,
        dependency: str,
        kind: str,
        message: str = "",
        *,
        retry_after: float | None = None,
        detail: dict[str, Any] | None = None,
    ) -> None:
        self.dependency = dependency
        self.kind = kind
        self.message = message or kind
        self.retry_after = retry_after
        self.detail = detail or {}
        super().__init__(f"{dependency}: {self.message}")


class DependencyUnavailable(DependencyError):
    """Refused, timed out, throttled (429) or a 5xx. `retry_after` is in seconds, when the remote named it."""

    retryable = True
    counts = True


class CircuitOpen(DependencyError):
    """Not tried: the breaker is open. `retry_after` is the time until it will admit a probe, in seconds."""

    def __init__(self, dependency: str, retry_after: float | None = None) -> None:
        super().__init__(dependency, "circuit_open", "not tried: its circuit is open", retry_after=retry_after)


class DependencyRejected(DependencyError):
    """A 4xx other than 429: the request was ours to get right, so it says nothing about the remote's health."""


class DependencyMalformed(DependencyError):
    """A 2xx that breaks its promise: not JSON, wrong shape, half a body. A server that sends garbage is sick."""

    counts = True


class VerdictNotOffered(DependencyMalformed):
    """A well-formed reply whose verdict was not among those offered: the model's doing, not the server's."""

    counts = False


class Withdrawn(DependencyError):
    """Whoever asked no longer wants to know, and the question had not been sent yet."""

    def __init__(self, dependency: str) -> None:
        super().__init__(dependency, "withdrawn", "not sent: it was taken back before its turn came")


class NotAVerdict(DependencyError):
    """The remote answered, and said that it judged nothing (Sentinel's `duplicate` / `skipped`)."""


class ToolFailed(DependencyError):
    """An MCP tool answered `isError`: not tried again, counted against the breaker of the driver that ran it."""

    counts = True


class ConfigurationError(Exception):
    """Settings, a profile or a remote's properties do not fit together. The message says what to change."""
