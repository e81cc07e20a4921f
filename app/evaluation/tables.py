"""The tables of `/evaluate`: the records themselves, append-only, and the work that was accepted for later."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, Index, Integer, LargeBinary, PrimaryKeyConstraint, String, Table, text

from app.store.schema import metadata

evaluations = Table(
    "evaluations",
    metadata,
    Column("evaluation_id", String(36), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("system", String(64), nullable=False),
    Column("prediction_id", String(512), nullable=False),
    # SHA-256 over the canonical request: the same content has the same answer. `occurrence` is empty for the first
    # record of a content and the evaluation's own id for each further one that was asked for on purpose.
    Column("content_hash", LargeBinary(32), nullable=False),
    Column("occurrence", String(36), nullable=False),
    Column("disposition", String(16), nullable=False),
    Column("degraded", Boolean, nullable=False),
    Column("parent_id", String(36)),
    Column("created_at", String(27), nullable=False),
    Column("record", LargeBinary, nullable=False),
    Column("instrument_path", String(32)),
    PrimaryKeyConstraint("evaluation_id", "revision"),
    Index("uq_evaluations_content", "content_hash", "occurrence", "revision", unique=True),
    Index("ix_evaluations_system", "system", "evaluation_id"),
    Index("ix_evaluations_prediction_id", "prediction_id", "evaluation_id"),
    Index("ix_evaluations_disposition", "disposition", "evaluation_id"),
    Index(
        "ix_evaluations_degraded",
        "evaluation_id",
        sqlite_where=text("degraded"),
        postgresql_where=text("degraded"),
    ),
    # What no judge was asked about, nearly all there is, stands in no index of judges.
    Index(
        "ix_evaluations_instrument_path",
        "instrument_path",
        "system",
        "created_at",
        sqlite_where=text("instrument_path IS NOT NULL"),
        postgresql_where=text("instrument_path IS NOT NULL"),
    ),
)
"""One row per revision. `record` holds the canonical bytes of the answer; the other columns are indexes into it."""

accepted_work = Table(
    "accepted_work",
    metadata,
    Column("work_id", String(36), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("batch_id", String(36)),
    Column("position", Integer, nullable=False),
    Column("parent_id", String(36)),
    Column("fresh", Boolean, nullable=False),
    Column("request", LargeBinary, nullable=False),
    Column("status", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("lease_owner", String(128), nullable=False),
    Column("lease_until", Float(53), nullable=False),
    Column("result_id", String(36)),
    Column("error", LargeBinary),
    Column("created_at", String(27), nullable=False),
    Column("finished_at", String(27)),
    Column("traceparent", String(55)),
    PrimaryKeyConstraint("work_id"),
    Index("ix_accepted_work_batch_id", "batch_id", "position"),
    Index(
        "ix_accepted_work_open",
        "work_id",
        sqlite_where=text("status = 'accepted'"),
        postgresql_where=text("status = 'accepted'"),
    ),
)
"""Work to be done once, after its answer 202. `kind` is `evaluate` or `audit`; `status` accepted, done or failed.

A worker holds an item until `lease_until` (seconds since 1970) and renews while it lives. `result_id` is the
evaluation that answers it. `request` is the canonical request, `traceparent` the caller's span as W3C writes it.
"""
