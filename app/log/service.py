"""The append-only log as the service uses it: entries in, signed heads, proofs and bundles out."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, select

from app.errors import BadRequest, NotFound, Unavailable
from app.log import store
from app.log.keys import SigningKey, load_or_make_key
from app.log.model import (
    ConsistencyProof,
    InclusionProof,
    LogKey,
    LogKeys,
    LogPart,
    ProvenanceBundle,
    TreeHead,
    head_message,
)
from app.log.store import Entry
from app.log.tables import log_keys
from app.store.database import Database
from app.store.ids import now as time_now
from app.store.rows import insert_rows
from layers.provenance import PREFIX, Provenance, StageRecord, bundle
from layers.translog import consistency_ranges, inclusion_ranges

logger = logging.getLogger(__name__)

EVALUATION = "evaluation"


class Recorded(Protocol):
    """An evaluation about to be stored, as far as the log is concerned."""

    @property
    def evaluation_id(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def created_at(self) -> str: ...
    @property
    def provenance(self) -> Provenance | None: ...


class LogService:
    """One log over one database. Build it with `open`."""

    def __init__(self, database: Database, key: SigningKey, keys: LogKeys, now: Callable[[], str]) -> None:
        self._database = database
        self._key = key
        self._keys = keys
        self._now = now

    @classmethod
    async def open(cls, database: Database, key_file: Path, *, now: Callable[[], str] = time_now) -> LogService:
        """Load the key (made at the first start) and enter it among the log's keys. Raises `ConfigurationError`."""
        with suppress(Unavailable):  # it can still be read, and its state says what is wrong
            await database.write(store.check_end)
        key = load_or_make_key(key_file)
        known = await database.write(lambda conn: _enter_key(conn, key, now()))
        (own,) = (entry for entry in known if entry.key_id == key.key_id)
        earlier = tuple(entry for entry in known if entry.key_id != key.key_id)
        if earlier:
            logger.warning("keys other than the one in %s that signed the log before: %d", key_file, len(earlier))
        return cls(database, key, LogKeys(**own.model_dump(), earlier=earlier), now)

    # --- in the writer's thread ---------------------------------------------------------------------------------------

    def append(self, conn: Connection, drafts: Sequence[Recorded]) -> Sequence[int]:
        """Enter evaluations and keep their stages, in the transaction that stores them; their log indexes."""
        roots = [_provenance(draft) for draft in drafts]
        indexes = store.append(
            conn,
            [
                Entry(EVALUATION, draft.evaluation_id, draft.revision, made.root, draft.created_at)
                for draft, made in zip(drafts, roots, strict=True)
            ],
        )
        store.save_stages(conn, [(index, made.stages) for index, made in zip(indexes, roots, strict=True)])
        return indexes

    def append_entries(self, conn: Connection, entries: Sequence[Entry]) -> Sequence[int]:
        """Enter things of other kinds (verdicts, gate decisions), in the transaction that stores them."""
        return store.append(conn, entries)

    def stages_of(self, conn: Connection, evaluation_id: str, revision: int) -> Sequence[StageRecord]:
        """The stages of one revision; none for one that never entered the log."""
        leaf = store.find_leaf(conn, EVALUATION, evaluation_id, revision)
        return () if leaf is None else store.load_stages(conn, leaf.leaf_index)

    def erase_stages(self, conn: Connection, evaluation_id: str, revision: int, names: Collection[str]) -> int:
        """Erase payload and salt of those of the stages that are there; how many still had one."""
        leaf = store.find_leaf(conn, EVALUATION, evaluation_id, revision)
        return 0 if leaf is None else store.erase_stages(conn, leaf.leaf_index, tuple(names))

    # --- shown to anyone ----------------------------------------------------------------------------------------------

    def keys(self) -> LogKeys:
        """The public key that signs heads, and earlier ones."""
        return self._keys

    async def head(self) -> TreeHead:
        """The log as it is now, signed."""
        return await self._database.read(self._head)

    async def consistency(self, first: int, second: int | None = None) -> ConsistencyProof:
        """That the log of `second` entries (None = now) only adds to that of `first`. Raises `BadRequest`."""
        return await self._database.read(lambda conn: _consistency(conn, first, second))

    async def inclusion(self, index: int, tree_size: int | None = None) -> InclusionProof:
        """That the entry at `index` stands in the log of `tree_size` entries (None = now). Raises `BadRequest`."""
        return await self._database.read(lambda conn: _inclusion(conn, index, tree_size))

    async def bundle(
        self, evaluation_id: str, revision: int | None = None, *, since: int | None = None
    ) -> ProvenanceBundle:
        """What proves one revision (the newest by default); `since` is the size of an older head to prove growth from.

        Raises `NotFound`, or `BadRequest` for a `since` larger than the log.
        """
        return await self._database.read(lambda conn: self._bundle(conn, evaluation_id, revision, since))

    async def erase(self, evaluation_id: str, revision: int | None, stages: Collection[str]) -> int:
        """Erase payload and salt of stages; how many still had one. Root and log stay true. Raises `NotFound`."""
        return await self._database.write(lambda conn: _erase(conn, evaluation_id, revision, tuple(stages)))

    def _head(self, conn: Connection) -> TreeHead:
        size = store.size_of(conn)
        return self._sign(size, store.root_at(conn, size))

    def _sign(self, size: int, root: bytes) -> TreeHead:
        root_hash, timestamp = PREFIX + root.hex(), self._now()
        signature = self._key.sign(head_message(size, root_hash, timestamp))
        return TreeHead(
            tree_size=size, root_hash=root_hash, timestamp=timestamp, key_id=self._key.key_id, signature=signature
        )

    def _bundle(
        self, conn: Connection, evaluation_id: str, revision: int | None, since: int | None
    ) -> ProvenanceBundle:
        leaf = _find(conn, evaluation_id, revision)
        head = self._head(conn)
        part = LogPart(
            index=leaf.leaf_index,
            kind=leaf.kind,
            inclusion=_inclusion(conn, leaf.leaf_index, head.tree_size),
            head=head,
            public_key=self._keys.public_key,
            consistency=None if since is None else _consistency(conn, since, head.tree_size),
        )
        made = bundle(
            Provenance(leaf.root, store.load_stages(conn, leaf.leaf_index)),
            about={"evaluation_id": leaf.ref, "revision": leaf.revision},
            log=part.model_dump(mode="json"),
        )
        return ProvenanceBundle.model_validate(made)


def _provenance(draft: Recorded) -> Provenance:
    if draft.provenance is None:
        raise ValueError("an evaluation without provenance can't enter the log")
    return draft.provenance


def _find(conn: Connection, evaluation_id: str, revision: int | None) -> store.Leaf:
    leaf = store.find_leaf(conn, EVALUATION, evaluation_id, revision)
    if leaf is None:
        which = "" if revision is None else f" revision {revision}"
        raise NotFound(f"the log has no evaluation {evaluation_id[:64]!r}{which}")
    return leaf


def _erase(conn: Connection, evaluation_id: str, revision: int | None, names: Sequence[str]) -> int:
    index = _find(conn, evaluation_id, revision).leaf_index
    if missing := set(names) - {stage.name for stage in store.load_stages(conn, index)}:
        raise NotFound(f"evaluation {evaluation_id[:64]!r} has no stage {', '.join(sorted(missing))[:200]}")
    return store.erase_stages(conn, index, names)


def _inclusion(conn: Connection, index: int, tree_size: int | None) -> InclusionProof:
    size = _size(conn, tree_size)
    leaf = store.leaf_at(conn, index) if 0 <= index < size else None
    if leaf is None:
        raise BadRequest(f"a log of {size} entries has none at index {index}")
    path = store.roots_of(conn, inclusion_ranges(index, size))
    return InclusionProof(
        leaf_index=index,
        leaf_hash=_text(leaf),
        tree_size=size,
        root_hash=_text(store.root_at(conn, size)),
        path=tuple(map(_text, path)),
    )


def _consistency(conn: Connection, first: int, second: int | None) -> ConsistencyProof:
    size = _size(conn, second)
    if not 0 <= first <= size:
        raise BadRequest(f"a log of {first} entries can't be the beginning of one of {size}")
    path = store.roots_of(conn, consistency_ranges(first, size))
    return ConsistencyProof(
        first=first,
        first_root=_text(store.root_at(conn, first)),
        second=size,
        second_root=_text(store.root_at(conn, size)),
        path=tuple(map(_text, path)),
    )


def _size(conn: Connection, asked: int | None) -> int:
    size = store.size_of(conn)
    if asked is None:
        return size
    if not 0 <= asked <= size:
        raise BadRequest(f"the log has {size} entries, not {asked}")
    return asked


def _text(digest: bytes) -> str:
    return PREFIX + digest.hex()


def _enter_key(conn: Connection, key: SigningKey, at: str) -> list[LogKey]:
    query = select(log_keys).order_by(log_keys.c.first_size, log_keys.c.created_at)
    if not any(row.key_id == key.key_id for row in conn.execute(query)):
        insert_rows(conn, log_keys, [(key.key_id, key.public, store.size_of(conn), at)])
    return [
        LogKey(
            key_id=row.key_id,
            public_key=base64.b64encode(bytes(row.public_key)).decode(),
            first_size=row.first_size,
            created_at=row.created_at,
        )
        for row in conn.execute(query)
    ]
