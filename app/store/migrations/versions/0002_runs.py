"""Datasets, runs and their records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the tables of runs."""
    _datasets()
    _runs()
    op.create_table(
        "records",
        sa.Column("run_no", _Number, nullable=False, autoincrement=False),
        sa.Column("position", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("repeat", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("attempt", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("status", sa.String(8), nullable=False),
        sa.Column("expected", sa.Text, nullable=False),
        sa.Column("scored", sa.Text),
        sa.Column("error_kind", sa.String(64)),
        sa.Column("confidence", sa.Float(53)),
        sa.Column("elapsed_ms", sa.Float(53), nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("run_no", "position", "repeat", "attempt", name="pk_records"),
    )
    op.create_index("ix_records_status", "records", ["run_no", "status"])
    op.create_table(
        "run_keys",
        sa.Column("idempotency_key", sa.String(256), nullable=False),
        sa.Column("body_hash", sa.String(71), nullable=False),
        sa.Column("run_id", sa.String(36)),
        sa.Column("executor", sa.String(64)),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.PrimaryKeyConstraint("idempotency_key", name="pk_run_keys"),
    )


def _datasets() -> None:
    op.create_table(
        "datasets",
        sa.Column("dataset_no", _Number, nullable=False, autoincrement=True),
        sa.Column("dataset_id", sa.String(71)),
        sa.Column("n_examples", sa.Integer, nullable=False),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.PrimaryKeyConstraint("dataset_no", name="pk_datasets"),
        sa.UniqueConstraint("dataset_id", name="uq_datasets_dataset_id"),
    )
    op.create_table(
        "dataset_examples",
        sa.Column("dataset_no", _Number, nullable=False, autoincrement=False),
        sa.Column("position", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("example_id", sa.String(512), nullable=False),
        sa.Column("example", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("dataset_no", "position", name="pk_dataset_examples"),
    )
    op.create_index("ix_dataset_examples_example_id", "dataset_examples", ["dataset_no", "example_id"])


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_no", _Number, nullable=False, autoincrement=True),
        sa.Column("run_id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(256)),
        sa.Column("system", sa.String(512), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("failure", sa.LargeBinary),
        sa.Column("dataset_no", _Number, nullable=False),
        sa.Column("dataset_id", sa.String(71), nullable=False),
        sa.Column("n_total", sa.Integer, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("executor", sa.String(64)),
        sa.Column("config", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.Column("started_at", sa.String(27)),
        sa.Column("finished_at", sa.String(27)),
        sa.PrimaryKeyConstraint("run_no", name="pk_runs"),
        sa.UniqueConstraint("run_id", name="uq_runs_run_id"),
    )
    op.create_index("ix_runs_system", "runs", ["system", "run_id"])
    op.create_index("ix_runs_status", "runs", ["status", "run_id"])


def downgrade() -> None:
    """Drop them."""
    for name in ("run_keys", "records", "runs", "dataset_examples", "datasets"):
        op.drop_table(name)
