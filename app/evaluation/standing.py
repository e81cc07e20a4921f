"""Whether what is about to be stored may still be: not if it was erased while it was worked on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sqlalchemy import Connection, select

from app.errors import Conflict
from app.evaluation.tables import accepted_work, evaluations
from layers.canonical import canonical_bytes

ERASED_WORK = canonical_bytes({"kind": "erased", "message": "its input was erased before it was done"})
"""Why accepted work failed that was erased."""


class ErasedMeanwhile(Conflict):
    """`about` is the accepted work, or the evaluation with an earlier revision, that was erased."""

    def __init__(self, about: str) -> None:
        super().__init__("its input was erased before it was done")
        self.about = about


class Pending(Protocol):
    """A record about to be stored; `work_id` is the accepted work that it is stored for."""

    @property
    def evaluation_id(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def digest(self) -> bytes: ...
    @property
    def work_id(self) -> str | None: ...


def check_standing(conn: Connection, drafts: Sequence[Pending]) -> None:
    """Raises `ErasedMeanwhile`.

    Rows are locked before they are looked at, here as where they are erased: on PostgreSQL whoever comes second then
    sees what the first one did.
    """
    if works := sorted({draft.work_id for draft in drafts if draft.work_id is not None}):
        columns = accepted_work.c
        query = select(columns.work_id, columns.error).where(columns.work_id.in_(works)).order_by(columns.work_id)
        for work_id, error in conn.execute(query.with_for_update()):
            if error is not None and bytes(error) == ERASED_WORK:
                raise ErasedMeanwhile(work_id)
    for draft in drafts:
        if draft.revision > 1 and not _has_content(conn, draft):
            raise ErasedMeanwhile(draft.evaluation_id)


def _has_content(conn: Connection, draft: Pending) -> bool:
    """Whether earlier revisions still stand for this content: erasing takes its hash away."""
    columns = evaluations.c
    earlier = (columns.evaluation_id == draft.evaluation_id) & (columns.content_hash == draft.digest)
    return conn.execute(select(columns.revision).where(earlier).with_for_update()).first() is not None
