"""The tables of adjudication: facts as canonical bytes, insert-only but for links, runs and each hypothesis's index."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, LargeBinary, String, Table

from app.store.schema import metadata

hypotheses = Table(
    "hypotheses",
    metadata,
    Column("hypothesis_id", String(36), primary_key=True),
    Column("match_hash", String(71), nullable=False, unique=True),
    Column("origin", String(16), nullable=False),
    Column("turns", Integer, nullable=False),
    Column("qualification", String(16), nullable=False),
    Column("record", LargeBinary, nullable=False),
)
"""`turns` counts the records applied; `qualification` follows from the links and is only there to be searched by."""

evidence = Table(
    "evidence",
    metadata,
    Column("evidence_id", String(36), primary_key=True),
    Column("content_hash", String(71), nullable=False, unique=True),
    Column("record", LargeBinary, nullable=False),
)

assertions = Table(
    "hypothesis_assertions",
    metadata,
    Column("assertion_id", String(36), primary_key=True),
    Column("content_hash", String(71), nullable=False, unique=True),
    Column("hypothesis_id", String(36), nullable=False),
    Column("record", LargeBinary, nullable=False),
    Index("ix_hypothesis_assertions_hypothesis_id", "hypothesis_id", "assertion_id"),
)

links = Table(
    "hypothesis_links",
    metadata,
    Column("hypothesis_id", String(36), primary_key=True),
    Column("evidence_id", String(36), primary_key=True),
    Column("link", LargeBinary, nullable=False),
)
"""The accepted links as they are now; they follow from the adjudications in their turns."""

adjudication_runs = Table(
    "adjudication_runs",
    metadata,
    Column("run_id", String(36), primary_key=True),
    Column("status", String(16), nullable=False),
    Column("n_pairs", Integer, nullable=False),
    Column("lease_owner", String(64), nullable=False),
    Column("lease_until", Float(53), nullable=False),
    Column("finished_at", String(27)),
    Column("record", LargeBinary, nullable=False),
    Index("ix_adjudication_runs_status", "status", "run_id"),
)

adjudications = Table(
    "adjudications",
    metadata,
    Column("record_id", String(36), primary_key=True),
    Column("run_id", String(36), nullable=False),
    Column("hypothesis_id", String(36), nullable=False),
    Column("evidence_id", String(36), nullable=False),
    Column("turn", Integer, nullable=False),
    Column("key", String(71), nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("reused_from", String(36)),
    Column("record", LargeBinary, nullable=False),
    Index("uq_adjudications_pair", "run_id", "hypothesis_id", "evidence_id", unique=True),
    Index("uq_adjudications_turn", "hypothesis_id", "turn", unique=True),
    Index("ix_adjudications_evidence_id", "evidence_id", "record_id"),
    Index("ix_adjudications_key", "key"),
)

transitions = Table(
    "score_transitions",
    metadata,
    Column("hypothesis_id", String(36), primary_key=True),
    Column("turn", Integer, primary_key=True, autoincrement=False),
    Column("record", LargeBinary, nullable=False),
)

syntheses = Table(
    "syntheses",
    metadata,
    Column("synthesis_id", String(36), primary_key=True),
    Column("key", String(71), nullable=False, unique=True),
    Column("record", LargeBinary, nullable=False),
)
