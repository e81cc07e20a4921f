"""Whether SQLite's file is still the one that was opened: what a deleted one takes is gone at the next start."""

from __future__ import annotations

import os
from pathlib import Path


class FileWatch:
    """Compares the file, and its journal, with those that were there at the beginning. A look costs microseconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        files = (path, path.with_name(f"{path.name}-wal"))
        self._known = {each: found.st_ino for each in files if (found := _stat(each)) is not None}

    def trouble(self) -> str | None:
        """What happened to it, as a sentence; None = nothing."""
        for path, known in self._known.items():
            found = _stat(path)
            if found is None or found.st_ino != known:
                what = "was deleted or moved" if found is None else "was replaced by another one"
                return f"the store's file {path.name} {what} while the service ran: put it back, or restart the service"
            if found.st_size == 0 and path == self._path:
                return f"the store's file {path.name} was emptied while the service ran: restore a backup"
        return None


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
