"""Provenance: every stage of an evaluation as the exact bytes that were stored, bound by a tree of salted hashes.

A stage's *commitment* is a salted hash of its bytes, so that payload and salt can be erased later without the hash
giving the payload away. The tree's leaves bind the stages' names and order, its root binds how many there are.

    commitment = SHA-256("arbiter-l8:payload:1" 00 | salt (16 bytes) | payload)
    leaf       = SHA-256(00 | "arbiter-l8:stage:1" 00 | length of name (1 byte) | name | commitment)
    node       = SHA-256(01 | "arbiter-l8:node:1" 00 | left | right)           (tree shape as in RFC 9162, 2.1.1)
    root       = SHA-256(02 | "arbiter-l8:record:1" 00 | number of stages (4 bytes, big-endian) | top of the tree)
    log entry  = "arbiter-l8:log:1" 00 | kind | 00 | root (32 bytes)
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from math import isfinite
from typing import Any

from layers.canonical import canonical_bytes
from layers.model import JsonObject
from layers.translog import tree_root

BUNDLE_FORMAT = "arbiter-l8/provenance-bundle/1"
SALT_BYTES = 16
PREFIX = "sha256:"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")


class Stage(StrEnum):
    """The stages of an evaluation, in the order in which they enter the tree. `input` and `verdict` are one JSON object
    each; every other stage is the JSON array of what was noted for it."""

    INPUT = "input"
    PREFLIGHT = "preflight"
    RETRIEVAL_PLAN = "retrieval_plan"
    POLICY_CHUNKS = "policy_chunks"
    NEIGHBORS = "neighbors"
    EVIDENCE = "evidence"
    PROMPT = "prompt"
    MODEL_OUTPUT = "model_output"
    VERIFICATION = "verification"
    VERDICT = "verdict"


_SINGLE = frozenset({Stage.INPUT, Stage.VERDICT})
_ORDER: Mapping[str, int] = {stage.value: position for position, stage in enumerate(Stage)}
_FOREIGN = _ORDER[Stage.VERIFICATION]  # a stage of another name goes right before the verification, by name


@dataclass(frozen=True, slots=True)
class StageRecord:
    """One stage: its name, its commitment (32 bytes), and payload and salt unless they were erased."""

    name: str
    commitment: bytes
    payload: bytes | None
    salt: bytes | None

    @property
    def erased(self) -> bool:
        return self.payload is None


@dataclass(frozen=True, slots=True)
class Provenance:
    """What stands on the record: the root (`sha256:...`) and the stages it binds."""

    root: str
    stages: tuple[StageRecord, ...]


class Recorder:
    """Collects what the stages of one evaluation noted, each serialised at once, and closes them under one root."""

    def __init__(self, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._entropy = entropy
        self._notes: dict[str, list[bytes]] = {}

    def note(self, stage: str, value: JsonObject) -> None:
        """Add a note to a stage; later changes to `value` have no effect.

        What JSON can't carry (a remote's NaN or lone surrogate) is written out as text and the note says
        `"not_exact": true`: a hostile value must not cost the record. Raises `ValueError` only for a name that no stage
        can have, and for a second note for `input` or `verdict`; no layer does either.
        """
        try:
            data = canonical_bytes(value)
        except ValueError:
            data = canonical_bytes({"not_exact": True, "value": _printable(value)})
        self.note_bytes(stage, data)

    def note_bytes(self, stage: str, data: bytes) -> None:
        """Add a note that is already canonical JSON, as `note` does."""
        notes = self._notes.get(stage)
        if notes is None:
            if not _NAME.match(stage):
                raise ValueError(f"not a stage name: {stage[:80]!r}")
            self._notes[stage] = [data]
        elif stage in _SINGLE:
            raise ValueError(f"stage {stage} is noted once")
        else:
            notes.append(data)

    def values(self, stage: str) -> list[JsonObject]:
        """What was noted for a stage so far, decoded."""
        return [json.loads(data) for data in self._notes.get(stage, ())]

    def noted(self, stage: str) -> int:
        """How many notes a stage has."""
        return len(self._notes.get(stage, ()))

    def finish(self, verdict: JsonObject | bytes) -> Provenance:
        """Note the verdict, which may be canonical JSON already, and bind all stages under one root."""
        if isinstance(verdict, bytes):
            self.note_bytes(Stage.VERDICT, verdict)
        else:
            self.note(Stage.VERDICT, verdict)
        names = sorted(self._notes, key=lambda name: (_ORDER.get(name, _FOREIGN), name in _ORDER, name))
        salts = self._entropy(SALT_BYTES * len(names))
        stages = []
        for position, name in enumerate(names):
            notes = self._notes[name]
            payload = notes[0] if name in _SINGLE else b"[" + b",".join(notes) + b"]"
            salt = salts[position * SALT_BYTES : (position + 1) * SALT_BYTES]
            stages.append(StageRecord(name, commit(salt, payload), payload, salt))
        return Provenance(root_of(stages), tuple(stages))


def commit(salt: bytes, payload: bytes) -> bytes:
    """The commitment to a payload."""
    digest = sha256(b"arbiter-l8:payload:1\x00" + salt)
    digest.update(payload)
    return digest.digest()


def root_of(stages: Sequence[StageRecord]) -> str:
    """The root over the stages' names, order, number and commitments; erased stages count like the others."""
    top = tree_root([_leaf(stage.name.encode(), stage.commitment) for stage in stages], _node)
    count = len(stages).to_bytes(4, "big")
    return PREFIX + sha256(b"\x02arbiter-l8:record:1\x00" + count + top).hexdigest()


def _leaf(name: bytes, commitment: bytes) -> bytes:
    return sha256(b"\x00arbiter-l8:stage:1\x00" + len(name).to_bytes(1, "big") + name + commitment).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01arbiter-l8:node:1\x00" + left + right).digest()


def log_entry(kind: str, root: str) -> bytes:
    """What enters the append-only log for a root (`sha256:` and 64 hex digits). Raises `ValueError` for another form.

    `kind` (`evaluation`, `verdict`, ...) is a name like a stage's.
    """
    digest = bytes.fromhex(root.removeprefix(PREFIX))
    if not root.startswith(PREFIX) or len(digest) != 32 or not _NAME.match(kind):
        raise ValueError(f"not a log entry: {kind[:80]!r} {root[:80]!r}")
    return b"arbiter-l8:log:1\x00" + kind.encode() + b"\x00" + digest


def erase(stages: Sequence[StageRecord], names: Collection[str]) -> tuple[StageRecord, ...]:
    """The stages without payload and salt of those named; hash and root stay. Raises `ValueError` for a foreign name.

    The salt goes too: with it, whoever can guess a payload could confirm the guess.
    """
    if missing := set(names) - {stage.name for stage in stages}:
        raise ValueError(f"no such stage: {', '.join(sorted(missing))}")
    return tuple(replace(stage, payload=None, salt=None) if stage.name in names else stage for stage in stages)


def first_difference(provenance: Provenance) -> str | None:
    """The first stage whose bytes do not give its commitment; `root` when only the whole differs; None when true."""
    for stage in provenance.stages:
        if stage.payload is not None and commit(stage.salt or b"", stage.payload) != stage.commitment:
            return stage.name
    return None if root_of(provenance.stages) == provenance.root else "root"


def bundle(provenance: Provenance, *, about: JsonObject, log: JsonObject | None) -> JsonObject:
    """The JSON that anyone can check: the stages' exact bytes, salts, commitments, the root and the log's proof.

    `about` says which evaluation it is; `log` is the log's part, None when the record never entered one.
    """
    return {
        "format": BUNDLE_FORMAT,
        "about": about,
        "root": provenance.root,
        "stages": [_stage_json(stage) for stage in provenance.stages],
        "log": log,
    }


def _stage_json(stage: StageRecord) -> JsonObject:
    encoding: str | None = None
    payload: str | None = None
    if stage.payload is not None:
        try:
            encoding, payload = "utf-8", stage.payload.decode("utf-8")
        except UnicodeDecodeError:
            encoding, payload = "base64", base64.b64encode(stage.payload).decode()
    return {
        "name": stage.name,
        "commitment": PREFIX + stage.commitment.hex(),
        "erased": stage.erased,
        "encoding": encoding,
        "payload": payload,
        "salt": None if stage.salt is None else stage.salt.hex(),
    }


def _printable(value: Any, depth: int = 64) -> Any:
    if depth == 0:
        return "..."
    if isinstance(value, dict):
        return {_clean(str(key)): _printable(child, depth - 1) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_printable(child, depth - 1) for child in value]
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, int):
        return value if value.bit_length() < 8_192 else hex(value)  # Python writes no decimals longer than 4,300 digits
    if value is None or (isinstance(value, float) and isfinite(value)):
        return value
    return _clean(repr(value))


def _clean(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
