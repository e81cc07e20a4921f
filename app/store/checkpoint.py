"""SQLite's checkpoints, in a thread of their own: a commit need not wait until pages are synced to the main file."""

from __future__ import annotations

import logging
import sqlite3
import threading
from pathlib import Path

logger = logging.getLogger(__name__)

INTERVAL = 0.5
"""Seconds between two checkpoints while there are commits."""

BACKSTOP_PAGES = 8_000
"""Length of the journal (32 MB) at which the writer checkpoints after all: under steady load only it can start the
journal anew, and by then little is left to copy."""


class Checkpointer:
    """Copies what was committed from the journal to the main file, blocking neither readers nor the writer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._committed = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arbiter-checkpoint", daemon=True)
        self._thread.start()

    def committed(self) -> None:
        """There is something to copy."""
        self._committed.set()

    def close(self) -> None:
        """Stop after the checkpoint under way."""
        self._stop.set()
        self._committed.set()
        self._thread.join()

    def _run(self) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            while not self._stop.wait(INTERVAL):
                self._committed.wait()
                self._committed.clear()
                try:
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                except sqlite3.Error as exc:
                    logger.warning("a checkpoint failed and will be tried again: %s", exc)
        finally:
            connection.close()
