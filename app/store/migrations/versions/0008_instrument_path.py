"""Which judge really answered, as a column of evaluations that figures can be grouped by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_JUDGED = sa.text("instrument_path IS NOT NULL")


def upgrade() -> None:
    """Add the column, fill it from the records, and index those that have one."""
    op.add_column("evaluations", sa.Column("instrument_path", sa.String(32)))
    if op.get_bind().dialect.name == "postgresql":
        path = "convert_from(record, 'UTF8')::json ->> 'instrument_path'"
    else:
        path = "json_extract(CAST(record AS TEXT), '$.instrument_path')"
    op.execute(sa.text(f"UPDATE evaluations SET instrument_path = {path}"))  # noqa: S608 - no value from outside
    op.create_index(
        "ix_evaluations_instrument_path",
        "evaluations",
        ["instrument_path", "system", "created_at"],
        sqlite_where=_JUDGED,
        postgresql_where=_JUDGED,
    )


def downgrade() -> None:
    """Drop both."""
    op.drop_index("ix_evaluations_instrument_path", "evaluations")
    op.drop_column("evaluations", "instrument_path")
