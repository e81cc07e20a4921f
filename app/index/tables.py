"""The tables of the embedded index: namespaces with what they hold, and their entries."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, String, Table, Text

from app.store.schema import metadata

_Number = BigInteger().with_variant(Integer, "sqlite")

namespaces = Table(
    "index_namespaces",
    metadata,
    Column("namespace", String(128), primary_key=True),
    Column("generation", String(36), nullable=False),
    Column("embedder", Text, nullable=False),
    Column("dimension", Integer, nullable=False),
    Column("version", _Number, nullable=False),
)
"""`version` grows with every write, so that other processes see that they must look again; `generation` is new when a
namespace was emptied and filled anew."""

entries = Table(
    "index_entries",
    metadata,
    Column("namespace", String(128), primary_key=True),
    Column("id", String(512), primary_key=True),
    Column("version", _Number, nullable=False),
    Column("origin", Text),
    Column("gone", Boolean, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Column("metadata", LargeBinary, nullable=False),
    Index("ix_index_entries_version", "namespace", "version"),
    Index("ix_index_entries_origin", "namespace", "origin"),
)
"""`vector` is little-endian float32, `metadata` canonical JSON. A deleted entry stays as `gone`, for those who hold it
in memory. `origin` names the document an entry was cut from."""
