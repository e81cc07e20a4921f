"""Make answers durable: each as a row that can be stored, for as long as the chunk they belong to is ours."""

from __future__ import annotations

import anyio

from app.errors import Unavailable
from app.runs.chunks import Claim, ClaimLost
from app.runs.executor import Kept
from app.runs.model import Record, RecordError
from app.runs.observe import RunObserver
from app.runs.record_store import RecordStore, row_of
from app.runs.store import StoredRun
from app.store.rows import Row

STORE_RETRY_SECONDS = 1.0


class Chunk:
    """A claimed chunk while its questions are asked.

    `lost`: it is another's by now, and nothing more of it is kept. `left`: not all of it was asked.
    """

    def __init__(self, run: StoredRun, claim: Claim, records: RecordStore, observer: RunObserver) -> None:
        self.run = run
        self.claim = claim
        self.lost = False
        self.left = False
        self._records = records
        self._observer = observer

    async def keep(self, batch: Kept) -> Kept:
        """Store these answers and say which were; none when the chunk was lost. Waits while the store is away."""
        rows, kept = [], []
        for item, record in batch:
            row, stored = _row(self.run, item.unit // self.run.config.options.repeats, record)
            rows.append(row)
            kept.append((item, stored))
        while not self.lost:
            try:
                await self._records.add(rows, self.claim)
            except ClaimLost:
                self.lost = True
            except Unavailable:  # the answers were paid for: hold them until the store is back
                await anyio.sleep(STORE_RETRY_SECONDS)
            else:
                for _, record in kept:
                    self._observer.recorded(self.run.system, record)
                return kept
        return []


def _row(run: StoredRun, position: int, record: Record) -> tuple[Row, Record]:
    """The record as it can be stored, and its row."""
    try:
        return row_of(run.no, position, record, run.config.profile), record
    except ValueError as why:  # it holds what JSON can't carry
        error = RecordError(kind="malformed", message=f"the prediction can't be stored: {why}"[:300])
        nothing = {"prediction": None, "scored_label": None, "correct": None}
        failed = record.model_copy(update={"status": "failed", "error": error, **nothing})
        return row_of(run.no, position, failed, run.config.profile), failed
