"""The log in the database: entries and tiles, appended in the transaction that stores what they are about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import Connection, exists, func, select, update
from sqlalchemy.exc import IntegrityError

from app.log.tables import log_leaves, log_tiles, provenance_stages
from app.store.rows import insert_rows
from app.store.trouble import Contradiction
from layers.provenance import StageRecord, log_entry
from layers.translog import TILE, closed_tiles, leaf_hash, range_root, tree_root

_LOCK = 0x41524C39
"""PostgreSQL's advisory lock under which one process at a time appends; held to the end of its transaction."""


class LogDamaged(Exception):
    """Rows that the log must have are missing: somebody changed the database."""


class Entry(NamedTuple):
    """What is to be logged: a root, what kind of thing it stands for, and where that is found."""

    kind: str
    ref: str
    revision: int
    root: str
    created_at: str


def append(conn: Connection, entries: Sequence[Entry]) -> range:
    """Add entries at the end of the log; their indexes. Call it in the transaction that stores what they stand for."""
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    start = size_of(conn)
    indexes = range(start, start + len(entries))
    rows = [
        (index, leaf_hash(log_entry(entry.kind, entry.root)), *entry)
        for index, entry in zip(indexes, entries, strict=True)
    ]
    insert_rows(conn, log_leaves, rows)
    _close_tiles(conn, indexes.start, indexes.stop)
    return indexes


def _close_tiles(conn: Connection, before: int, after: int) -> None:
    for size in range((before // TILE + 1) * TILE, after + 1, TILE):
        for level, number in closed_tiles(size):
            insert_rows(conn, log_tiles, [(level + 1, number, tree_root(_tile(conn, level, number)))])


def size_of(conn: Connection) -> int:
    """How many entries the log has."""
    return int(conn.exec_driver_sql("SELECT COALESCE(MAX(leaf_index), -1) + 1 FROM log_leaves").scalar_one())


def root_at(conn: Connection, size: int) -> bytes:
    """The root of the first `size` entries."""
    return range_root(0, size, reader(conn))


def roots_of(conn: Connection, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """The roots of leaf ranges: the steps of a proof."""
    tile = reader(conn)
    return [range_root(start, end, tile) for start, end in ranges]


def reader(conn: Connection) -> Callable[[int, int], Sequence[bytes]]:
    """Read tiles, each once. Raises `LogDamaged` where one has a gap."""
    return lru_cache(maxsize=64)(lambda level, number: _tile(conn, level, number))


def _tile(conn: Connection, level: int, number: int) -> Sequence[bytes]:
    first = number * TILE
    if level == 0:
        position, digest = log_leaves.c.leaf_index, log_leaves.c.leaf_hash
        query = select(position, digest)
    else:
        position, digest = log_tiles.c.position, log_tiles.c.hash
        query = select(position, digest).where(log_tiles.c.level == level)
    rows = conn.execute(query.where(position >= first, position < first + TILE).order_by(position)).all()
    for expected, (at, _) in enumerate(rows, first):
        if at != expected:
            raise LogDamaged(f"the log has no entry {expected} on level {level}")
    return [bytes(digest) for _, digest in rows]


class Leaf(NamedTuple):
    """An entry as it stands in the log."""

    leaf_index: int
    leaf_hash: bytes
    kind: str
    ref: str
    revision: int
    root: str


def find_leaf(conn: Connection, kind: str, ref: str, revision: int | None) -> Leaf | None:
    """The entry of a thing's revision, the newest by default."""
    columns = log_leaves.c
    query = select(*(columns[name] for name in Leaf._fields)).where(columns.ref == ref, columns.kind == kind)
    if revision is not None:
        query = query.where(columns.revision == revision)
    row = conn.execute(query.order_by(columns.revision.desc(), columns.leaf_index.desc()).limit(1)).first()
    return None if row is None else Leaf(row[0], bytes(row[1]), row[2], row[3], row[4], row[5])


def leaf_at(conn: Connection, index: int) -> bytes | None:
    """The leaf hash at an index."""
    digest = conn.execute(select(log_leaves.c.leaf_hash).where(log_leaves.c.leaf_index == index)).scalar()
    return None if digest is None else bytes(digest)


# --- stages ---------------------------------------------------------------------------------------------------------


def check_end(conn: Connection) -> None:
    """Raises `Contradiction` where stages are stored of an entry beyond the log's end."""
    if conn.execute(select(exists().where(provenance_stages.c.leaf_index >= size_of(conn)))).scalar():
        raise Contradiction("there are stages of entries that the log does not have")


def save_stages(conn: Connection, stages: Sequence[tuple[int, Sequence[StageRecord]]]) -> None:
    """Store the stages of entries, given by their index in the log. Raises `Contradiction` if one has some already."""
    rows = [
        (index, position, stage.name, stage.commitment, stage.payload, stage.salt)
        for index, records in stages
        for position, stage in enumerate(records)
    ]
    try:
        insert_rows(conn, provenance_stages, rows)
    except IntegrityError:  # whose text would name what was to be stored
        raise Contradiction("there are stages of entries that the log did not have") from None


def load_stages(conn: Connection, index: int) -> tuple[StageRecord, ...]:
    """The stages of the entry at an index, as they are stored: nothing is checked here."""
    columns = provenance_stages.c
    query = select(columns.name, columns.commitment, columns.payload, columns.salt)
    rows = conn.execute(query.where(columns.leaf_index == index).order_by(columns.position))
    return tuple(
        StageRecord(name, bytes(digest), _bytes(payload), _bytes(salt)) for name, digest, payload, salt in rows
    )


def erase_stages(conn: Connection, index: int, names: Sequence[str]) -> int:
    """Drop payload and salt of stages; how many there were to drop. Commitments, root and log stay as they are."""
    columns = provenance_stages.c
    if conn.dialect.name == "sqlite":
        conn.exec_driver_sql("PRAGMA secure_delete=ON")  # overwrite, do not only unlink; it holds for this connection
    found = conn.execute(
        select(func.count()).where(columns.leaf_index == index, columns.name.in_(names), columns.payload.is_not(None))
    ).scalar_one()
    conn.execute(
        update(provenance_stages)
        .where(columns.leaf_index == index, columns.name.in_(names))
        .values(payload=None, salt=None)
    )
    return int(found)


def _bytes(value: bytes | memoryview | None) -> bytes | None:
    return None if value is None else bytes(value)
