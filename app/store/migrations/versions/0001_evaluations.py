"""Evaluations and accepted work."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables of `/evaluate`."""
    op.create_table(
        "evaluations",
        sa.Column("evaluation_id", sa.String(36), nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("system", sa.String(64), nullable=False),
        sa.Column("prediction_id", sa.String(512), nullable=False),
        sa.Column("content_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("occurrence", sa.String(36), nullable=False),
        sa.Column("disposition", sa.String(16), nullable=False),
        sa.Column("degraded", sa.Boolean, nullable=False),
        sa.Column("parent_id", sa.String(36)),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("evaluation_id", "revision", name="pk_evaluations"),
    )
    op.create_index("uq_evaluations_content", "evaluations", ["content_hash", "occurrence", "revision"], unique=True)
    op.create_index("ix_evaluations_system", "evaluations", ["system", "evaluation_id"])
    op.create_index("ix_evaluations_prediction_id", "evaluations", ["prediction_id", "evaluation_id"])
    op.create_index("ix_evaluations_disposition", "evaluations", ["disposition", "evaluation_id"])
    _partial_index("ix_evaluations_degraded", "evaluations", ["evaluation_id"], "degraded")
    op.create_table(
        "accepted_work",
        sa.Column("work_id", sa.String(36), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("batch_id", sa.String(36)),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("parent_id", sa.String(36)),
        sa.Column("fresh", sa.Boolean, nullable=False),
        sa.Column("request", sa.LargeBinary, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("lease_owner", sa.String(128), nullable=False),
        sa.Column("lease_until", sa.Float(53), nullable=False),
        sa.Column("result_id", sa.String(36)),
        sa.Column("error", sa.LargeBinary),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.Column("finished_at", sa.String(27)),
        sa.PrimaryKeyConstraint("work_id", name="pk_accepted_work"),
    )
    op.create_index("ix_accepted_work_batch_id", "accepted_work", ["batch_id", "position"])
    _partial_index("ix_accepted_work_open", "accepted_work", ["work_id"], "status = 'accepted'")


def _partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def downgrade() -> None:
    """Drop them."""
    op.drop_table("accepted_work")
    op.drop_table("evaluations")
