"""Names of datasets in the store, and lists of what is there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, Row, func, insert, select
from sqlalchemy.exc import IntegrityError

from app.datasets.model import Dataset, DatasetVersion, NamedDataset, links_of
from app.datasets.tables import dataset_versions
from app.runs.dataset_store import StoredDataset
from app.runs.tables import dataset_examples, datasets
from app.store.database import Database
from app.store.ids import now

MAX_NAMES = 100
"""Names shown with a dataset."""

_version = dataset_versions.c


class NameStore:
    """Versions of names, insert-only, and datasets with the names they go by."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def point(self, name: str, dataset_id: str) -> tuple[DatasetVersion, bool]:
        """Make `dataset_id` the newest version of `name`; whether that took a new version."""
        while True:
            try:
                return await self._database.write(lambda conn: _point(conn, name, dataset_id))
            except IntegrityError:  # another process took that number
                continue

    async def versions(self, name: str, limit: int, before: int | None) -> Sequence[NamedDataset]:
        """Newest first."""
        query = (
            select(*_version, datasets.c.n_examples)
            .join(datasets, datasets.c.dataset_id == _version.dataset_id)
            .where(_version.name == name)
            .order_by(_version.version.desc())
            .limit(limit)
        )
        if before is not None:
            query = query.where(_version.version < before)
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        return [NamedDataset(**row._mapping) for row in rows]

    async def names(self, limit: int, after: str | None) -> Sequence[NamedDataset]:
        """Every name once, with its newest version, in the order of the names."""
        newest = select(_version.name, func.max(_version.version).label("version")).group_by(_version.name).subquery()
        query = (
            select(*_version, datasets.c.n_examples)
            .join(newest, (newest.c.name == _version.name) & (newest.c.version == _version.version))
            .join(datasets, datasets.c.dataset_id == _version.dataset_id)
            .order_by(_version.name)
            .limit(limit)
        )
        if after is not None:
            query = query.where(_version.name > after)
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        return [NamedDataset(**row._mapping) for row in rows]

    async def list(self, limit: int, before: int | None) -> Sequence[tuple[int, Dataset]]:
        """Number in the store and dataset, newest first."""
        query = select(datasets).where(datasets.c.dataset_id.is_not(None)).order_by(datasets.c.dataset_no.desc())
        if before is not None:
            query = query.where(datasets.c.dataset_no < before)

        def look(conn: Connection) -> list[tuple[int, Dataset]]:
            rows = conn.execute(query.limit(limit)).all()
            return [(row.dataset_no, _dataset(row, _names_of(conn, row.dataset_id))) for row in rows]

        return await self._database.read(look)

    async def get(self, dataset_id: str) -> Dataset | None:
        query = select(datasets).where(datasets.c.dataset_id == dataset_id)

        def look(conn: Connection) -> Dataset | None:
            row = conn.execute(query).first()
            return None if row is None else _dataset(row, _names_of(conn, dataset_id))

        return await self._database.read(look)

    async def examples(self, dataset: StoredDataset, start: int, limit: int) -> Sequence[tuple[int, bytes]]:
        """Position and canonical bytes of up to `limit` examples from position `start` on."""
        example = dataset_examples.c
        query = (
            select(example.position, example.example)
            .where(example.dataset_no == dataset.no, example.position >= start)
            .order_by(example.position)
            .limit(limit)
        )
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        return [(row.position, row.example) for row in rows]


def _point(conn: Connection, name: str, dataset_id: str) -> tuple[DatasetVersion, bool]:
    query = select(dataset_versions).where(_version.name == name).order_by(_version.version.desc()).limit(1)
    last = conn.execute(query).first()
    if last is not None and last.dataset_id == dataset_id:
        return DatasetVersion(**last._mapping), False
    version = 1 if last is None else last.version + 1
    made = DatasetVersion(name=name, version=version, dataset_id=dataset_id, created_at=now())
    conn.execute(insert(dataset_versions).values(made.model_dump()))
    return made, True


def _names_of(conn: Connection, dataset_id: str) -> Iterable[DatasetVersion]:
    order = (_version.created_at.desc(), _version.name, _version.version.desc())
    query = select(dataset_versions).where(_version.dataset_id == dataset_id).order_by(*order).limit(MAX_NAMES)
    return [DatasetVersion(**row._mapping) for row in conn.execute(query)]


def _dataset(row: Row[tuple[int, str, int, str]], names: Iterable[DatasetVersion]) -> Dataset:
    return Dataset(
        dataset_id=row.dataset_id,
        n_examples=row.n_examples,
        created_at=row.created_at,
        names=tuple(names),
        links=links_of(row.dataset_id),
    )
