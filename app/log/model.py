"""What the log shows: keys, signed heads, proofs, and the bundle that anyone can check. Hashes are `sha256:<hex>`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from layers.model import JsonObject


class Shown(BaseModel):
    """An immutable answer."""

    model_config = ConfigDict(frozen=True)


class TreeHead(Shown):
    """The log at one size, signed. The signature (base64) is over `head_message`."""

    tree_size: int = Field(ge=0)
    root_hash: str
    timestamp: str
    key_id: str
    signature: str


class LogKey(Shown):
    """A public key, 32 raw bytes in base64. `key_id` is their hash; it signs since the log had `first_size` entries."""

    key_id: str
    algorithm: Literal["Ed25519"] = "Ed25519"
    public_key: str
    first_size: int
    created_at: str


class LogKeys(Shown):
    """The key in use, and those that signed before it."""

    key_id: str
    algorithm: Literal["Ed25519"] = "Ed25519"
    public_key: str
    first_size: int
    created_at: str
    earlier: tuple[LogKey, ...] = ()


class InclusionProof(Shown):
    """That a leaf stands at its index in the tree of `tree_size` entries (RFC 9162, 2.1.3)."""

    leaf_index: int
    leaf_hash: str
    tree_size: int
    root_hash: str
    path: tuple[str, ...]


class ConsistencyProof(Shown):
    """That the tree of `second` entries only adds to the tree of `first` (RFC 9162, 2.1.4)."""

    first: int
    first_root: str
    second: int
    second_root: str
    path: tuple[str, ...]


class LogPart(Shown):
    """The log's part of a bundle. `consistency` is there when the caller named the size of an older head."""

    index: int
    kind: str
    inclusion: InclusionProof
    head: TreeHead
    public_key: str
    consistency: ConsistencyProof | None = None


class BundleStage(Shown):
    """One stage: the exact bytes as text (or base64), their salt (hex) and commitment; no payload once erased."""

    name: str
    commitment: str
    erased: bool
    encoding: Literal["utf-8", "base64"] | None
    payload: str | None
    salt: str | None


class ProvenanceBundle(Shown):
    """Everything needed to check one evaluation's record without the service."""

    format: str
    about: JsonObject
    root: str
    stages: tuple[BundleStage, ...]
    log: LogPart


def head_message(tree_size: int, root_hash: str, timestamp: str) -> bytes:
    """What a head's signature covers."""
    return f"arbiter-l8 tree head 1\n{tree_size}\n{root_hash}\n{timestamp}\n".encode()
