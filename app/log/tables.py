"""The tables of the append-only log, and of the stages that its entries bind."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, PrimaryKeyConstraint, String, Table

from app.store.schema import metadata

_Number = BigInteger().with_variant(Integer, "sqlite")

log_leaves = Table(
    "log_leaves",
    metadata,
    Column("leaf_index", _Number, nullable=False, autoincrement=False),
    Column("leaf_hash", LargeBinary(32), nullable=False),
    Column("kind", String(64), nullable=False),
    Column("ref", String(128), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("root", String(71), nullable=False),
    Column("created_at", String(27), nullable=False),
    PrimaryKeyConstraint("leaf_index"),
    Index("ix_log_leaves_ref", "ref", "revision"),
)
"""One row per entry, in order, without gaps. `ref` and `revision` say what it is; the hash binds kind and root."""

log_tiles = Table(
    "log_tiles",
    metadata,
    Column("level", Integer, nullable=False, autoincrement=False),
    Column("position", _Number, nullable=False, autoincrement=False),
    Column("hash", LargeBinary(32), nullable=False),
    PrimaryKeyConstraint("level", "position"),
)
"""Roots of full tiles, level 1 and up; what can be computed from the leaves, kept so that proofs are cheap."""

log_keys = Table(
    "log_keys",
    metadata,
    Column("key_id", String(71), nullable=False),
    Column("public_key", LargeBinary(32), nullable=False),
    Column("first_size", _Number, nullable=False),
    Column("created_at", String(27), nullable=False),
    PrimaryKeyConstraint("key_id"),
)
"""Every key that has signed heads, and the size of the log when it began to."""

provenance_stages = Table(
    "provenance_stages",
    metadata,
    Column("leaf_index", _Number, nullable=False, autoincrement=False),
    Column("position", Integer, nullable=False, autoincrement=False),
    Column("name", String(64), nullable=False),
    Column("commitment", LargeBinary(32), nullable=False),
    Column("payload", LargeBinary),
    Column("salt", LargeBinary(16)),
    PrimaryKeyConstraint("leaf_index", "position"),
)
"""The stages of each evaluation as the exact bytes that were hashed; payload and salt are null once erased."""
