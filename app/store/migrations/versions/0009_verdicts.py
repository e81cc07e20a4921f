"""Verdicts of the arbiter."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Make the table of verdicts."""
    op.create_table(
        "verdicts",
        sa.Column("verdict_id", sa.String(36), nullable=False),
        sa.Column("artifact_sha256", sa.String(71), nullable=False),
        sa.Column("decision", sa.String(8), nullable=False),
        sa.Column("binding", sa.Boolean(create_constraint=False), nullable=False),
        sa.Column("root", sa.String(71), nullable=False),
        sa.Column("log_index", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("decided_at", sa.String(27), nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("verdict_id", name="pk_verdicts"),
    )
    op.create_index("ix_verdicts_artifact_sha256", "verdicts", ["artifact_sha256", "log_index"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("verdicts")
