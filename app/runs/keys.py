"""Idempotency keys: which request made which run, so that a repeated post makes no second one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.exc import IntegrityError

from app.errors import Conflict, FieldError, Unprocessable
from app.runs.dataset import Source, example_bytes
from app.runs.model import RunRequest
from app.runs.tables import run_keys
from app.store.database import Database
from app.store.ids import now
from layers.canonical import canonical_bytes
from layers.model import EvalExample

MAX_KEY = 256
BLOCK = 1 << 20


class KeyReused(Unprocessable):
    """The key belongs to another request."""

    def __init__(self) -> None:
        message = "this Idempotency-Key was used for another request"
        super().__init__(message, [FieldError("", message)])


class KeyStore:
    """Keys are claimed before the work and settled in the transaction that makes the run."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, key: str, body_hash: str, executor: str | None) -> str | None:
        """Take `key` for this request; the id of the run when an equal request has already made one.

        Raises `Conflict` while that request is being worked on, `KeyReused` for another body.
        """
        row = insert(run_keys).values(
            idempotency_key=key, body_hash=body_hash, run_id=None, executor=executor, created_at=now()
        )
        try:
            await self._database.write(lambda conn: _done(conn.execute(row)))
        except IntegrityError:
            return await self._earlier(key, body_hash)
        return None

    async def release(self, key: str) -> None:
        """Give `key` back: the request failed, so that it may be sent again."""
        unsettled = delete(run_keys).where(run_keys.c.idempotency_key == key, run_keys.c.run_id.is_(None))
        await self._database.write(lambda conn: _done(conn.execute(unsettled)))

    async def unsettled(self) -> Sequence[str | None]:
        """Processes whose requests hold keys without a run."""
        query = select(run_keys.c.executor).where(run_keys.c.run_id.is_(None)).distinct()
        return await self._database.read(lambda conn: conn.scalars(query).all())

    async def drop_unsettled(self, executor: str | None) -> None:
        """Free the keys of requests that died with that process."""
        old = delete(run_keys).where(run_keys.c.run_id.is_(None), run_keys.c.executor.is_not_distinct_from(executor))
        await self._database.write(lambda conn: _done(conn.execute(old)))

    async def _earlier(self, key: str, body_hash: str) -> str | None:
        query = select(run_keys.c.body_hash, run_keys.c.run_id).where(run_keys.c.idempotency_key == key)

        def look(conn: Connection) -> Any:
            return conn.execute(query).first()

        row = await self._database.read(look)
        if row is None or row.run_id is None:
            if row is not None and row.body_hash != body_hash:
                raise KeyReused
            raise Conflict("a request with this Idempotency-Key is being worked on; send it again in a moment")
        if row.body_hash != body_hash:
            raise KeyReused
        return str(row.run_id)


def check_key(key: str) -> None:
    """Raise `Unprocessable` for a key that can't be one."""
    if not 1 <= len(key) <= MAX_KEY or not key.isprintable():
        raise Unprocessable(f"an Idempotency-Key has 1 to {MAX_KEY} printable characters")


def hash_request(request: RunRequest, dataset: Iterable[EvalExample] | Source | None) -> str:
    """What makes two requests the same one: the request and the dataset's content. A file is read and rewound."""
    digest = hashlib.sha256(canonical_bytes(request.model_dump(mode="json")))
    if isinstance(dataset, Source):
        begin = dataset.file.tell()
        digest.update(dataset.format.encode())
        while block := dataset.file.read(BLOCK):
            digest.update(block)
        dataset.file.seek(begin)
    elif dataset is not None:
        for example in dataset:
            digest.update(example_bytes(example) + b"\n")
    return "sha256:" + digest.hexdigest()


def _done(_result: object) -> None:
    """Results of statements must not leave the writer's thread."""
