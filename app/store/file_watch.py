"""Whether SQLite's file is still the one that was opened: what a deleted one takes is gone at the next start."""

from __future__ import annotations

from pathlib import Path


class FileWatch:
    """Compares the file, and its journal, with those that were there at the beginning. A look costs microseconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        files = (path, path.with_name(f"{path.name}-wal"))
        self._known = {each: inode for each in files if (inode := _inode(each)) is not None}

    def trouble(self) -> str | None:
        """What happened to it, as a sentence; None = nothing."""
        for path, known in self._known.items():
            if (found := _inode(path)) != known:
                what = "was deleted or moved" if found is None else "was replaced by another one"
                return f"the store's file {path.name} {what} while the service ran: put it back, or restart the service"
        if _size(self._path) == 0:
            return f"the store's file {self._path.name} was emptied while the service ran: restore a backup"
        return None


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
