"""Gate policies, their decisions, and baselines."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the tables of gates."""
    op.create_table(
        "gate_policies",
        sa.Column("policy_sha256", sa.String(71), nullable=False),
        sa.Column("policy", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.PrimaryKeyConstraint("policy_sha256", name="pk_gate_policies"),
    )
    op.create_table(
        "gate_decisions",
        sa.Column("decision_id", sa.String(36), nullable=False),
        sa.Column("run_id", sa.String(36), nullable=False),
        sa.Column("baseline_run_id", sa.String(36)),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("policy_sha256", sa.String(71), nullable=False),
        sa.Column("decided_at", sa.String(27), nullable=False),
        sa.Column("decision", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("decision_id", name="pk_gate_decisions"),
    )
    op.create_index("ix_gate_decisions_run_id", "gate_decisions", ["run_id", "decision_id"])
    op.create_table(
        "baselines",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("move", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("run_id", sa.String(36), nullable=False),
        sa.Column("set_at", sa.String(27), nullable=False),
        sa.PrimaryKeyConstraint("name", "move", name="pk_baselines"),
    )
    op.create_index("ix_baselines_run_id", "baselines", ["run_id"])


def downgrade() -> None:
    """Drop them."""
    op.drop_table("baselines")
    op.drop_table("gate_decisions")
    op.drop_table("gate_policies")
