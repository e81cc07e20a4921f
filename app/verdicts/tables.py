"""The table of verdicts; insert-only."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, String, Table

from app.store.schema import metadata

verdicts = Table(
    "verdicts",
    metadata,
    Column("verdict_id", String(36), primary_key=True),
    Column("artifact_sha256", String(71), nullable=False),
    Column("decision", String(8), nullable=False),
    Column("binding", Boolean(create_constraint=False), nullable=False),
    Column("root", String(71), nullable=False),
    Column("log_index", BigInteger().with_variant(Integer, "sqlite"), nullable=False),
    Column("decided_at", String(27), nullable=False),
    Column("record", LargeBinary, nullable=False),
    Index("ix_verdicts_artifact_sha256", "artifact_sha256", "log_index"),
)
"""`record` is the verdict as canonical bytes, `root` their SHA-256, which the log holds at `log_index`. `binding`: the
artifact is blocked for good."""
