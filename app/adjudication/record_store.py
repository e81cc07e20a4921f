"""Adjudications in the store: runs with their leases, records in turns, and the scores that follow from them."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from sqlalchemy import Connection, delete, func, insert, or_, select, update

from app.adjudication.model import AdjudicationRecord, Page, RecordFilters, RunView, StoredRun, Transition
from app.adjudication.rules import Links, links_after, sealed
from app.adjudication.store import load_links, page_of
from app.adjudication.tables import adjudication_runs as runs
from app.adjudication.tables import adjudications, hypotheses, links, transitions
from app.log.store import Entry
from app.store.database import Database
from app.store.ids import now
from app.store.paging import decode_cursor, encode_cursor
from layers.adjudication import Outcome
from layers.adjudication_rules import Effect, standing_of
from layers.canonical import sha256_of

LEASE_SECONDS = 30.0
LOG_KIND = "adjudication"
FINISHED = (Outcome.INTERPRETED, Outcome.LOW_RELEVANCE)
"""How an adjudication ended that need not be asked again."""


class Ledger(Protocol):
    """The append-only log, as far as records enter it."""

    def append_entries(self, conn: Connection, entries: Sequence[Entry]) -> Sequence[int]: ...


class RecordStore:
    """Runs and their records. `ledger` None = they enter no log. One process holds a run by its lease."""

    def __init__(
        self, database: Database, ledger: Ledger | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._clock = clock
        self.owner = f"{os.getpid()}:{secrets.token_hex(8)}"

    # --- runs ---------------------------------------------------------------------------------------------------------

    async def add_run(self, run: StoredRun, n_pairs: int) -> None:
        """Store a run that nobody works on yet."""
        row = {"run_id": run.run_id, "status": "accepted", "n_pairs": n_pairs, "lease_owner": "", "lease_until": 0.0}
        await self._database.write(lambda conn: conn.execute(insert(runs).values(row | {"record": sealed(run)})))

    async def claim(self) -> StoredRun | None:
        """Take the oldest run that nobody holds."""
        moment = self._clock()
        free = or_(runs.c.lease_owner == "", runs.c.lease_until < moment)
        query = select(runs.c.run_id, runs.c.record).where(runs.c.status == "accepted", free)
        query = query.order_by(runs.c.run_id).limit(1).with_for_update(skip_locked=True)

        def work(conn: Connection) -> StoredRun | None:
            row = conn.execute(query).first()
            if row is None:
                return None
            lease: dict[str, Any] = {"lease_owner": self.owner, "lease_until": moment + LEASE_SECONDS}
            conn.execute(update(runs).where(runs.c.run_id == row.run_id).values(lease))
            return StoredRun.model_validate_json(row.record)

        return await self._database.write(work)

    async def renew(self, run_ids: Collection[str]) -> None:
        """Go on holding these runs, as far as this process still holds them."""
        if run_ids:
            mine = update(runs).where(runs.c.lease_owner == self.owner, runs.c.run_id.in_(list(run_ids)))
            longer = mine.values(lease_until=self._clock() + LEASE_SECONDS)
            await self._database.write(lambda conn: conn.execute(longer))

    async def release(self) -> None:
        """Let go of what this process holds."""
        change = update(runs).where(runs.c.lease_owner == self.owner).values(lease_owner="", lease_until=0.0)
        await self._database.write(lambda conn: conn.execute(change))

    async def finish(self, run_id: str) -> None:
        """Every pair has its record."""
        change = update(runs).where(runs.c.run_id == run_id, runs.c.status == "accepted")
        done = change.values(status="done", finished_at=now(), lease_owner="", lease_until=0.0)
        await self._database.write(lambda conn: conn.execute(done))

    async def run(self, run_id: str) -> RunView | None:
        """A run and how far it is."""

        def look(conn: Connection) -> RunView | None:
            row = conn.execute(select(runs).where(runs.c.run_id == run_id)).first()
            return None if row is None else _view(conn, row)

        return await self._database.read(look)

    async def run_page(self, limit: int, cursor: str | None) -> Page[RunView]:
        """Runs, newest first."""
        query = select(runs).order_by(runs.c.run_id.desc()).limit(limit + 1)
        if cursor is not None:
            (last,) = decode_cursor(cursor, str)
            query = query.where(runs.c.run_id < last)

        def look(conn: Connection) -> Page[RunView]:
            rows = conn.execute(query).all()
            more = encode_cursor(rows[limit - 1].run_id) if len(rows) > limit else None
            return Page[RunView](items=tuple(_view(conn, row) for row in rows[:limit]), next_cursor=more)

        return await self._database.read(look)

    async def done_pairs(self, run_id: str) -> set[tuple[str, str]]:
        """Hypothesis and evidence of the pairs that have a record in this run, failed ones included."""
        query = select(adjudications.c.hypothesis_id, adjudications.c.evidence_id)
        query = query.where(adjudications.c.run_id == run_id)
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        return {(row.hypothesis_id, row.evidence_id) for row in rows}

    # --- records ------------------------------------------------------------------------------------------------------

    async def finished(self, key: str) -> AdjudicationRecord | None:
        """The newest finished adjudication of that key that a model or the prefilter made."""
        query = select(adjudications.c.record).where(
            adjudications.c.key == key,
            adjudications.c.reused_from.is_(None),
            adjudications.c.outcome.in_([outcome.value for outcome in FINISHED]),
        )
        query = query.order_by(adjudications.c.record_id.desc()).limit(1)
        record = await self._database.read(lambda conn: conn.scalar(query))
        return None if record is None else AdjudicationRecord.model_validate_json(record)

    async def apply(self, record: AdjudicationRecord, source: str) -> AdjudicationRecord:
        """Store a record and what follows from it, in one transaction; `source` is its evidence's.

        A pair that has its record in this run keeps it. Racing records of one hypothesis wait for each other's turn.
        """
        return await self._database.write(lambda conn: self._apply(conn, record, source))

    def _apply(self, conn: Connection, record: AdjudicationRecord, source: str) -> AdjudicationRecord:
        columns, own = adjudications.c, hypotheses.c.hypothesis_id == record.hypothesis_id
        turn = conn.scalar(
            update(hypotheses).where(own).values(turns=hypotheses.c.turns + 1).returning(hypotheses.c.turns)
        )
        known = conn.scalar(
            select(columns.record).where(
                columns.run_id == record.run_id,
                columns.hypothesis_id == record.hypothesis_id,
                columns.evidence_id == record.evidence_id,
            )
        )
        if known is not None:
            conn.execute(update(hypotheses).where(own).values(turns=hypotheses.c.turns - 1))
            return AdjudicationRecord.model_validate_json(known)
        before: Links = {}
        if record.effect is not Effect.KEEP:
            before = load_links(conn, [record.hypothesis_id]).get(record.hypothesis_id, {})
        after = links_after(before, record, source)
        record = record.model_copy(update={"turn": turn, "changed": after != before})
        insert_record(conn, record)
        if record.changed:
            _move(conn, record, before, after)
        if self._ledger is not None:
            root = sha256_of(sealed(record))
            self._ledger.append_entries(conn, [Entry(LOG_KIND, record.record_id, record.turn, root, record.created_at)])
        return record

    async def record(self, record_id: str) -> AdjudicationRecord | None:
        """One record in full."""
        query = select(adjudications.c.record).where(adjudications.c.record_id == record_id)
        found = await self._database.read(lambda conn: conn.scalar(query))
        return None if found is None else AdjudicationRecord.model_validate_json(found)

    async def records(self, filters: RecordFilters, limit: int, cursor: str | None) -> Page[AdjudicationRecord]:
        """Records, newest first."""
        wanted = filters.model_dump(mode="json", exclude_none=True)
        conditions = [adjudications.c[name] == value for name, value in wanted.items()]
        key = adjudications.c.record_id
        return await self._database.read(
            lambda conn: page_of(conn, adjudications, key, AdjudicationRecord, conditions, limit, cursor)
        )


def insert_record(conn: Connection, record: AdjudicationRecord) -> None:
    """Insert a record as it is."""
    row = {
        "record_id": record.record_id,
        "run_id": record.run_id,
        "hypothesis_id": record.hypothesis_id,
        "evidence_id": record.evidence_id,
        "turn": record.turn,
        "key": record.key,
        "outcome": record.outcome.value,
        "reused_from": record.reused_from,
        "record": sealed(record),
    }
    conn.execute(insert(adjudications).values(row))


def transition_of(record: AdjudicationRecord, before: Links, after: Links) -> Transition | None:
    """What a record did to the standing of its hypothesis; None = nothing."""
    old, new = standing_of(before.values()), standing_of(after.values())
    if old == new:
        return None
    return Transition(
        hypothesis_id=record.hypothesis_id,
        turn=record.turn,
        caused_by=(record.record_id,),
        before=old,
        after=new,
        created_at=record.created_at,
    )


def write_link(conn: Connection, hypothesis_id: str, evidence_id: str, after: Links) -> None:
    """The link of one pair as it is in `after`, and the column that its hypothesis is searched by."""
    qualification = standing_of(after.values()).qualification.value
    own = hypotheses.c.hypothesis_id == hypothesis_id
    conn.execute(update(hypotheses).where(own).values(qualification=qualification))
    pair = (links.c.hypothesis_id == hypothesis_id, links.c.evidence_id == evidence_id)
    conn.execute(delete(links).where(*pair))
    if (link := after.get(evidence_id)) is not None:
        row = {"hypothesis_id": hypothesis_id, "evidence_id": evidence_id, "link": sealed(link)}
        conn.execute(insert(links).values(row))


def insert_transition(conn: Connection, transition: Transition) -> None:
    """Insert a transition as it is."""
    row = {"hypothesis_id": transition.hypothesis_id, "turn": transition.turn, "record": sealed(transition)}
    conn.execute(insert(transitions).values(row))


def _move(conn: Connection, record: AdjudicationRecord, before: Links, after: Links) -> None:
    write_link(conn, record.hypothesis_id, record.evidence_id, after)
    if (transition := transition_of(record, before, after)) is not None:
        insert_transition(conn, transition)


def _view(conn: Connection, row: Any) -> RunView:
    query = select(adjudications.c.outcome, func.count().label("n")).where(adjudications.c.run_id == row.run_id)
    counts = {Outcome(each.outcome): each.n for each in conn.execute(query.group_by(adjudications.c.outcome))}
    return RunView(
        **StoredRun.model_validate_json(row.record).model_dump(),
        status=row.status,
        n_pairs=row.n_pairs,
        n_done=sum(counts.values()),
        outcomes=counts,
        finished_at=row.finished_at,
    )
