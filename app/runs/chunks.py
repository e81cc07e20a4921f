"""The chunks of runs: who asks which questions, agreed between processes that may die or fall silent at any moment."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any
from zlib import crc32

from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, func, insert, or_, select, update

from app.runs.store import Room, StoredRun, has_room
from app.runs.tables import run_chunks, runs
from app.store.database import Database

_SPLIT = 4
"""Near the end chunks get so small that each worker still gets a few: a large last one would leave the others idle."""

_TURNS = 0x41524C3A
"""The first of PostgreSQL's two-part advisory lock keys under which runs against a system are counted."""

_columns = run_chunks.c


class ClaimLost(Exception):
    """The chunk is another's now: this process was silent for so long that it was taken for dead."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to ask the questions `start <= unit < stop` of a run, as long as nobody else was given it."""

    run_no: int
    attempt: int
    start: int
    stop: int
    owner: str
    number: int

    @property
    def parameters(self) -> dict[str, Any]:
        """What `_STANDS` asks for."""
        return {f"claim_{name}": value for name, value in asdict(self).items()}


_STANDS = and_(
    *(_columns[name] == bindparam(f"claim_{name}") for name in ("run_no", "attempt", "start", "owner")),
    _columns.claim == bindparam("claim_number"),
    ~_columns.done,
)
"""A claim's row, while the claim stands; built once, since it is asked for at each commit of answers."""

_HOLD = select(_columns.start).where(_STANDS).with_for_update(read=True)


@dataclass(frozen=True, slots=True)
class Hands:
    """What a run's chunks say to one worker: whether there is one to take, and whether others are at one."""

    to_take: bool
    others: bool

    @property
    def needed(self) -> bool:
        """Whether to come: there is something to ask, or nobody left who would say how it ended."""
        return self.to_take or not self.others


class ChunkStore:
    """Claims. Each is one short transaction behind a lock on the run's row, so that no two workers get the same."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(
        self,
        run: StoredRun,
        owner: str,
        size: int,
        least: int,
        held: Collection[int] = (),
        room: Room | None = None,
    ) -> Claim | None:
        """The first chunk that nobody holds, else the next `size` questions, at least `least`.

        None = all are taken, or in `room` there is none for this run. `held` are the chunks that the owner knows it
        has; another one on its name was lost on the way to it.
        """

        def take(conn: Connection) -> Claim | None:
            if room is not None:
                _look_alone(conn, run.system)
                if not has_room(conn, run, room):
                    return None
            return _claim(conn, run, owner, size, least, held)

        return await self._database.alone(take)

    async def finish(self, claim: Claim) -> bool:
        """All of the chunk's questions were asked. False = the claim was lost."""
        change = update(run_chunks).where(_STANDS).values(done=True, owner=None)
        return await self._database.alone(lambda conn: conn.execute(change, claim.parameters).rowcount > 0)

    async def let_go(self, claim: Claim) -> None:
        """Leave what was not asked to whoever comes next."""
        change = update(run_chunks).where(_STANDS).values(owner=None)
        await self._database.alone(lambda conn: conn.execute(change, claim.parameters).rowcount)

    async def free(self, owners: Collection[str]) -> int:
        """Take everything from workers that are no more; how many chunks that were."""
        return await self._database.alone(lambda conn: _free(conn, owners)) if owners else 0

    async def hands(self, run: StoredRun, me: str) -> Hands:
        """What there is to do for `me`, who is at none of the run's chunks at the moment."""
        return await self._database.read(lambda conn: _hands(conn, run, me))

    async def owners(self) -> frozenset[str]:
        """Everybody who holds a chunk of whatever run."""
        query = select(_columns.owner).where(_columns.owner.is_not(None)).distinct()
        return frozenset(await self._database.read(lambda conn: conn.scalars(query).all()))

    async def forget(self, run: StoredRun) -> None:
        """What was left of a run that ended while it was asked about: whoever was at it lets go of it only then."""
        old = delete(run_chunks).where(_columns.run_no == run.no, _columns.owner.is_(None))
        await self._database.write(lambda conn: conn.execute(old).rowcount)


def hold(conn: Connection, claim: Claim) -> None:
    """Make sure that nobody else gets the chunk before this transaction ends. Raises `ClaimLost`."""
    if conn.execute(_HOLD, claim.parameters).first() is None:
        raise ClaimLost


def _look_alone(conn: Connection, system: str) -> None:
    """Nobody else counts the runs against the system until this transaction ends. SQLite has one writer anyway."""
    if conn.dialect.name == "postgresql":
        conn.execute(select(func.pg_advisory_xact_lock(_TURNS, crc32(system.encode()) - 2**31)))


def _is_of(run_no: int, attempt: int) -> ColumnElement[bool]:
    return and_(_columns.run_no == run_no, _columns.attempt == attempt)


def _is_free(owner: str, held: Collection[int] = ()) -> ColumnElement[bool]:
    forgotten = and_(_columns.owner == owner, _columns.start.not_in(held))
    return and_(or_(_columns.owner.is_(None), forgotten), ~_columns.done)


def _claim(conn: Connection, run: StoredRun, owner: str, size: int, least: int, held: Collection[int]) -> Claim | None:
    conn.execute(select(runs.c.run_no).where(runs.c.run_no == run.no).with_for_update())
    mine = _is_of(run.no, run.attempts)
    query = select(_columns.start, _columns.stop, _columns.claim).where(mine, _is_free(owner, held))
    if left := conn.execute(query.order_by(_columns.start).limit(1)).first():
        number = left.claim + 1
        conn.execute(update(run_chunks).where(mine, _columns.start == left.start).values(owner=owner, claim=number))
        return Claim(run.no, run.attempts, left.start, left.stop, owner, number)
    start = conn.scalar(select(func.max(_columns.stop)).where(mine)) or 0
    if start >= run.n_total:
        return None
    others = conn.scalar(select(func.count(_columns.owner.distinct())).where(mine, _columns.owner != owner)) or 0
    if others:
        size = min(size, max(least, (run.n_total - start) // (_SPLIT * (1 + others))))
    stop = min(run.n_total, start + size)
    row = {"run_no": run.no, "attempt": run.attempts, "start": start, "stop": stop}
    conn.execute(insert(run_chunks).values(row | {"owner": owner, "claim": 1, "done": False}))
    return Claim(run.no, run.attempts, start, stop, owner, 1)


def _free(conn: Connection, owners: Collection[str]) -> int:
    held = select(_columns.run_no, _columns.attempt, _columns.start).where(_columns.owner.in_(owners))
    rows = conn.execute(held.order_by(*held.selected_columns).with_for_update()).all()
    for row in rows:
        mine = and_(_is_of(row.run_no, row.attempt), _columns.start == row.start)
        conn.execute(update(run_chunks).where(mine).values(owner=None))
    return len(rows)


def _hands(conn: Connection, run: StoredRun, me: str) -> Hands:
    mine = _is_of(run.no, run.attempts)
    begun = conn.scalar(select(func.max(_columns.stop)).where(mine)) or 0
    left = select(_columns.start).where(mine, _is_free(me)).limit(1)
    others = select(_columns.start).where(mine, _columns.owner.is_not(None), _columns.owner != me).limit(1)
    to_take = begun < run.n_total or conn.execute(left).first() is not None
    return Hands(to_take, conn.execute(others).first() is not None)
