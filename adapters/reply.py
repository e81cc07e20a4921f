"""What a remote answered: status, headers and a bounded body, read as strict JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from layers import strict_json
from layers.errors import DependencyMalformed


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole reply. Header names are lower-case; `body` is decoded from any `Content-Encoding`."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    dependency: str = "remote"

    @property
    def media_type(self) -> str:
        """`Content-Type` in lower case, without parameters; empty when there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def json(self) -> Any:
        """The body as JSON. Raises `DependencyMalformed` for anything that strict JSON refuses."""
        try:
            return strict_json.loads(self.body)
        except strict_json.StrictJsonError as exc:
            raise DependencyMalformed(
                self.dependency, "malformed", f"HTTP {self.status} with a body that is not acceptable JSON: {exc}"
            ) from exc
