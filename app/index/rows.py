"""How the embedded index is stored: functions over a connection, for the database's reader and writer."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from app.index.tables import entries, namespaces
from layers.canonical import canonical_bytes
from layers.errors import ConfigurationError
from layers.model import JsonObject
from layers.ports import Vector


@dataclass(frozen=True, slots=True)
class Entry:
    """One vector to keep, with what comes back beside it."""

    id: str
    vector: Vector
    metadata: JsonObject


@dataclass(frozen=True, slots=True)
class State:
    """What a namespace holds, and how far its writes have come."""

    namespace: str
    generation: str
    embedder: str
    dimension: int
    version: int


@dataclass(frozen=True, slots=True)
class Change:
    """An entry as it is now; `gone` = delete it."""

    id: str
    gone: bool
    vector: NDArray[np.float32]
    metadata: bytes


def read_states(conn: Connection, namespace: str | None = None) -> list[State]:
    """The namespaces there are, by name, or the one asked for."""
    query = select(namespaces).order_by(namespaces.c.namespace)
    if namespace is not None:
        query = query.where(namespaces.c.namespace == namespace)
    return [State(r.namespace, r.generation, r.embedder, r.dimension, r.version) for r in conn.execute(query)]


def read_changes(conn: Connection, namespace: str, after: int) -> list[Change]:
    """What was written after version `after`, oldest first."""
    query = (
        select(entries.c.id, entries.c.gone, entries.c.vector, entries.c.metadata)
        .where(entries.c.namespace == namespace, entries.c.version > after)
        .order_by(entries.c.version, entries.c.id)
    )
    return [Change(r.id, r.gone, np.frombuffer(r.vector, dtype="<f4"), r.metadata) for r in conn.execute(query)]


def count_entries(conn: Connection, namespace: str) -> int:
    """How many entries a query can find."""
    live = select(func.count()).where(entries.c.namespace == namespace, entries.c.gone.is_(False))
    return int(conn.execute(live).scalar_one())


def write_entries(
    conn: Connection, namespace: str, embedder: str, dimension: int, items: Sequence[Entry], origin: str | None = None
) -> None:
    """Put entries in, replacing those of the same id. With an `origin`, its other entries are deleted.

    Raises `ConfigurationError` where the namespace holds vectors of another embedder or dimension.
    """
    version = _next_version(conn, namespace, embedder, dimension)
    if origin is not None:
        stale = update(entries).where(
            entries.c.namespace == namespace, entries.c.origin == origin, entries.c.gone.is_(False)
        )
        conn.execute(stale.values(gone=True, version=version))
    rows = {item.id: _row(item, namespace, version, origin) for item in items}
    if rows:
        dialect = postgresql if conn.dialect.name == "postgresql" else sqlite
        upsert = dialect.insert(entries)
        replaced = {name: upsert.excluded[name] for name in ("version", "origin", "gone", "vector", "metadata")}
        statement = upsert.on_conflict_do_update(index_elements=["namespace", "id"], set_=replaced)
        conn.execute(statement, list(rows.values()))


def remove_namespace(conn: Connection, namespace: str) -> None:
    """Forget a namespace and all its entries."""
    conn.execute(delete(namespaces).where(namespaces.c.namespace == namespace))
    conn.execute(delete(entries).where(entries.c.namespace == namespace))


def check_fit(state: State, embedder: str, dimension: int) -> None:
    """Raise `ConfigurationError` unless the namespace was filled by this embedder, in this dimension."""
    if (state.embedder, state.dimension) != (embedder, dimension):
        raise ConfigurationError(
            f"the index namespace {state.namespace!r} holds vectors of {state.embedder} with {state.dimension} "
            f"dimensions, the embedder in force is {embedder} with {dimension}: use the former, or empty the "
            "namespace and ingest anew"
        )


def _next_version(conn: Connection, namespace: str, embedder: str, dimension: int) -> int:
    """The number of this write. On PostgreSQL the updated row stays locked, so writes to a namespace are in line."""
    bumped = update(namespaces).where(namespaces.c.namespace == namespace)
    bumped = bumped.values(version=namespaces.c.version + 1)
    if conn.execute(bumped).rowcount == 0:
        first = {"namespace": namespace, "embedder": embedder, "dimension": dimension, "version": 1}
        conn.execute(insert(namespaces).values(generation=str(uuid.uuid4()), **first))
        return 1
    state = read_states(conn, namespace)[0]
    check_fit(state, embedder, dimension)
    return state.version


def _row(item: Entry, namespace: str, version: int, origin: str | None) -> JsonObject:
    return {
        "namespace": namespace,
        "id": item.id,
        "version": version,
        "origin": origin,
        "gone": False,
        "vector": np.asarray(item.vector, dtype="<f4").tobytes(),
        "metadata": canonical_bytes(item.metadata),
    }
