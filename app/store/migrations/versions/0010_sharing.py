"""Processes that share runs: who is alive, who holds which chunk, and one rate budget for all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the tables, and give runs a priority."""
    op.add_column("runs", sa.Column("priority", sa.Integer, nullable=False, server_default="0"))
    op.create_table(
        "run_chunks",
        sa.Column("run_no", _Number, nullable=False, autoincrement=False),
        sa.Column("attempt", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("start", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("stop", sa.Integer, nullable=False),
        sa.Column("owner", sa.String(64)),
        sa.Column("claim", sa.Integer, nullable=False),
        sa.Column("done", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("run_no", "attempt", "start", name="pk_run_chunks"),
    )
    op.create_table(
        "workers",
        sa.Column("worker_id", sa.String(64), nullable=False),
        sa.Column("executor", sa.String(64)),
        sa.Column("beat_at", sa.Float(53), nullable=False),
        sa.Column("lease", sa.Float(53), nullable=False),
        sa.Column("started_at", sa.String(27), nullable=False),
        sa.Column("code_version", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("worker_id", name="pk_workers"),
    )
    op.create_table(
        "budgets",
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_budgets"),
    )


def downgrade() -> None:
    """Drop them."""
    for name in ("budgets", "workers", "run_chunks"):
        op.drop_table(name)
    op.drop_column("runs", "priority")
