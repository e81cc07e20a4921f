"""The embedded vector index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the tables of namespaces and their entries."""
    op.create_table(
        "index_namespaces",
        sa.Column("namespace", sa.String(128), nullable=False),
        sa.Column("generation", sa.String(36), nullable=False),
        sa.Column("embedder", sa.Text, nullable=False),
        sa.Column("dimension", sa.Integer, nullable=False),
        sa.Column("version", _Number, nullable=False),
        sa.PrimaryKeyConstraint("namespace", name="pk_index_namespaces"),
    )
    op.create_table(
        "index_entries",
        sa.Column("namespace", sa.String(128), nullable=False),
        sa.Column("id", sa.String(512), nullable=False),
        sa.Column("version", _Number, nullable=False),
        sa.Column("origin", sa.Text),
        sa.Column("gone", sa.Boolean, nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
        sa.Column("metadata", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("namespace", "id", name="pk_index_entries"),
    )
    op.create_index("ix_index_entries_version", "index_entries", ["namespace", "version"])
    op.create_index("ix_index_entries_origin", "index_entries", ["namespace", "origin"])


def downgrade() -> None:
    """Drop them."""
    op.drop_table("index_entries")
    op.drop_table("index_namespaces")
