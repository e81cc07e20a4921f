"""The tables of gates: policies by content, decisions, and where baselines pointed when. All insert-only."""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, LargeBinary, String, Table

from app.store.schema import metadata

gate_policies = Table(
    "gate_policies",
    metadata,
    Column("policy_sha256", String(71), primary_key=True),
    Column("policy", LargeBinary, nullable=False),
    Column("created_at", String(27), nullable=False),
)
"""`policy` is the TOML text as it was sent, to the byte."""

gate_decisions = Table(
    "gate_decisions",
    metadata,
    Column("decision_id", String(36), primary_key=True),
    Column("run_id", String(36), nullable=False),
    Column("baseline_run_id", String(36)),
    Column("verdict", String(16), nullable=False),
    Column("policy_sha256", String(71), nullable=False),
    Column("decided_at", String(27), nullable=False),
    Column("decision", LargeBinary, nullable=False),
    Index("ix_gate_decisions_run_id", "run_id", "decision_id"),
)
"""`decision` is the verdict as it was answered, as canonical bytes."""

baselines = Table(
    "baselines",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("move", Integer, primary_key=True, autoincrement=False),
    Column("run_id", String(36), nullable=False),
    Column("set_at", String(27), nullable=False),
    Index("ix_baselines_run_id", "run_id"),
)
"""Each row is one move of a name, counted from 1; the last one counts."""
