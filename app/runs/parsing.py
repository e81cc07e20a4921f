"""What the readers of dataset files share, and the simplest of them: NDJSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from app.errors import FieldError, Unprocessable
from layers.strict_json import DEFAULT_MAX_DEPTH, StrictJsonError, loads

MAX_EXAMPLE = 8_000_000
"""Characters one example may have; more is a file that is no dataset."""


class DatasetError(Unprocessable):
    """The dataset can't be used. `errors` point at the examples concerned."""


@dataclass(frozen=True, slots=True)
class Raw:
    """One example as it stands in the file, not validated. `line` counts from 1, None = unknown."""

    value: Any
    line: int | None


def bad(message: str, *, pointer: str = "", line: int | None = None) -> DatasetError:
    """A refusal that names the place for programs (pointer) and for people (line)."""
    where = f"line {line}: " if line is not None else ""
    return DatasetError(f"{where}{message}", [FieldError(pointer, f"{where}{message}")])


def decode(text: str | bytes, pointer: str, line: int, *, max_depth: int = DEFAULT_MAX_DEPTH) -> Any:
    """Strict JSON, with refusals that name the example (`pointer`) and the line."""
    try:
        return loads(text, max_depth=max_depth)
    except StrictJsonError as exc:
        at = line + (exc.line - 1 if exc.line else 0)
        raise bad(exc.message, pointer=pointer + (exc.pointer or ""), line=at) from None


def read_ndjson(file: BinaryIO) -> Iterator[Raw]:
    """One example per line; blank lines are passed over."""
    index, line = 0, 0
    while data := file.readline(MAX_EXAMPLE + 1):
        line += 1
        pointer = f"/examples/{index}"
        if len(data) > MAX_EXAMPLE:
            raise bad(f"an example has more than {MAX_EXAMPLE} bytes", pointer=pointer, line=line)
        if not data.strip(b" \t\r\n\xef\xbb\xbf"):
            continue
        value = decode(data, pointer, line)
        if not isinstance(value, dict):
            raise bad("an example must be a JSON object", pointer=pointer, line=line)
        yield Raw(value, line)
        index += 1
