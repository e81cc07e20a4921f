"""A snapshot as lines: one fact on each, in a fixed order, and a last line that seals them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, ValidationError

from app.adjudication.model import (
    AdjudicationRecord,
    Assertion,
    Digest,
    Evidence,
    Hypothesis,
    StoredRun,
    Transition,
)
from app.adjudication.rules import sealed
from app.adjudication.synthesis_model import SynthesisRecord
from app.errors import Unprocessable
from layers.canonical import canonical_bytes, sha256_of
from layers.model import Value
from layers.scrubbing import Scrubber
from layers.strict_json import StrictJsonError, loads

FORMAT: Literal["arbiter-l8 adjudication 1"] = "arbiter-l8 adjudication 1"


class EndedRun(Value):
    """A run and when it ended; null = it had not."""

    run: StoredRun
    n_pairs: int = Field(ge=1)
    finished_at: str | None


KINDS: Mapping[str, type[Value]] = {
    "evidence": Evidence,
    "hypothesis": Hypothesis,
    "assertion": Assertion,
    "run": EndedRun,
    "adjudication": AdjudicationRecord,
    "transition": Transition,
    "synthesis": SynthesisRecord,
}
"""Every kind of line, in the order in which they stand."""


class End(Value):
    """The last line: how many lines there are of each kind, the hash of all before it, and its seal."""

    format: Literal["arbiter-l8 adjudication 1"]
    counts: dict[str, int]
    sha256: Digest
    hmac: Digest | None


class SnapshotRefused(Unprocessable):
    """A snapshot that is not whole, not what it says, or not what follows from it. Nothing of it was stored."""


@dataclass(frozen=True)
class Facts:
    """What a snapshot holds, by kind, in order."""

    by_kind: Mapping[str, Sequence[Any]]

    def __getitem__(self, kind: str) -> Sequence[Any]:
        return self.by_kind[kind]


def write(facts: Mapping[str, Iterable[bytes]], key: bytes | None) -> list[bytes]:
    """The lines of a snapshot from stored bytes by kind; `key` seals it."""
    lines = [_line(kind, record) for kind in KINDS for record in facts[kind]]
    counts = dict.fromkeys(KINDS, 0)
    for kind in KINDS:
        counts[kind] = sum(1 for _ in facts[kind])
    return [*lines, _line("end", sealed(_end(lines, counts, key)))]


def _line(kind: str, record: bytes) -> bytes:
    return b'{"kind":"' + kind.encode() + b'","value":' + record + b"}\n"


def _end(lines: Sequence[bytes], counts: dict[str, int], key: bytes | None) -> End:
    data = b"".join(lines)
    return End(format=FORMAT, counts=counts, sha256=sha256_of(data), hmac=None if key is None else _seal(data, key))


def _seal(data: bytes, key: bytes) -> str:
    return "sha256:" + hmac.new(key, FORMAT.encode() + b"\n" + data, hashlib.sha256).hexdigest()


def read(data: bytes, key: bytes | None, scrubber: Scrubber) -> Facts:
    """The facts of a snapshot whose form is right to the byte. Raises `SnapshotRefused` naming the line."""
    if not data.endswith(b"\n"):
        raise SnapshotRefused("the snapshot does not end with a whole line")
    lines = data[:-1].split(b"\n")
    *before, last = [_read_line(number, line, scrubber) for number, line in enumerate(lines, 1)]
    if last[0] != "end" or any(kind == "end" for kind, _ in before):
        raise SnapshotRefused("the snapshot does not end with its one end line")
    _check_end(data[: len(data) - len(lines[-1]) - 1], last[1], before, key)
    order = list(KINDS)
    places = [order.index(kind) for kind, _ in before]
    if places != sorted(places):
        raise SnapshotRefused("the lines of the snapshot are not in order")
    return Facts({kind: [value for of, value in before if of == kind] for kind in KINDS})


def _read_line(number: int, line: bytes, scrubber: Scrubber) -> tuple[str, Any]:
    try:
        decoded = loads(line)
        kind, value = decoded["kind"], decoded["value"]
        model = End if kind == "end" else KINDS[kind]
        record = model.model_validate_json(canonical_bytes(value))
        exact = _line(kind, sealed(record)) == line + b"\n"
    except (StrictJsonError, ValidationError, KeyError, TypeError, ValueError):
        raise SnapshotRefused(f"line {number} of the snapshot is not one of its lines") from None
    if not exact:
        raise SnapshotRefused(f"line {number} of the snapshot is not written as this service writes it")
    if kind != "end" and scrubber.value(value) != value:
        raise SnapshotRefused(f"line {number} of the snapshot holds what looks like a secret")
    return kind, record


def _check_end(data: bytes, end: End, before: Sequence[tuple[str, Any]], key: bytes | None) -> None:
    counts = dict.fromkeys(KINDS, 0)
    for kind, _ in before:
        counts[kind] += 1
    if end.counts != counts or end.sha256 != sha256_of(data):
        raise SnapshotRefused("the snapshot is not the one that its end line was written for")
    if (end.hmac is None) != (key is None):
        sealed_with = "is not sealed" if end.hmac is None else "is sealed with a key that this service has not"
        raise SnapshotRefused(f"the snapshot {sealed_with}; see ARBITER_ADJUDICATION_SNAPSHOT_KEY")
    if key is not None and not hmac.compare_digest(str(end.hmac), _seal(data, key)):
        raise SnapshotRefused("the seal of the snapshot was not made with this service's key")
