"""Whose trace accepted work belongs to: the caller's `traceparent`, kept until the work is done."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the column; what was accepted before has no caller that is known."""
    op.add_column("accepted_work", sa.Column("traceparent", sa.String(55)))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("accepted_work", "traceparent")
