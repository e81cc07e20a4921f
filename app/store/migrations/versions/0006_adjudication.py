"""Hypotheses, evidence, what came of adjudicating them, and syntheses."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make the tables of adjudication."""
    _facts()
    _runs()
    op.create_table(
        "hypothesis_links",
        sa.Column("hypothesis_id", sa.String(36), nullable=False),
        sa.Column("evidence_id", sa.String(36), nullable=False),
        sa.Column("link", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("hypothesis_id", "evidence_id", name="pk_hypothesis_links"),
    )
    op.create_table(
        "score_transitions",
        sa.Column("hypothesis_id", sa.String(36), nullable=False),
        sa.Column("turn", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("hypothesis_id", "turn", name="pk_score_transitions"),
    )
    op.create_table(
        "syntheses",
        sa.Column("synthesis_id", sa.String(36), nullable=False),
        sa.Column("key", sa.String(71), nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("synthesis_id", name="pk_syntheses"),
        sa.UniqueConstraint("key", name="uq_syntheses_key"),
    )


def _facts() -> None:
    op.create_table(
        "hypotheses",
        sa.Column("hypothesis_id", sa.String(36), nullable=False),
        sa.Column("match_hash", sa.String(71), nullable=False),
        sa.Column("origin", sa.String(16), nullable=False),
        sa.Column("turns", sa.Integer, nullable=False),
        sa.Column("qualification", sa.String(16), nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("hypothesis_id", name="pk_hypotheses"),
        sa.UniqueConstraint("match_hash", name="uq_hypotheses_match_hash"),
    )
    op.create_table(
        "evidence",
        sa.Column("evidence_id", sa.String(36), nullable=False),
        sa.Column("content_hash", sa.String(71), nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("evidence_id", name="pk_evidence"),
        sa.UniqueConstraint("content_hash", name="uq_evidence_content_hash"),
    )
    op.create_table(
        "hypothesis_assertions",
        sa.Column("assertion_id", sa.String(36), nullable=False),
        sa.Column("content_hash", sa.String(71), nullable=False),
        sa.Column("hypothesis_id", sa.String(36), nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("assertion_id", name="pk_hypothesis_assertions"),
        sa.UniqueConstraint("content_hash", name="uq_hypothesis_assertions_content_hash"),
    )
    op.create_index(
        "ix_hypothesis_assertions_hypothesis_id", "hypothesis_assertions", ["hypothesis_id", "assertion_id"]
    )


def _runs() -> None:
    op.create_table(
        "adjudication_runs",
        sa.Column("run_id", sa.String(36), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("n_pairs", sa.Integer, nullable=False),
        sa.Column("lease_owner", sa.String(64), nullable=False),
        sa.Column("lease_until", sa.Float(53), nullable=False),
        sa.Column("finished_at", sa.String(27)),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_adjudication_runs"),
    )
    op.create_index("ix_adjudication_runs_status", "adjudication_runs", ["status", "run_id"])
    op.create_table(
        "adjudications",
        sa.Column("record_id", sa.String(36), nullable=False),
        sa.Column("run_id", sa.String(36), nullable=False),
        sa.Column("hypothesis_id", sa.String(36), nullable=False),
        sa.Column("evidence_id", sa.String(36), nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("key", sa.String(71), nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("reused_from", sa.String(36)),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("record_id", name="pk_adjudications"),
    )
    pair = ["run_id", "hypothesis_id", "evidence_id"]
    op.create_index("uq_adjudications_pair", "adjudications", pair, unique=True)
    op.create_index("uq_adjudications_turn", "adjudications", ["hypothesis_id", "turn"], unique=True)
    op.create_index("ix_adjudications_evidence_id", "adjudications", ["evidence_id", "record_id"])
    op.create_index("ix_adjudications_key", "adjudications", ["key"])


def downgrade() -> None:
    """Drop them."""
    for table in (
        "syntheses",
        "score_transitions",
        "hypothesis_links",
        "adjudications",
        "adjudication_runs",
        "hypothesis_assertions",
        "evidence",
        "hypotheses",
    ):
        op.drop_table(table)
