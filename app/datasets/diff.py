"""How two stored datasets differ, found by the database so that a million examples are never held."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Select, func, select

from app.datasets.model import Change, DiffCounts, ExampleChange, changed_fields
from app.runs.dataset_store import StoredDataset
from app.runs.tables import dataset_examples
from app.store.database import Database

KEPT = 256
"""Pairs of datasets whose counts are remembered; datasets never change."""

_old = dataset_examples.alias("old")
_new = dataset_examples.alias("new")


@dataclass(frozen=True, slots=True)
class Summary:
    """The counts of a pair, and whether what both have stands in another order."""

    counts: DiffCounts
    moved: bool


class DiffStore:
    """Compares datasets by example id."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: OrderedDict[tuple[int, int], Summary] = OrderedDict()

    async def summary(self, old: StoredDataset, new: StoredDataset) -> Summary:
        """Counts over all examples: one pass by the database the first time."""
        key = (old.no, new.no)
        if key not in self._kept:
            self._kept[key] = await self._database.read(lambda conn: _summary(conn, old, new))
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]

    async def page(
        self, old: StoredDataset, new: StoredDataset, kinds: Sequence[Change], limit: int, after: str | None
    ) -> list[ExampleChange]:
        """Up to `limit` examples that differ, in the order of their ids as the database sorts them."""
        if old.no == new.no:
            return []
        return await self._database.read(lambda conn: _page(conn, (old.no, new.no), kinds, limit, after))


def _summary(conn: Connection, old: StoredDataset, new: StoredDataset) -> Summary:
    if old.no == new.no:
        return Summary(DiffCounts(added=0, removed=0, changed=0, unchanged=new.n_examples), moved=False)
    both = select(func.count()).where(*_paired(old.no, new.no))
    n_both = conn.scalar(both) or 0
    n_changed = conn.scalar(both.where(_old.c.example != _new.c.example)) or 0
    counts = DiffCounts(
        added=new.n_examples - n_both, removed=old.n_examples - n_both, changed=n_changed, unchanged=n_both - n_changed
    )
    return Summary(counts, moved=_moved(conn, old.no, new.no))


def _moved(conn: Connection, old: int, new: int) -> bool:
    """Whether the second dataset's positions ever step back, read in the order of the first."""
    pairs = select(_old.c.position, _new.c.position.label("place")).where(*_paired(old, new)).subquery()
    before = func.lag(pairs.c.place).over(order_by=pairs.c.position).label("before")
    steps = select(pairs.c.place, before).subquery()
    return conn.execute(select(steps.c.place).where(steps.c.before > steps.c.place).limit(1)).first() is not None


def _paired(old: int, new: int) -> list[ColumnElement[bool]]:
    return [_old.c.dataset_no == old, _new.c.dataset_no == new, _new.c.example_id == _old.c.example_id]


def _page(
    conn: Connection, pair: tuple[int, int], kinds: Sequence[Change], limit: int, after: str | None
) -> list[ExampleChange]:
    # Each kind is walked along the index of ids; the pages are merged by the ids' places in one common order.
    found: dict[str, ExampleChange] = {}
    for kind in kinds:
        query, key = _query(kind, *pair)
        if after is not None:
            query = query.where(key > after)
        for row in conn.execute(query.order_by(key).limit(limit)):
            fields = changed_fields(json.loads(row.before), json.loads(row.after)) if kind == "changed" else ()
            found[row.example_id] = ExampleChange(id=row.example_id, change=kind, fields=fields)
    return [found[name] for name in _sorted(conn, pair, list(found))[:limit]]


def _query(kind: Change, old: int, new: int) -> tuple[Select[tuple[str]], ColumnElement[str]]:
    if kind == "changed":
        # The other text is looked up row by row: in a join SQLite would carry a page's "after this id" over to the
        # second table and walk it once for every row of the first.
        twins = select(_new.c.example).where(_new.c.dataset_no == new, _new.c.example_id == _old.c.example_id)
        after = twins.limit(1).scalar_subquery()
        texts = (_old.c.example_id, _old.c.example.label("before"), after.label("after"))
        return select(*texts).where(_old.c.dataset_no == old, after != _old.c.example), _old.c.example_id
    here, there, number, other = (_new, _old, new, old) if kind == "added" else (_old, _new, old, new)
    twin = select(there.c.position).where(there.c.dataset_no == other, there.c.example_id == here.c.example_id)
    return select(here.c.example_id).where(here.c.dataset_no == number, ~twin.exists()), here.c.example_id


def _sorted(conn: Connection, pair: tuple[int, int], ids: list[str]) -> list[str]:
    """In the database's own order of texts, which need not be Python's."""
    key = dataset_examples.c.example_id
    query = select(key).where(dataset_examples.c.dataset_no.in_(pair), key.in_(ids)).distinct().order_by(key)
    return list(conn.scalars(query))
