"""The cases that a written report shows, found by the database."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, case, func, select

from app.reports.view import Case
from app.runs.model import Record
from app.runs.record_store import current_records
from app.runs.store import StoredRun
from app.runs.tables import dataset_examples, records
from app.store.database import Database
from layers.model import JsonObject


class CaseStore:
    """Reads single cases of runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def worst(self, run: StoredRun, limit: int) -> list[Case]:
        """Wrong predictions, the gravest first.

        Graver is what lies further from the expected label in the profile's order, then what was said with more
        confidence where that means certainty, then what comes first in the dataset.
        """
        order: list[ColumnElement[object]] = []
        if len(run.config.profile.labels) > 1:
            order.append(func.abs(_rank(run, records.c.expected) - _rank(run, records.c.scored)).desc())
        if run.config.profile.confidence_means == "certainty":
            order.append(func.coalesce(records.c.confidence, -1.0).desc())
        wrong = [records.c.scored.is_not(None), records.c.scored != records.c.expected]
        return await self._cases(run, wrong, order, limit)

    async def failed(self, run: StoredRun, kind: str, limit: int) -> list[Case]:
        """Examples that failed for this kind of reason, in the dataset's order."""
        return await self._cases(run, [records.c.scored.is_(None), records.c.error_kind == kind], [], limit)

    async def first_examples(self, dataset_no: int, limit: int) -> list[JsonObject]:
        """The first examples of a dataset, as JSON."""
        query = (
            select(dataset_examples.c.example)
            .where(dataset_examples.c.dataset_no == dataset_no)
            .order_by(dataset_examples.c.position)
            .limit(limit)
        )
        rows = await self._database.read(lambda conn: conn.scalars(query).all())
        return [json.loads(data) for data in rows]

    async def _cases(
        self,
        run: StoredRun,
        where: Sequence[ColumnElement[bool]],
        order: Sequence[ColumnElement[object]],
        limit: int,
    ) -> list[Case]:
        found = (
            select(records.c.position, records.c.record)
            .where(*current_records(run), *where)
            .order_by(*order, records.c.position, records.c.repeat)
            .limit(limit)
        )

        def look(conn: Connection) -> list[Case]:
            rows = conn.execute(found).all()
            examples = _examples(conn, run.dataset_no, {row.position for row in rows})
            return [Case.of(Record.model_validate_json(row.record), examples.get(row.position, {})) for row in rows]

        return await self._database.read(look)


def _rank(run: StoredRun, label: ColumnElement[str]) -> ColumnElement[int]:
    """A label's place in the profile's order; one that is not in it counts as the middle."""
    profile = run.config.profile
    places = {profile.fold(name): place for place, name in enumerate(profile.labels)}
    return case(*((label == name, place) for name, place in places.items()), else_=len(places) // 2)


def _examples(conn: Connection, dataset_no: int, positions: set[int]) -> dict[int, JsonObject]:
    query = select(dataset_examples.c.position, dataset_examples.c.example).where(
        dataset_examples.c.dataset_no == dataset_no, dataset_examples.c.position.in_(positions)
    )
    return {row.position: json.loads(row.example) for row in conn.execute(query)}
