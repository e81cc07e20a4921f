"""Filling the embedded index: items, policy documents, past verdicts, and every refusal with its place."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.errors import Conflict, NotFound, ServiceError, Unprocessable
from app.index.embedded import EmbeddedIndex
from app.index.lexical import LexicalEmbedder
from app.index.model import IndexItem, IndexRequest
from app.index.service import IndexService
from app.settings import StoreSettings
from app.store.database import Database
from layers.errors import DependencyUnavailable
from layers.fingerprint import read_transaction_entry, transaction_fingerprint
from layers.ports import Embedder, Task, Vector

pytestmark = pytest.mark.anyio

TRANSACTION = {"amount": 42, "currency": "USD", "type": "purchase", "merchant": "Corner Books"}


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/store.db"))
    yield opened
    await opened.close()


@pytest.fixture
def index(database: Database) -> EmbeddedIndex:
    return EmbeddedIndex(database, embedder=LexicalEmbedder.name)


def service(index: EmbeddedIndex, embedder: Embedder | None = None) -> IndexService:
    return IndexService(index, embedder or LexicalEmbedder(), fingerprint=transaction_fingerprint)


async def nearest(index: EmbeddedIndex, namespace: str, text: str, top_k: int = 1) -> Any:
    return await index.query(namespace, await LexicalEmbedder().embed(text, "document"), top_k=top_k)


async def test_texts_and_vectors_become_entries(index: EmbeddedIndex) -> None:
    vector = await LexicalEmbedder().embed("given", "document")
    items = [IndexItem(id="t", text="some text", metadata={"domain": "aml"}), IndexItem(id="v", vector=tuple(vector))]
    done = await service(index).upsert("notes", items)
    assert (done.entries, done.namespace.entries) == (2, 2)
    assert (done.namespace.embedder, done.namespace.dimension) == (LexicalEmbedder.name, 1024)
    (text,) = await nearest(index, "notes", "some text")
    assert (text.id, text.score, text.metadata) == ("t", 1.0, {"text": "some text", "domain": "aml"})
    assert (await nearest(index, "notes", "given"))[0].id == "v"


async def test_a_past_verdict_is_found_by_the_fingerprint_of_its_input(index: EmbeddedIndex) -> None:
    item = IndexItem(id="1", input=TRANSACTION, label="high", policy_epoch="7", metadata={"timestamp": "t"})
    await service(index).upsert("transactions", [item])
    (match,) = await nearest(index, "transactions", transaction_fingerprint(TRANSACTION))
    assert (match.id, match.score) == ("txn_1", 1.0)
    entry = read_transaction_entry(match.metadata)
    assert entry is not None
    assert (entry.label, entry.epoch, match.metadata["timestamp"]) == ("high", "7", "t")


async def test_many_items_are_written_in_order_and_the_last_of_an_id_stays(index: EmbeddedIndex) -> None:
    items = [IndexItem(id=str(n % 300), text=f"text {n}") for n in range(600)]
    done = await service(index).upsert("notes", items)
    assert (done.documents, done.namespace.entries) == (600, 300)
    assert (await nearest(index, "notes", "text 599"))[0].metadata["text"] == "text 599"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"text": "a", "vector": [1]},
        {"text": "a", "label": "low"},
        {"input": {}},
        {"text": ""},
        {"vector": []},
        {"vector": [float("nan")]},
        {"vector": [1e300]},
        {"text": "a", "odd": 1},
    ],
    ids=str,
)
def test_an_item_is_exactly_one_of_text_vector_and_verdict(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        IndexRequest.model_validate({"items": [{"id": "x", **fields}]})


async def test_a_document_that_is_ingested_again_replaces_its_former_pieces(index: EmbeddedIndex) -> None:
    fill = service(index)
    long = "\n\n".join("word " * 300 for _ in range(3))
    first = await fill.ingest_policy("aml-bsa.md", long)
    second = await fill.ingest_policy("aml-bsa.md", "Only this is left.")
    assert (first.entries, first.namespace.entries) == (3, 3)
    assert (second.entries, second.namespace.entries) == (1, 1)
    (match,) = await nearest(index, "policies", "Only this is left.")
    assert match.id == "aml-bsa.md#0"
    assert match.metadata == {"text": "Only this is left.", "source": "aml-bsa.md", "chunk": 0, "domain": "aml"}


async def test_a_folder_of_markdown_is_ingested_by_relative_names(index: EmbeddedIndex, tmp_path: Path) -> None:
    folder = tmp_path / "policies"
    (folder / "eu").mkdir(parents=True)
    (folder / "aml-bsa.md").write_text("# BSA\n\nReports.", "utf-8")
    (folder / "eu" / "gdpr-33.md").write_text("\ufeffBreaches within 72 hours.", "utf-8")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    done = await service(index).ingest(folder)
    assert (done.documents, done.entries) == (2, 2)
    found = await nearest(index, "policies", "Breaches within 72 hours.")
    assert (found[0].id, found[0].metadata["domain"]) == ("eu/gdpr-33.md#0", "gdpr")


@pytest.mark.parametrize("name", ["past.json", "past.ndjson"])
async def test_a_file_of_past_verdicts_goes_to_the_transactions(
    index: EmbeddedIndex, tmp_path: Path, name: str
) -> None:
    items = [{"id": str(n), "input": {**TRANSACTION, "amount": n}, "label": "low"} for n in range(3)]
    lines = "\n".join(json.dumps(item) for item in items) + "\n\n"
    (tmp_path / name).write_text(json.dumps(items) if name.endswith(".json") else lines, "utf-8")
    done = await service(index).ingest(tmp_path / name)
    assert (done.entries, done.namespace.namespace) == (3, "transactions")


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("absent.md", None, NotFound, "there is no file or folder at"),
        ("empty.md", b" \n", Unprocessable, "empty.md holds no text"),
        ("latin.md", b"caf\xe9", Unprocessable, "not UTF-8 text (byte 3)"),
        ("bad.json", b"{", Unprocessable, "bad.json, the file: not valid JSON"),
        ("odd.json", b'"x"', Unprocessable, "neither an array nor an object with `items`"),
        ("twice.ndjson", b'{"id": "1", "id": "2"}', Unprocessable, "twice.ndjson, line 1: duplicate key"),
        ("half.ndjson", b'{"id": "1", "text": "a"}\n{"id": "2"}', Unprocessable, "half.ndjson, line 2: "),
        ("label.json", b'[{"id": "1", "input": {}, "label": 7}]', Unprocessable, "label.json, item 0: label: "),
    ],
)
async def test_what_can_not_be_ingested_is_refused_with_file_and_place(
    index: EmbeddedIndex, tmp_path: Path, name: str, content: bytes | None, error: type[ServiceError], message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(error) as refusal:
        await service(index).ingest(tmp_path / name)
    assert message in str(refusal.value)
    assert await index.states() == []


async def test_an_empty_folder_is_refused(index: EmbeddedIndex, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(NotFound, match="holds no Markdown"):
        await service(index).ingest(tmp_path / "none")


@pytest.mark.parametrize("namespace", ["", "a/b", "x" * 200, ".hidden", "a b"])
async def test_a_namespace_has_a_plain_name(index: EmbeddedIndex, namespace: str) -> None:
    with pytest.raises(Unprocessable):
        await service(index).upsert(namespace, [IndexItem(id="x", text="y")])


class OtherEmbedder:
    """Another model, of another dimension; `broken` makes it fail at that text."""

    name = "other"
    dimension = 2

    def __init__(self, broken: str | None = None) -> None:
        self.broken = broken

    async def embed(self, text: str, task: Task) -> Vector:
        assert task == "document"
        if text == self.broken:
            raise DependencyUnavailable("embedder", "timeout")
        return [1.0, 2.0]


async def test_another_embedder_is_a_conflict_until_the_namespace_is_emptied(
    database: Database, index: EmbeddedIndex
) -> None:
    await service(index).ingest_policy("a.md", "text")
    other = service(EmbeddedIndex(database, embedder="other"), OtherEmbedder())
    with pytest.raises(Conflict, match=r"lexical-ngrams-1:1024 with 1024 .* in force is other with 2"):
        await other.ingest_policy("a.md", "text")
    await other.clear("policies")
    assert (await other.ingest_policy("a.md", "text")).namespace.embedder == "other"


async def test_an_embedder_that_fails_writes_nothing(database: Database) -> None:
    index = EmbeddedIndex(database, embedder="other")
    items = [IndexItem(id=str(n), text=f"text {n}") for n in range(20)]
    with pytest.raises(DependencyUnavailable):
        await service(index, OtherEmbedder(broken="text 13")).upsert("notes", items)
    assert await index.states() == []


async def test_a_namespace_that_is_not_there_is_not_found(index: EmbeddedIndex) -> None:
    with pytest.raises(NotFound):
        await service(index).describe("nothing")
    with pytest.raises(NotFound):
        await service(index).clear("nothing")
    assert await service(index).namespaces() == []
