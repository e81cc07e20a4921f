"""Fill the embedded index: items from the API, policy documents, past verdicts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio

from app.errors import Conflict, FieldError, NotFound, Unprocessable
from app.index.chunks import chunk_markdown, domain_of
from app.index.embedded import EmbeddedIndex
from app.index.files import read_documents, read_verdicts
from app.index.model import NAMESPACE, IndexItem, Ingested, NamespaceInfo
from app.index.rows import Entry
from layers.errors import ConfigurationError
from layers.model import JsonObject
from layers.ports import Embedder, Vector

_AT_ONCE = 8
"""Texts that are embedded at the same time."""
_BATCH = 256


class IndexService:
    """Writes to the embedded index with the embedder in force.

    `fingerprint` turns a transaction into the text under which its verdict is found again. Refusals are
    `ServiceError`s; an embedder that fails raises `DependencyError`.
    """

    def __init__(
        self,
        index: EmbeddedIndex,
        embedder: Embedder,
        *,
        fingerprint: Callable[[JsonObject], str],
        policies_namespace: str = "policies",
        transactions_namespace: str = "transactions",
    ) -> None:
        self._index = index
        self._embedder = embedder
        self._fingerprint = fingerprint
        self._policies = policies_namespace
        self._transactions = transactions_namespace

    async def upsert(self, namespace: str, items: Sequence[IndexItem]) -> Ingested:
        """Put items in; those of an id that is there already replace it."""
        _check_namespace(namespace)
        for start in range(0, len(items), _BATCH):
            batch = items[start : start + _BATCH]
            await self._write(namespace, await self._entries(batch))
        return Ingested(documents=len(items), entries=len(items), namespace=await self.describe(namespace))

    async def ingest_policy(self, source: str, text: str, namespace: str | None = None) -> Ingested:
        """Put one policy document in, in place of what it was cut into before. `source` is its file name."""
        name = namespace or self._policies
        _check_namespace(name)
        written = await self._put_document(source, text, name)
        return Ingested(documents=1, entries=written, namespace=await self.describe(name))

    async def ingest_markdown(self, path: Path, namespace: str | None = None) -> Ingested:
        """Put a Markdown file in, or every one below a folder; names relative to that folder identify documents."""
        name = namespace or self._policies
        _check_namespace(name)
        documents = await anyio.to_thread.run_sync(read_documents, path)
        written = 0
        for source, text in documents:
            written += await self._put_document(source, text, name)
        return Ingested(documents=len(documents), entries=written, namespace=await self.describe(name))

    async def ingest_verdicts(self, path: Path, namespace: str | None = None) -> Ingested:
        """Put past verdicts in, from a `.json` or `.ndjson` file of items with `id`, `input` and `label`."""
        items = await anyio.to_thread.run_sync(read_verdicts, path)
        return await self.upsert(namespace or self._transactions, items)

    async def ingest(self, path: Path, namespace: str | None = None) -> Ingested:
        """Put a file or folder in: `.json` and `.ndjson` hold past verdicts, all else is policy text."""
        if path.suffix.lower() in {".json", ".ndjson", ".jsonl"}:
            return await self.ingest_verdicts(path, namespace)
        return await self.ingest_markdown(path, namespace)

    async def describe(self, namespace: str) -> NamespaceInfo:
        """One namespace. Raises `NotFound`."""
        for state in await self._index.states():
            if state.namespace == namespace:
                return NamespaceInfo(
                    namespace=namespace,
                    embedder=state.embedder,
                    dimension=state.dimension,
                    entries=await self._index.size(namespace),
                )
        raise NotFound(f"there is no index namespace {namespace[:128]!r}")

    async def namespaces(self) -> list[NamespaceInfo]:
        """Every namespace, by name."""
        return [await self.describe(state.namespace) for state in await self._index.states()]

    async def clear(self, namespace: str) -> None:
        """Empty a namespace, so that another embedder may fill it. Raises `NotFound`."""
        await self.describe(namespace)
        await self._index.clear(namespace)

    async def _put_document(self, source: str, text: str, namespace: str) -> int:
        chunks = chunk_markdown(text)
        if not chunks:
            raise Unprocessable(f"{source} holds no text")
        vectors = await self._embed(chunks)
        entries = [
            Entry(
                f"{source}#{number}",
                vector,
                {"text": chunk, "source": source, "chunk": number, "domain": domain_of(source)},
            )
            for number, (chunk, vector) in enumerate(zip(chunks, vectors, strict=True))
        ]
        await self._write(namespace, entries, origin=source)
        return len(entries)

    async def _entries(self, items: Sequence[IndexItem]) -> list[Entry]:
        texts = {item.id: text for item in items if (text := self._text_of(item)) is not None}
        vectors = dict(zip(texts, await self._embed(list(texts.values())), strict=True))
        return [_entry(item, vectors.get(item.id)) for item in items]

    def _text_of(self, item: IndexItem) -> str | None:
        return item.text if item.input is None else self._fingerprint(item.input)

    async def _embed(self, texts: Sequence[str]) -> list[Vector]:
        vectors: list[Vector] = [[] for _ in texts]
        room = anyio.CapacityLimiter(_AT_ONCE)
        failures: list[Exception] = []

        async def embed(at: int) -> None:
            async with room:
                try:
                    if not failures:
                        vectors[at] = await self._embedder.embed(texts[at], "document")
                except Exception as exc:
                    failures.append(exc)

        async with anyio.create_task_group() as group:
            for at in range(len(texts)):
                group.start_soon(embed, at)
        if failures:
            raise failures[0]
        return vectors

    async def _write(self, namespace: str, entries: Sequence[Entry], *, origin: str | None = None) -> None:
        try:
            await self._index.write(namespace, entries, origin=origin)
        except ConfigurationError as exc:
            raise Conflict(str(exc)) from exc


def _entry(item: IndexItem, vector: Vector | None) -> Entry:
    if item.input is not None:
        return Entry(f"txn_{item.id}", vector or [], _as_sentinel_keeps(item))
    metadata: dict[str, Any] = dict(item.metadata)
    if item.text is not None:
        metadata.setdefault("text", item.text)
    return Entry(item.id, list(item.vector) if item.vector is not None else vector or [], metadata)


def _as_sentinel_keeps(item: IndexItem) -> JsonObject:
    """A past verdict's metadata in the shape that Sentinel gives its own, so that one reader reads both."""
    kept = {"analysis": {"risk_level": item.label}, "threat_level": item.label, **item.metadata}
    return kept if item.policy_epoch is None else {**kept, "policy_epoch": item.policy_epoch}


def _check_namespace(namespace: str) -> None:
    if not re.fullmatch(NAMESPACE, namespace):
        message = "a namespace is 1 to 128 letters, digits, dots, hyphens and underscores"
        raise Unprocessable(message, [FieldError("/namespace", message)])
