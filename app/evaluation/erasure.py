"""Erase what was recorded of an evaluation; what proves it stays."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection

from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection, or_, select, update

from app.errors import NotFound
from app.evaluation.record import without_content
from app.evaluation.store import Ledger
from app.evaluation.tables import accepted_work, evaluations
from app.store.database import Database
from app.store.ids import now, random_bytes
from app.store.paging import is_storable
from layers.canonical import canonical_bytes
from layers.provenance import Stage

logger = logging.getLogger(__name__)

_ERASED_WORK = canonical_bytes({"kind": "erased", "message": "its input was erased before it was done"})


class Erased(BaseModel):
    """What was erased: `n_erased` stages of these revisions still had their payload."""

    model_config = ConfigDict(frozen=True)

    evaluation_id: str
    revisions: tuple[int, ...]
    stages: tuple[str, ...]
    n_erased: int


async def erase(
    database: Database, ledger: Ledger, evaluation_id: str, stages: Collection[str], revision: int | None
) -> Erased:
    """Erase stages of one revision, or of every one (None), in one transaction. Erasing twice changes nothing.

    With `input` go the copies in accepted work, with `verdict` the content of the stored answer, and with either the
    hash of the content, which a guess could be held against. Raises `NotFound` for an unknown evaluation or stage.
    """
    names = tuple(sorted(set(stages)))
    done = await database.write(lambda conn: _erase(conn, ledger, evaluation_id, names, revision))
    logger.info("erased %s of evaluation %s; stages: %d", ", ".join(names), evaluation_id, done.n_erased)
    return done


def _erase(
    conn: Connection, ledger: Ledger, evaluation_id: str, names: tuple[str, ...], revision: int | None
) -> Erased:
    revisions = _revisions(conn, evaluation_id, revision)
    known = {stage.name for each in revisions for stage in ledger.stages_of(conn, evaluation_id, each)}
    if missing := set(names) - known:
        raise NotFound(f"evaluation {evaluation_id} has no stage {', '.join(sorted(missing))[:200]}")
    erased = sum(ledger.erase_stages(conn, evaluation_id, each, names) for each in revisions)
    if Stage.INPUT in names:
        _erase_requests(conn, evaluation_id)
    if Stage.VERDICT in names:
        _reduce_records(conn, evaluation_id, revisions)
    if Stage.INPUT in names or Stage.VERDICT in names:
        ours = evaluations.c.evaluation_id == evaluation_id
        conn.execute(update(evaluations).where(ours).values(content_hash=random_bytes(32)))
    return Erased(evaluation_id=evaluation_id, revisions=revisions, stages=names, n_erased=erased)


def _revisions(conn: Connection, evaluation_id: str, revision: int | None) -> tuple[int, ...]:
    query = select(evaluations.c.revision).where(evaluations.c.evaluation_id == evaluation_id)
    if revision is not None:
        query = query.where(evaluations.c.revision == revision)
    found = conn.execute(query.order_by(evaluations.c.revision)).scalars() if is_storable(evaluation_id) else ()
    revisions = tuple(found)
    if not revisions:
        which = "" if revision is None else f" with revision {revision}"
        raise NotFound(f"there is no evaluation {evaluation_id[:64]}{which}")
    return revisions


def _erase_requests(conn: Connection, evaluation_id: str) -> None:
    """The request as it was accepted, or as it waits for the audit sample; what has not been done can't be any more."""
    columns = accepted_work.c
    ours = or_(columns.work_id == evaluation_id, columns.result_id == evaluation_id, columns.parent_id == evaluation_id)
    conn.execute(
        update(accepted_work)
        .where(ours, columns.status == "accepted")
        .values(status="failed", error=_ERASED_WORK, finished_at=now(), lease_owner="")
    )
    conn.execute(update(accepted_work).where(ours).values(request=b""))


def _reduce_records(conn: Connection, evaluation_id: str, revisions: tuple[int, ...]) -> None:
    columns = evaluations.c
    for revision in revisions:
        row = (columns.evaluation_id == evaluation_id) & (columns.revision == revision)
        record = json.loads(bytes(conn.execute(select(columns.record).where(row)).scalar_one()))
        conn.execute(update(evaluations).where(row).values(record=without_content(record)))
