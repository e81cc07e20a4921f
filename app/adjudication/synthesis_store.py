"""Syntheses in the store, each with the drafts that it proposed."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, insert, select

from app.adjudication.model import Hypothesis
from app.adjudication.rules import sealed
from app.adjudication.store import insert_hypothesis
from app.adjudication.synthesis_model import SynthesisRecord
from app.adjudication.tables import syntheses


def insert_synthesis(conn: Connection, record: SynthesisRecord) -> None:
    """Insert a synthesis as it is."""
    row = {"synthesis_id": record.synthesis_id, "key": record.key, "record": sealed(record)}
    conn.execute(insert(syntheses).values(row))


def save_synthesis(
    conn: Connection, record: SynthesisRecord, drafts: Sequence[Hypothesis]
) -> tuple[SynthesisRecord, bool]:
    """Store a synthesis with its drafts; a draft that matches a stored statement is that one."""
    known = conn.scalar(select(syntheses.c.record).where(syntheses.c.key == record.key))
    if known is not None:
        return SynthesisRecord.model_validate_json(known), True
    proposals = []
    for proposal, draft in zip(record.proposals, drafts, strict=True):
        stored, existing = insert_hypothesis(conn, draft)
        proposals.append(proposal.model_copy(update={"hypothesis_id": stored.hypothesis_id, "existing": existing}))
    record = record.model_copy(update={"proposals": tuple(proposals)})
    insert_synthesis(conn, record)
    return record, False
