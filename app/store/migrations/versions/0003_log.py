"""The append-only log and the stages of each evaluation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the tables of the log."""
    op.create_table(
        "log_leaves",
        sa.Column("leaf_index", _Number, nullable=False, autoincrement=False),
        sa.Column("leaf_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("ref", sa.String(128), nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("root", sa.String(71), nullable=False),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.PrimaryKeyConstraint("leaf_index", name="pk_log_leaves"),
    )
    op.create_index("ix_log_leaves_ref", "log_leaves", ["ref", "revision"])
    op.create_table(
        "log_tiles",
        sa.Column("level", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("position", _Number, nullable=False, autoincrement=False),
        sa.Column("hash", sa.LargeBinary(32), nullable=False),
        sa.PrimaryKeyConstraint("level", "position", name="pk_log_tiles"),
    )
    op.create_table(
        "log_keys",
        sa.Column("key_id", sa.String(71), nullable=False),
        sa.Column("public_key", sa.LargeBinary(32), nullable=False),
        sa.Column("first_size", _Number, nullable=False),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.PrimaryKeyConstraint("key_id", name="pk_log_keys"),
    )
    op.create_table(
        "provenance_stages",
        sa.Column("leaf_index", _Number, nullable=False, autoincrement=False),
        sa.Column("position", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("commitment", sa.LargeBinary(32), nullable=False),
        sa.Column("payload", sa.LargeBinary),
        sa.Column("salt", sa.LargeBinary(16)),
        sa.PrimaryKeyConstraint("leaf_index", "position", name="pk_provenance_stages"),
    )


def downgrade() -> None:
    """Drop them."""
    for table in ("provenance_stages", "log_keys", "log_tiles", "log_leaves"):
        op.drop_table(table)
