"""Datasets in the store: once per content, in rows that are read a chunk at a time."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from sqlalchemy import Connection, UpdateBase, and_, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.errors import Unavailable
from app.runs.dataset import MAX_LISTED, DuplicateExampleIds, example_bytes
from app.runs.tables import dataset_examples, datasets
from app.store.database import Database
from app.store.ids import now
from app.store.rows import insert_rows
from layers.model import EvalExample

BATCH = 500
"""Rows that one write takes, so that a large upload never keeps `/evaluate` from the writer for long."""

DELETE_BATCH = 500
"""Rows that one write takes away, for the same reason."""

_GIVEN_UP = ""
"""Stands in `created_at` of an upload that is being taken away: earlier than any time."""

_UNFINISHED = datasets.c.dataset_id.is_(None)
_ALIVE = and_(_UNFINISHED, datasets.c.created_at != _GIVEN_UP)


@dataclass(frozen=True, slots=True)
class StoredDataset:
    """A dataset by its number in the store and the hash of its content. `created`: it was stored just now."""

    no: int
    id: str
    n_examples: int
    created: bool = field(default=False, compare=False)


class DatasetStore:
    """Adds and finds datasets. The hash is SHA-256 over the examples' canonical bytes, each followed by a newline."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, examples: Iterator[EvalExample]) -> StoredDataset:
        """Store a dataset while it is being read; one of the same content that is there already is answered instead.

        Raises what `examples` raises, and `DuplicateExampleIds`; nothing is left behind then.
        """
        number = await self._database.write(_open)
        try:
            dataset_id, count = await self._fill(number, examples)
            await self._check_unique(number)
            if (known := await self.find(dataset_id)) is None:
                return await self._seal(StoredDataset(number, dataset_id, count, created=True))
        except BaseException:
            await asyncio.shield(self._drop(number))
            raise
        await self._drop(number)
        return known

    async def find(self, dataset_id: str) -> StoredDataset | None:
        """The dataset of that hash."""
        query = select(datasets.c.dataset_no, datasets.c.n_examples).where(datasets.c.dataset_id == dataset_id)
        row = await self._database.read(lambda conn: conn.execute(query).first())
        return None if row is None else StoredDataset(row.dataset_no, dataset_id, row.n_examples)

    async def drop_unfinished(self, before: str) -> None:
        """Forget uploads that came to no end and of which nothing came since that time, in small steps.

        An upload that goes on meanwhile, in whatever process, either keeps all it has or is refused.
        """
        silent = and_(_UNFINISHED, datasets.c.created_at < before)
        for number in await self._database.read(
            lambda conn: conn.scalars(select(datasets.c.dataset_no).where(silent)).all()
        ):
            mark = update(datasets).where(datasets.c.dataset_no == number, silent).values(created_at=_GIVEN_UP)
            if await self._database.write(partial(_execute, statement=mark)):
                await self._drop(number)

    async def _fill(self, number: int, examples: Iterator[EvalExample]) -> tuple[str, int]:
        digest, count = hashlib.sha256(), 0
        while rows := await asyncio.to_thread(_rows, number, count, examples, digest):
            count += len(rows)
            await self._database.write(partial(_grow, number=number, rows=rows))
        return "sha256:" + digest.hexdigest(), count

    async def _check_unique(self, number: int) -> None:
        twice = (
            select(dataset_examples.c.example_id)
            .where(dataset_examples.c.dataset_no == number)
            .group_by(dataset_examples.c.example_id)
            .having(func.count() > 1)
        )

        def look(conn: Connection) -> tuple[list[str], int]:
            some = conn.scalars(twice.order_by(func.min(dataset_examples.c.position)).limit(MAX_LISTED)).all()
            return list(some), conn.scalar(select(func.count()).select_from(twice.subquery())) or 0 if some else 0

        some, count = await self._database.read(look)
        if count:
            raise DuplicateExampleIds(some, count)

    async def _seal(self, dataset: StoredDataset) -> StoredDataset:
        change = (
            update(datasets)
            .where(datasets.c.dataset_no == dataset.no, _ALIVE)
            .values(dataset_id=dataset.id, n_examples=dataset.n_examples, created_at=now())
        )
        try:
            if not await self._database.write(partial(_execute, statement=change)):
                raise _given_up()
        except IntegrityError:  # somebody stored the same content meanwhile
            known = await self.find(dataset.id)
            if known is None:
                raise
            await self._drop(dataset.no)
            return known
        return dataset

    async def _drop(self, number: int) -> None:
        top = select(func.max(dataset_examples.c.position)).where(dataset_examples.c.dataset_no == number)
        last = await self._database.read(lambda conn: conn.scalar(top))
        for start in range(0, (-1 if last is None else last) + 1, DELETE_BATCH):
            some = delete(dataset_examples).where(
                dataset_examples.c.dataset_no == number,
                dataset_examples.c.position.between(start, start + DELETE_BATCH - 1),
            )
            await self._database.write(partial(_execute, statement=some))
        gone = delete(datasets).where(datasets.c.dataset_no == number, _UNFINISHED)
        await self._database.write(partial(_execute, statement=gone))


def _open(conn: Connection) -> int:
    row = insert(datasets).values(dataset_id=None, n_examples=0, created_at=now()).returning(datasets.c.dataset_no)
    return int(conn.execute(row).scalar_one())


def _grow(conn: Connection, number: int, rows: list[tuple[Any, ...]]) -> None:
    """Add rows to an upload, and let everybody see that it is alive."""
    alive = update(datasets).where(datasets.c.dataset_no == number, _ALIVE).values(created_at=now())
    if not _execute(conn, alive):
        raise _given_up()
    insert_rows(conn, dataset_examples, rows)


def _given_up() -> Unavailable:
    return Unavailable("the upload rested so long that it was given up; send it again")


def _execute(conn: Connection, statement: UpdateBase) -> int:
    """How many rows were concerned."""
    return conn.execute(statement).rowcount


def _rows(number: int, start: int, examples: Iterator[EvalExample], digest: Any) -> list[tuple[Any, ...]]:
    rows = []
    for position, example in enumerate(islice(examples, BATCH), start):
        data = example_bytes(example)
        digest.update(data + b"\n")
        rows.append((number, position, example.id, data))
    return rows
