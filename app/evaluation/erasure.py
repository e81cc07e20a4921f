"""Erase what was recorded of an evaluation; what proves it stays."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict
from sqlalchemy import ColumnElement, Connection, func, or_, select, update

from app.errors import Conflict, NotFound
from app.evaluation.record import without_content
from app.evaluation.standing import ERASED_WORK
from app.evaluation.store import Ledger
from app.evaluation.tables import accepted_work, evaluations
from app.store.database import Database
from app.store.ids import now, random_bytes
from app.store.paging import is_storable
from layers.provenance import Stage

logger = logging.getLogger(__name__)


class Erased(BaseModel):
    """What was erased: `n_erased` stages of these revisions still had their payload.

    Accepted work that is not done has no revision, and of stages its input alone.
    """

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
    hash of the content, which a guess could be held against. Accepted work that is not done fails, and nothing is
    stored for it any more. Raises `NotFound` for an unknown evaluation or stage, `Conflict` for work that is not done
    whose input is not among the stages.
    """
    names = tuple(sorted(set(stages)))
    done = await database.write(lambda conn: _erase(conn, ledger, evaluation_id, names, revision))
    logger.info("erased %s of evaluation %s; stages: %d", ", ".join(names), evaluation_id, done.n_erased)
    return done


def _erase(
    conn: Connection, ledger: Ledger, evaluation_id: str, names: tuple[str, ...], revision: int | None
) -> Erased:
    works = _lock(conn, evaluation_id)
    if (own := works.get(evaluation_id)) is not None and own.result_id is not None:
        evaluation_id = own.result_id  # it is what this id shows
        _lock(conn, evaluation_id)
    revisions = _revisions(conn, evaluation_id, revision)
    if not revisions:
        if own is None or revision is not None:
            which = "" if revision is None else f" with revision {revision}"
            raise NotFound(f"there is no evaluation {evaluation_id[:64]}{which}")
        return _erase_undone(conn, evaluation_id, names, n_erased=int(own.has_request))
    known = {stage.name for each in revisions for stage in ledger.stages_of(conn, evaluation_id, each)}
    _check_stages(evaluation_id, names, known)
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
    return tuple(found)


def _check_stages(evaluation_id: str, names: Collection[str], known: Collection[str]) -> None:
    if missing := set(names) - set(known):
        raise NotFound(f"evaluation {evaluation_id} has no stage {', '.join(sorted(missing))[:200]}")


class _Work(NamedTuple):
    result_id: str | None
    has_request: bool


def _lock(conn: Connection, evaluation_id: str) -> dict[str, _Work]:
    """Hold whatever is stored, or could lead to something stored, under this id; the accepted work among it."""
    if not is_storable(evaluation_id):
        return {}
    columns = accepted_work.c
    query = select(columns.work_id, columns.result_id, func.length(columns.request) > 0).where(_ours(evaluation_id))
    works = conn.execute(query.order_by(columns.work_id).with_for_update()).all()
    stored = select(evaluations.c.revision).where(evaluations.c.evaluation_id == evaluation_id)
    conn.execute(stored.order_by(evaluations.c.revision).with_for_update()).all()
    return {work_id: _Work(result_id, bool(has_request)) for work_id, result_id, has_request in works}


def _erase_undone(conn: Connection, work_id: str, names: tuple[str, ...], *, n_erased: int) -> Erased:
    """Of work that is not done, or failed, there is only the request; whoever is at it can store nothing any more."""
    _check_stages(work_id, names, [stage.value for stage in Stage])
    if Stage.INPUT not in names:
        raise Conflict("this is accepted and not done: all there is to erase of it is `input`, which ends it")
    _erase_requests(conn, work_id)
    return Erased(evaluation_id=work_id, revisions=(), stages=names, n_erased=n_erased)


def _ours(evaluation_id: str) -> ColumnElement[bool]:
    columns = accepted_work.c
    return or_(columns.work_id == evaluation_id, columns.result_id == evaluation_id, columns.parent_id == evaluation_id)


def _erase_requests(conn: Connection, evaluation_id: str) -> None:
    """The request as it was accepted, or as it waits for the audit sample; what has not been done can't be any more."""
    ours = _ours(evaluation_id)
    conn.execute(
        update(accepted_work)
        .where(ours, accepted_work.c.status == "accepted")
        .values(status="failed", error=ERASED_WORK, finished_at=now(), lease_owner="")
    )
    conn.execute(update(accepted_work).where(ours).values(request=b""))


def _reduce_records(conn: Connection, evaluation_id: str, revisions: tuple[int, ...]) -> None:
    columns = evaluations.c
    for revision in revisions:
        row = (columns.evaluation_id == evaluation_id) & (columns.revision == revision)
        record = json.loads(bytes(conn.execute(select(columns.record).where(row)).scalar_one()))
        conn.execute(update(evaluations).where(row).values(record=without_content(record)))
