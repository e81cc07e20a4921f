"""What processes agree on beside their records."""

from __future__ import annotations

from sqlalchemy import Column, LargeBinary, String, Table

from app.store.schema import metadata

budgets = Table(
    "budgets",
    metadata,
    Column("name", String(256), primary_key=True),
    Column("state", LargeBinary, nullable=False),
)
"""What all processes together have spent of a remote's rate limit, and what it said about it, as canonical bytes."""
