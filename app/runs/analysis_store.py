"""Read what an analysis needs: by grouping in the database where that suffices, else chunk by chunk."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from sqlalchemy import Connection, case, func, literal, null, select

from app.runs.analysis import Analysis, Breakdown, ConfidenceKey, ConfidenceSums, Seen
from app.runs.record_store import current_records
from app.runs.statistics.calibration import BINS
from app.runs.store import StoredRun
from app.runs.tables import dataset_examples, records
from app.runs.tally import Pair, Tally
from app.store.database import Database

CHUNK = 2_000
"""Examples read at once: a few megabytes, and some ten milliseconds in which nothing else gets the interpreter."""

GROUP_KEY = b'"group":'
"""What the canonical bytes of an example in a group hold."""

MAX_KNOWN = 1_000
"""Datasets of which it is remembered whether their examples come in groups."""


class AnalysisStore:
    """Tallies and breakdowns of runs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._grouped: dict[int, bool] = {}

    async def analyse(self, run: StoredRun, paths: Sequence[str] = ()) -> tuple[Tally, Breakdown]:
        """The counts of a run and what lies behind them. Single examples, uncut, are grouped by the database."""
        repeats = run.config.options.repeats
        if paths or repeats > 1 or await self.has_groups(run.dataset_no):
            analysis = Analysis(run.config.profile, run.n_total, paths, repeats=repeats)
            for start in range(0, run.n_total // repeats, CHUNK):
                stop = min(start + CHUNK, run.n_total // repeats)
                await self._database.read(partial(_add, run=run, analysis=analysis, start=start, stop=stop))
            return analysis.tally(), analysis.breakdown()
        return await self._database.read(partial(_grouped, run=run))

    async def has_groups(self, dataset_no: int) -> bool:
        """Whether some example may be in a group; datasets never change, so it is looked up once."""
        if dataset_no not in self._grouped:
            if len(self._grouped) >= MAX_KNOWN:
                self._grouped.clear()
            self._grouped[dataset_no] = await self._database.read(
                partial(contains, dataset_no=dataset_no, key=GROUP_KEY)
            )
        return self._grouped[dataset_no]


def contains(conn: Connection, dataset_no: int, key: bytes) -> bool:
    """Whether some example's canonical bytes hold `key`, at whatever depth."""
    example = dataset_examples.c.example
    if conn.dialect.name == "postgresql":
        place = func.position(literal(key).op("IN")(example))
    else:
        place = func.instr(example, key)
    query = select(dataset_examples.c.position).where(dataset_examples.c.dataset_no == dataset_no, place > 0).limit(1)
    return conn.execute(query).first() is not None


def _grouped(conn: Connection, run: StoredRun) -> tuple[Tally, Breakdown]:
    confidence = records.c.confidence
    place = case(*((confidence >= index / BINS, index) for index in range(BINS - 1, 0, -1)), else_=0).label("place")
    groups = (records.c.expected, records.c.scored, records.c.error_kind, place)
    sums = (func.count().label("n"), func.sum(confidence).label("total"))
    squares = func.sum(confidence * confidence).label("squares")
    rows = conn.execute(select(*groups, *sums, squares).where(*current_records(run)).group_by(*groups))
    scored: defaultdict[Pair, int] = defaultdict(int)
    failed: defaultdict[Pair, int] = defaultdict(int)
    confidences: dict[ConfidenceKey, ConfidenceSums] = {}
    for row in rows:
        if row.scored is None:
            failed[row.expected, row.error_kind or "internal"] += row.n
            continue
        scored[row.expected, row.scored] += row.n
        if row.total is not None:
            confidences[row.expected, row.scored, row.place] = ConfidenceSums(row.n, row.total, row.squares)
    return Tally(run.n_total, dict(scored), dict(failed)), Breakdown(confidences)


def _add(conn: Connection, run: StoredRun, analysis: Analysis, start: int, stop: int) -> None:
    columns = (records.c.position, records.c.expected, records.c.scored, records.c.error_kind, records.c.confidence)
    record = records.c.record if analysis.cuts_predictions else null()
    query = select(*columns, record).where(*current_records(run), records.c.position.between(start, stop - 1))
    seen: defaultdict[int, list[Seen]] = defaultdict(list)
    for position, expected, scored, kind, confidence, data in conn.execute(query).all():
        given = None if data is None else json.loads(data).get("prediction")
        seen[position].append(Seen(expected, scored, kind, confidence, given))
    examples = select(dataset_examples.c.position, dataset_examples.c.example).where(
        dataset_examples.c.dataset_no == run.dataset_no, dataset_examples.c.position.between(start, stop - 1)
    )
    for position, example in conn.execute(examples).all():
        wanted = analysis.cuts or GROUP_KEY in example
        analysis.add(position, json.loads(example) if wanted else None, seen.get(position, ()))
