"""What listeners were told about a run: an insert-only, numbered list that is cut at its old end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection, Row, delete, insert, select
from sqlalchemy.exc import IntegrityError

from app.runs.event_tables import run_events
from app.runs.model import TERMINAL, Run
from app.store.database import Database
from layers.canonical import canonical_bytes

KEEP = 1_000
"""Events of a run that are kept for replay."""

Kind: TypeAlias = Literal["status", "progress", "end", "resync"]


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event. `seq` counts from 1 within the run and is the same for everybody, for ever; `data` is JSON."""

    seq: int
    kind: Kind
    data: bytes


class EventStore:
    """Events of runs. Several processes may tell of one run: what one has told the other does not tell again."""

    def __init__(self, database: Database, *, keep: int = KEEP) -> None:
        self._database = database
        self._keep = keep

    async def since(self, run_id: str, seq: int) -> Sequence[RunEvent]:
        """The kept events after `seq`, in order."""
        query = (
            select(run_events.c.seq, run_events.c.kind, run_events.c.data)
            .where(run_events.c.run_id == run_id, run_events.c.seq > seq)
            .order_by(run_events.c.seq)
        )
        rows = await self._database.read(lambda conn: conn.execute(query).all())
        return [RunEvent(row.seq, row.kind, row.data) for row in rows]

    async def tell(self, run: Run) -> None:
        """Add what is new about `run`, if anything is; a look that is older than the last event adds nothing."""
        try:
            await self._database.write(lambda conn: _tell(conn, run, self._keep))
        except IntegrityError:  # another process told of it at the same moment
            return


def full_data(run: Run) -> bytes:
    """The whole run as an event's data."""
    return canonical_bytes(run.model_dump(mode="json"))


def _tell(conn: Connection, run: Run, keep: int) -> None:
    query = select(run_events).where(run_events.c.run_id == run.run_id).order_by(run_events.c.seq.desc()).limit(1)
    last = conn.execute(query).first()
    kind = _news(run, last)
    if kind is None:
        return
    seq = 1 if last is None else last.seq + 1
    conn.execute(insert(run_events).values(_row(run, seq, kind)))
    conn.execute(delete(run_events).where(run_events.c.run_id == run.run_id, run_events.c.seq <= seq - keep))


def _news(run: Run, last: Row[Any] | None) -> Kind | None:
    """What kind of event this look at a run is after the last one; None = nothing new, or older than that."""
    ended = run.status in TERMINAL
    if last is None:
        return "end" if ended else "status"
    progress = run.progress
    old, new = (last.attempts, last.n_done), (run.attempts, progress.n_done)
    if new < old or (run.attempts == last.attempts and last.kind == "end"):
        return None
    if run.status.value != last.status:
        return "end" if ended else "status"
    return "progress" if (*old, last.n_failed) != (*new, progress.n_failed) else None


def _row(run: Run, seq: int, kind: Kind) -> dict[str, Any]:
    progress = run.progress
    short = {"run_id": run.run_id, "status": run.status.value, "progress": progress.model_dump(mode="json")}
    return {
        "run_id": run.run_id,
        "seq": seq,
        "kind": kind,
        "status": run.status.value,
        "attempts": run.attempts,
        "n_done": progress.n_done,
        "n_failed": progress.n_failed,
        "data": canonical_bytes(short) if kind == "progress" else full_data(run),
    }
