"""Read two runs side by side, some thousand examples at a time."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, select

from app.runs.analysis_store import CHUNK, GROUP_KEY, contains
from app.runs.contrasts import Listed
from app.runs.pairing import AXES_KEY, MAX_LISTED, Answers, Pairing, axis_label
from app.runs.record_store import current_records
from app.runs.store import StoredRun
from app.runs.tables import dataset_examples, records
from app.store.database import Database
from layers.model import JsonObject
from layers.profile import SystemProfile

MAX_KNOWN = 1_000
"""Datasets of which it is remembered what is in them."""

MAX_DUPLICATES = 10_000
"""Ids that repeat in one dataset and are kept out; datasets are refused with even one, so this is for damaged ones."""

_example = dataset_examples.c


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """What has to be known of a dataset before it is read: are there groups, label axes, ids that repeat."""

    groups: bool
    axes: bool
    twice: frozenset[str]


class ComparisonStore:
    """Pairs up runs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._facts: dict[int, DatasetFacts] = {}

    async def pair(self, candidate: StoredRun, baseline: StoredRun, paths: Sequence[str] = ()) -> Pairing:
        """All pairs there are at present."""
        pairing = Pairing(candidate.config.profile, baseline.config.profile, paths)
        facts = await self._facts_of(candidate.dataset_no), await self._facts_of(baseline.dataset_no)
        reading = _Reading(candidate, baseline, pairing, facts)
        for start in range(0, n_examples(candidate), CHUNK):
            await self._database.read(partial(reading.add_chunk, start=start))
        await self._database.read(reading.add_missing)
        return pairing

    async def _facts_of(self, dataset_no: int) -> DatasetFacts:
        """Datasets never change, so each is looked at once."""
        if dataset_no not in self._facts:
            if len(self._facts) >= MAX_KNOWN:
                self._facts.clear()
            self._facts[dataset_no] = await self._database.read(partial(_facts, dataset_no=dataset_no))
        return self._facts[dataset_no]


def n_examples(run: StoredRun) -> int:
    """How many examples of its dataset a run asks about: the first so many."""
    return run.n_total // run.config.options.repeats


async def duplicates_of(database: Database, dataset_no: int) -> Listed:
    """Ids that stand more than once in a dataset."""
    found = sorted(await database.read(partial(_twice, dataset_no=dataset_no)))
    return Listed(count=len(found), ids=tuple(found[:MAX_LISTED]))


def _facts(conn: Connection, dataset_no: int) -> DatasetFacts:
    return DatasetFacts(
        groups=contains(conn, dataset_no, GROUP_KEY),
        axes=contains(conn, dataset_no, AXES_KEY),
        twice=_twice(conn, dataset_no),
    )


def _twice(conn: Connection, dataset_no: int) -> frozenset[str]:
    query = (
        select(_example.example_id)
        .where(_example.dataset_no == dataset_no)
        .group_by(_example.example_id)
        .having(func.count() > 1)
        .limit(MAX_DUPLICATES)
    )
    return frozenset(conn.scalars(query))


class _Reading:
    """One comparison while it is being read."""

    def __init__(
        self, candidate: StoredRun, baseline: StoredRun, pairing: Pairing, facts: tuple[DatasetFacts, DatasetFacts]
    ) -> None:
        self._candidate = candidate
        self._baseline = baseline
        self._pairing = pairing
        self._axes = facts[0].axes and facts[1].axes
        self._inside = bool(pairing.slices) or facts[0].groups or self._axes
        self._twice = facts[0].twice | facts[1].twice
        for example_id in sorted(self._twice):
            pairing.duplicates.add(example_id)

    def add_chunk(self, conn: Connection, start: int) -> None:
        """Pair the candidate's examples from position `start` on."""
        stop = min(start + CHUNK, n_examples(self._candidate))
        here = _example.position.between(start, stop - 1)
        examples = self._examples(conn, self._candidate, here)
        places = self._places(conn, {row.example_id: row.position for row in examples})
        after = self._records(conn, self._candidate, records.c.position.between(start, stop - 1))
        before = self._records(conn, self._baseline, self._at(places, start, stop))
        others = self._other_examples(conn, places)
        for row in examples:
            self._add(row, places.get(row.example_id), after.get(row.position), before, others)

    def add_missing(self, conn: Connection) -> None:
        """List the baseline's examples that the candidate does not have."""
        theirs, ours = dataset_examples.alias("theirs"), dataset_examples.alias("ours")
        known = select(ours.c.position).where(
            ours.c.dataset_no == self._candidate.dataset_no,
            ours.c.example_id == theirs.c.example_id,
            _by_id(ours.c.position) < n_examples(self._candidate),
        )
        query = select(theirs.c.example_id).where(
            theirs.c.dataset_no == self._baseline.dataset_no, theirs.c.position < n_examples(self._baseline)
        )
        if self._same_dataset:
            query = query.where(theirs.c.position >= n_examples(self._candidate))
        else:
            query = query.where(~known.exists())
        for example_id in conn.scalars(query.order_by(theirs.c.position)):
            self._pairing.missing.add(example_id)

    @property
    def _same_dataset(self) -> bool:
        return self._candidate.dataset_no == self._baseline.dataset_no

    def _add(
        self,
        row: Row[Any],
        place: int | None,
        after: list[Row[Any]] | None,
        before: Mapping[int, list[Row[Any]]],
        others: Mapping[int, JsonObject],
    ) -> None:
        if row.example_id in self._twice:
            return
        if place is None:
            self._pairing.added.add(row.example_id)
            return
        if after is None or place not in before:
            self._pairing.add_pending()
            return
        example = json.loads(row.example) if self._inside else None
        other = example if self._same_dataset else others.get(place)
        self._pairing.add(
            row.example_id,
            example,
            self._answers(after, example, self._candidate.config.profile),
            self._answers(before[place], other, self._baseline.config.profile),
        )

    def _examples(self, conn: Connection, run: StoredRun, where: ColumnElement[bool]) -> Sequence[Row[Any]]:
        columns = (_example.position, _example.example_id, *([_example.example] if self._inside else []))
        query = select(*columns).where(_example.dataset_no == run.dataset_no, where)
        return conn.execute(query).all()

    def _places(self, conn: Connection, ids: Mapping[str, int]) -> dict[str, int]:
        """Where the baseline has these examples."""
        last = n_examples(self._baseline)
        if self._same_dataset:
            return {example_id: position for example_id, position in ids.items() if position < last}
        query = select(_example.example_id, _example.position).where(
            _example.dataset_no == self._baseline.dataset_no,
            _example.example_id.in_(list(ids)),
            _by_id(_example.position) < last,
        )
        return {row.example_id: row.position for row in conn.execute(query)}

    def _at(self, places: Mapping[str, int], start: int, stop: int) -> ColumnElement[bool]:
        if self._same_dataset:
            return records.c.position.between(start, stop - 1)
        return records.c.position.in_(list(places.values()))

    def _other_examples(self, conn: Connection, places: Mapping[str, int]) -> dict[int, JsonObject]:
        """The baseline's own examples, where its label axes may differ."""
        if not self._axes or self._same_dataset:
            return {}
        rows = self._examples(conn, self._baseline, _example.position.in_(list(places.values())))
        return {row.position: json.loads(row.example) for row in rows}

    def _records(self, conn: Connection, run: StoredRun, where: ColumnElement[bool]) -> dict[int, list[Row[Any]]]:
        columns = [records.c.position, records.c.expected, records.c.scored]
        if self._axes:
            columns.append(records.c.record)
        found: defaultdict[int, list[Row[Any]]] = defaultdict(list)
        for row in conn.execute(select(*columns).where(*current_records(run), where)).all():
            found[row.position].append(row)
        return found

    def _answers(self, rows: Sequence[Row[Any]], example: JsonObject | None, profile: SystemProfile) -> Answers:
        expected = (example or {}).get("expected_labels") if self._axes else None
        axes = _axes(expected, [row.record for row in rows], profile) if expected else {}
        scored = (rows[0].scored,) if len(rows) == 1 else tuple(row.scored for row in rows)
        return Answers(rows[0].expected, scored, axes)


def _by_id(position: ColumnElement[int]) -> ColumnElement[int]:
    """The position as a sum, so that the database looks ids up by their index and not through all positions."""
    return position + 0


def _axes(
    expected: Mapping[str, str], stored: Iterable[bytes], profile: SystemProfile
) -> dict[str, tuple[str, tuple[str | None, ...]]]:
    predictions = [json.loads(data).get("prediction") or {} for data in stored]
    given = {axis: [axis_label(one, axis) for one in predictions] for axis in expected}
    return {
        axis: (profile.fold(label), tuple(None if one is None else profile.fold(one) for one in given[axis]))
        for axis, label in expected.items()
    }
