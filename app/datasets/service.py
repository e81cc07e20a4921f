"""What callers can do with datasets: store, name, list, read, compare."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TypeVar

from app.datasets import export
from app.datasets.diff import DiffStore
from app.datasets.model import (
    AddedDataset,
    Change,
    Dataset,
    DatasetDiff,
    DatasetVersion,
    Form,
    NamedDataset,
    StoredExample,
)
from app.datasets.store import NameStore
from app.errors import NotAcceptable, NotFound
from app.runs.dataset import Source, read_examples, read_stored
from app.runs.dataset_store import DatasetStore, StoredDataset
from app.runs.model import Page
from app.store.database import Database
from app.store.paging import decode_cursor, encode_cursor, is_storable
from layers.model import EvalExample

T = TypeVar("T")

EXPORT_ROWS = 500
CHANGES: tuple[Change, ...] = ("added", "removed", "changed")
NO_PARQUET = "Parquet can't be written here: the service was installed without its extra, `arbiter-l8[parquet]`"


class DatasetService:
    """The use cases of datasets. Raises the `ServiceError` family; `BadRequest` for a cursor that is not ours."""

    def __init__(self, database: Database, *, max_examples: int, with_parquet: bool | None = None) -> None:
        self._datasets = DatasetStore(database)
        self._names = NameStore(database)
        self._diffs = DiffStore(database)
        self._max_examples = max_examples
        self._with_parquet = export.has_parquet() if with_parquet is None else with_parquet

    async def add(self, source: Source, *, name: str | None = None) -> AddedDataset:
        """Store a file once by its content, and under `name` as its newest version unless it is that already.

        Raises `DatasetError` (also `EmptyDataset`, `DuplicateExampleIds`); nothing is left behind then.
        """
        return await self.add_examples(read_examples(source, max_examples=self._max_examples), name=name)

    async def add_examples(self, examples: Iterator[EvalExample], *, name: str | None = None) -> AddedDataset:
        """The same from validated examples, each with an id."""
        stored = await self._datasets.add(examples)
        version = (await self._names.point(name, stored.id))[0] if name is not None else None
        found = await self.get(stored.id)
        return AddedDataset(**{**dict(found), "created": stored.created, "version": version})

    async def get(self, dataset_id: str) -> Dataset:
        """Raises `NotFound`."""
        found = await self._names.get(dataset_id)
        if found is None:
            raise NotFound("there is no such dataset")
        return found

    async def list(self, *, limit: int, cursor: str | None = None) -> Page[Dataset]:
        """Newest first."""
        before = None if cursor is None else int(decode_cursor(cursor, int)[0])
        rows = await self._names.list(limit + 1, before)
        more = encode_cursor(rows[limit - 1][0]) if len(rows) > limit else None
        return Page(items=tuple(dataset for _, dataset in rows[:limit]), next_cursor=more)

    async def name(self, name: str, dataset_id: str) -> tuple[DatasetVersion, bool]:
        """Let `name` point at a stored dataset; whether that took a new version. Raises `NotFound`."""
        await self.get(dataset_id)
        return await self._names.point(name, dataset_id)

    async def names(self, *, limit: int, cursor: str | None = None) -> Page[NamedDataset]:
        """Every name with its newest version, in the order of the names."""
        after = None if cursor is None else str(decode_cursor(cursor, str)[0])
        rows = await self._names.names(limit + 1, after)
        return Page(items=tuple(rows[:limit]), next_cursor=_more(rows, limit, lambda row: row.name))

    async def versions(self, name: str, *, limit: int, cursor: str | None = None) -> Page[NamedDataset]:
        """The versions of a name, newest first. Raises `NotFound`."""
        before = None if cursor is None else int(decode_cursor(cursor, int)[0])
        rows = await self._names.versions(name, limit + 1, before) if is_storable(name) else []
        if not rows and before is None:
            raise NotFound("there is no dataset with this name")
        return Page(items=tuple(rows[:limit]), next_cursor=_more(rows, limit, lambda row: row.version))

    async def examples(self, dataset_id: str, *, limit: int, cursor: str | None = None) -> Page[StoredExample]:
        """Examples in the dataset's order. Raises `NotFound`, `UnreadableExample`."""
        stored = await self._stored(dataset_id)
        start = 0 if cursor is None else int(decode_cursor(cursor, int)[0]) + 1
        rows = await self._names.examples(stored, start, limit + 1)
        more = encode_cursor(rows[limit - 1][0]) if len(rows) > limit else None
        items = tuple(read_stored(data, position, StoredExample) for position, data in rows[:limit])
        return Page(items=items, next_cursor=more)

    async def export(self, dataset_id: str, form: Form) -> AsyncIterator[bytes]:
        """All examples as a stream. Raises, before the stream begins, `NotFound`; `NotAcceptable` without the extra."""
        stored = await self._stored(dataset_id)
        batches = self._all(stored)
        match form:
            case "ndjson":
                return export.ndjson(batches)
            case "csv":
                return export.csv_text(batches)
            case "parquet":
                if not self._with_parquet:
                    raise NotAcceptable(NO_PARQUET)
                return export.parquet(batches)

    async def diff(
        self, old_id: str, new_id: str, *, change: Change | None = None, limit: int, cursor: str | None = None
    ) -> DatasetDiff:
        """What has to be added, removed and changed to come from one dataset to the other. Raises `NotFound`."""
        after = None if cursor is None else str(decode_cursor(cursor, str)[0])
        old, new = await self._stored(old_id), await self._stored(new_id)
        kinds = CHANGES if change is None else (change,)
        rows = await self._diffs.page(old, new, kinds, limit + 1, after)
        summary = await self._diffs.summary(old, new)
        return DatasetDiff(
            from_id=old_id,
            to_id=new_id,
            counts=summary.counts,
            moved=summary.moved,
            items=tuple(rows[:limit]),
            next_cursor=_more(rows, limit, lambda row: row.id),
        )

    async def _stored(self, dataset_id: str) -> StoredDataset:
        stored = await self._datasets.find(dataset_id)
        if stored is None:
            raise NotFound("there is no such dataset")
        return stored

    async def _all(self, dataset: StoredDataset) -> AsyncIterator[Sequence[bytes]]:
        start = 0
        while rows := await self._names.examples(dataset, start, EXPORT_ROWS):
            yield [data for _, data in rows]
            start = rows[-1][0] + 1


def _more(rows: Sequence[T], limit: int, key: Callable[[T], str | int]) -> str | None:
    return encode_cursor(key(rows[limit - 1])) if len(rows) > limit else None
