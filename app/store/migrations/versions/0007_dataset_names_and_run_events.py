"""Names of datasets, and the events of runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Make the tables of dataset versions and run events."""
    op.create_table(
        "dataset_versions",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("version", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("dataset_id", sa.String(71), nullable=False),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.PrimaryKeyConstraint("name", "version", name="pk_dataset_versions"),
    )
    op.create_index("ix_dataset_versions_dataset_id", "dataset_versions", ["dataset_id"])
    op.create_table(
        "run_events",
        sa.Column("run_id", sa.String(36), nullable=False),
        sa.Column("seq", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("n_done", sa.Integer, nullable=False),
        sa.Column("n_failed", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_run_events"),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("run_events")
    op.drop_table("dataset_versions")
