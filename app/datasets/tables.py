"""The table of dataset names: insert-only, one row for each version."""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, String, Table

from app.store.schema import metadata

dataset_versions = Table(
    "dataset_versions",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("dataset_id", String(71), nullable=False),
    Column("created_at", String(27), nullable=False),
    Index("ix_dataset_versions_dataset_id", "dataset_id"),
)
"""Versions of a name count from 1; the last one is current."""
