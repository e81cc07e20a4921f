"""The embedded index: exact, ordered, kept in the database, and never mixing embedders."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.index.chunks import chunk_markdown, domain_of
from app.index.embedded import EmbeddedIndex
from app.index.lexical import DIMENSION, LexicalEmbedder
from app.index.matrix import Matrix
from app.index.policies import LexicalPolicySource, VectorPolicySource
from app.index.rows import Change, Entry
from app.store.database import Database
from layers.errors import ConfigurationError
from layers.ports import Embedder, PolicySource, Vector, VectorIndex

pytestmark = pytest.mark.anyio


def index(database: Database, embedder: str = "test") -> EmbeddedIndex:
    return EmbeddedIndex(database, embedder=embedder)


def angle(degrees: float) -> Vector:
    return [math.cos(math.radians(degrees)), math.sin(math.radians(degrees))]


def entry(name: str, degrees: float = 0, **metadata: object) -> Entry:
    return Entry(name, angle(degrees), metadata)


async def ids(of: EmbeddedIndex, degrees: float = 0, top_k: int = 10, **options: str) -> list[str]:
    return [match.id for match in await of.query("ns", angle(degrees), top_k=top_k, **options)]


async def test_nearest_come_first_with_their_score_and_metadata(database: Database) -> None:
    vectors: VectorIndex = index(database)
    await index(database).write("ns", [entry("c", 180), entry("a", 0, label="low"), entry("b", 90)])
    found = await vectors.query("ns", [3.0, 0.0], top_k=3)
    assert [(m.id, m.score, m.metadata) for m in found] == [
        ("a", 1.0, {"label": "low"}),
        ("b", 0.5, {}),
        ("c", 0.0, {}),
    ]
    assert [m.id for m in await vectors.query("ns", [3.0, 0.0], top_k=2)] == ["a", "b"]


async def test_a_namespace_that_is_not_there_has_no_neighbours(database: Database) -> None:
    assert await ids(index(database)) == []
    assert await index(database).size("ns") == 0


async def test_equal_scores_are_in_order_of_ids_also_at_the_cut(database: Database) -> None:
    vectors = index(database)
    await vectors.write("ns", [entry(f"n{n}") for n in (7, 3, 9, 1, 5)])
    assert await ids(vectors, top_k=3) == ["n1", "n3", "n5"]


async def test_the_same_id_is_replaced(database: Database) -> None:
    vectors = index(database)
    await vectors.write("ns", [entry("a", 0, v=1), entry("b", 10)])
    assert await ids(vectors) == ["a", "b"]
    await vectors.write("ns", [entry("a", 170, v=2), entry("a", 180, v=3)])
    found = await vectors.query("ns", angle(0), top_k=10)
    assert [(m.id, m.metadata) for m in found] == [("b", {}), ("a", {"v": 3})]
    assert await vectors.size("ns") == 2


async def test_what_an_origin_no_longer_has_is_gone(database: Database) -> None:
    vectors = index(database)
    await vectors.write("ns", [entry("d#0"), entry("d#1"), entry("d#2")], origin="d")
    await vectors.write("ns", [entry("e#0")], origin="e")
    await vectors.write("ns", [entry("d#0"), entry("d#1")], origin="d")
    assert await ids(vectors) == ["d#0", "d#1", "e#0"]
    assert await ids(index(database)) == ["d#0", "d#1", "e#0"]


async def test_it_survives_a_restart(database: Database) -> None:
    await index(database).write("ns", [entry("a", 0, text="é")])
    found = await index(database).query("ns", angle(0), top_k=1)
    assert [(m.id, m.metadata) for m in found] == [("a", {"text": "é"})]


async def test_what_another_process_wrote_is_found_at_the_next_query(database: Database) -> None:
    mine, other = index(database), index(database)
    await mine.write("ns", [entry("a")])
    assert await ids(mine) == await ids(other) == ["a"]
    await other.write("ns", [entry("b", 5)])
    assert await ids(mine) == ["a", "b"]
    await other.clear("ns")
    assert await ids(mine) == []
    await other.write("ns", [entry("c")])
    assert await ids(mine) == ["c"], "a namespace made anew does not show its former entries"


async def test_a_filter_compares_a_field_of_the_metadata(database: Database) -> None:
    vectors = index(database)
    await vectors.write(
        "ns", [entry("a", 0, domain="gdpr"), entry("b", 10, domain="aml"), entry("c", 20, domain="a'b")]
    )
    assert await ids(vectors, top_k=1, filter="domain = 'aml'") == ["b"]
    assert await ids(vectors, top_k=1, filter="domain='a''b'") == ["c"]
    assert await ids(vectors, filter="domain = 'hipaa'") == []
    with pytest.raises(ConfigurationError, match="field = 'value'"):
        await ids(vectors, filter="domain = 'aml' OR 1 = 1")


async def test_another_dimension_is_refused_by_name_and_number(database: Database) -> None:
    vectors = index(database)
    await vectors.write("ns", [entry("a")])
    message = r"'ns' holds vectors of test with 2 dimensions, the embedder in force is test with 3"
    with pytest.raises(ConfigurationError, match=message):
        await vectors.query("ns", [1, 2, 3], top_k=1)
    with pytest.raises(ConfigurationError, match=message):
        await vectors.write("ns", [Entry("b", [1, 2, 3], {})])
    with pytest.raises(ConfigurationError, match=r"\[2, 3\]"):
        await vectors.write("ns", [entry("b"), Entry("c", [1, 2, 3], {})])
    assert await ids(vectors) == ["a"]


async def test_another_embedder_of_the_same_dimension_is_refused_by_name(database: Database) -> None:
    await index(database, "nomic").write("ns", [entry("a")])
    with pytest.raises(ConfigurationError, match=r"vectors of nomic .* in force is other"):
        await ids(index(database, "other"))
    with pytest.raises(ConfigurationError, match=r"vectors of nomic .* in force is other"):
        await index(database, "other").write("ns", [entry("b")])


async def test_writes_and_queries_at_the_same_time_lose_nothing(database: Database) -> None:
    mine, other = index(database), index(database)

    async def write(to: EmbeddedIndex, number: int) -> None:
        await to.write("ns", [entry(f"n{number:03}", number)])

    tasks = [write(mine if n % 2 else other, n) for n in range(40)]
    await asyncio.gather(*tasks, *(ids(mine) for _ in range(10)))
    assert await mine.size("ns") == await other.size("ns") == 40


async def test_a_large_namespace_is_searched_exactly(database: Database) -> None:
    """Against the definition, over enough entries that loading and searching leave the event loop."""
    random = np.random.default_rng(7)
    rows = random.normal(size=(24_000, 96))
    vectors = index(database)
    await vectors.write("ns", [Entry(f"{n:05}", row.tolist(), {}) for n, row in enumerate(rows)])
    query = random.normal(size=96)
    cosines = rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)
    expected = [f"{n:05}" for n in np.argsort(-cosines)[:20]]
    found = await vectors.query("ns", query.tolist(), top_k=20)
    assert [match.id for match in found] == expected
    assert [match.score for match in found] == pytest.approx((1 + np.sort(cosines)[::-1][:20]) / 2, abs=1e-5)


def test_a_matrix_forgets_replaced_rows_and_searches_under_way_do_not_notice() -> None:
    matrix = Matrix(2)

    def change(name: str, degrees: float, *, gone: bool = False) -> Change:
        return Change(name, gone, np.array(angle(degrees), dtype=np.float32), b"{}")

    matrix.apply([change(f"{n}", n / 10) for n in range(1000)])
    under_way = matrix.search(angle(0), 2)
    for _ in range(3):
        matrix.apply([change(f"{n}", 180 - n / 10) for n in range(500)])
    matrix.apply([change("999", 0, gone=True), change("unknown", 0, gone=True)])
    assert [m.id for m in under_way()] == ["0", "1"]
    assert [m.id for m in matrix.search(angle(180), 2)()] == ["0", "1"]
    assert [m.id for m in matrix.search(angle(50), 1)()] == ["500"]
    assert len(matrix) == 999


# --- the embedded embedder --------------------------------------------------------------------------------------------


def fingerprint(merchant: str = "Corner Books", part: str = "morning", tier: str = "small") -> str:
    return (
        f"Amount: {tier} USD | Type: purchase | Category: retail | Merchant: {merchant} | Time: {part} | Message: N/A"
    )


async def similarity(left: str, right: str) -> float:
    embedder = LexicalEmbedder()
    vectors = np.array([await embedder.embed(left, "document"), await embedder.embed(right, "query")])
    return float((1 + vectors[0] @ vectors[1]) / 2)


async def test_near_identical_fingerprints_pass_the_threshold_and_others_do_not() -> None:
    other = (
        "Amount: very_large EUR | Type: wire | Category: crypto | Merchant: Blue Harbor | Time: night | Message: urgent"
    )
    assert await similarity(fingerprint(), fingerprint()) == pytest.approx(1)
    assert await similarity(fingerprint(), fingerprint(part="evening")) > 0.9
    assert await similarity(fingerprint(), fingerprint(tier="medium")) > 0.9
    assert await similarity(fingerprint(), other) < 0.8


async def test_case_width_and_blanks_do_not_matter() -> None:
    assert await similarity("Corner  Books", " corner ＢＯＯＫＳ") == pytest.approx(1)


async def test_the_lexical_embedder_says_what_it_is_and_never_changes_in_silence() -> None:
    """These numbers are in operators' databases: another hash needs another name."""
    embedder: Embedder = LexicalEmbedder()
    assert (embedder.name, embedder.dimension) == ("lexical-ngrams-1:1024", DIMENSION)
    vector = np.array(await embedder.embed("abc", "document"))
    assert sorted(np.flatnonzero(vector).tolist()) == ABC_PLACES


ABC_PLACES = [169, 208, 280, 294, 306, 454, 472, 512, 513, 522, 707, 782]


@given(st.text())
async def test_every_text_has_a_unit_vector(text: str) -> None:
    vector = await LexicalEmbedder().embed(text, "document")
    assert len(vector) == DIMENSION
    assert math.hypot(*vector) == pytest.approx(1)


# --- policies -------------------------------------------------------------------------------------------------------

POLICIES = {
    "aml-bsa.md": "Structuring a deposit to avoid a currency transaction report is an offence under 31 U.S.C. § 5324.",
    "aml-ctr.md": "A report is filed for cash of more than $10,000 in one day, as 31 CFR 1010.311 demands.",
    "gdpr-breach.md": "A personal data breach is notified within 72 hours (GDPR Article 33) to the authority.",
}


async def put_policies(vectors: EmbeddedIndex, embedder: Embedder) -> None:
    for source, text in POLICIES.items():
        metadata = {"text": text, "source": source, "chunk": 0, "domain": domain_of(source)}
        await vectors.write("policies", [Entry(source, await embedder.embed(text, "document"), metadata)])


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("The customer split deposits, which 31 U.S.C. § 5324 calls structuring.", "aml-bsa.md"),
        ("Under 31 CFR 1010.311 this needed a filing by Corner Bank on Monday.", "aml-ctr.md"),
        ("gdpr article 33", "gdpr-breach.md"),
    ],
)
async def test_a_sentence_finds_the_policy_that_shares_its_rare_words(
    database: Database, query: str, first: str
) -> None:
    vectors = index(database, LexicalEmbedder.name)
    await put_policies(vectors, LexicalEmbedder())
    source: PolicySource = LexicalPolicySource(vectors, "policies")
    found = await source.search(query, limit=2, threshold=0.7)
    assert found is not None
    assert (found[0].id, found[0].source, found[0].text) == (first, first, POLICIES[first])
    assert len(found) <= 2
    assert all(0.7 <= chunk.score <= 1 for chunk in found)


async def test_nothing_shared_is_no_hit_and_no_corpus_is_none(database: Database) -> None:
    vectors = index(database, LexicalEmbedder.name)
    source = LexicalPolicySource(vectors, "policies")
    assert await source.search("anything", limit=5, threshold=0.7) is None
    await put_policies(vectors, LexicalEmbedder())
    assert await source.search("ψξ", limit=5, threshold=0.0) == []


async def test_a_policy_written_later_is_found(database: Database) -> None:
    vectors = index(database, LexicalEmbedder.name)
    source = LexicalPolicySource(vectors, "policies")
    await put_policies(vectors, LexicalEmbedder())
    assert await source.search("HIPAA", limit=1, threshold=0.7) == []
    vector = await LexicalEmbedder().embed("HIPAA", "document")
    await vectors.write("policies", [Entry("h", vector, {"text": "HIPAA privacy rule", "source": "hipaa.md"})])
    found = await source.search("HIPAA privacy", limit=1, threshold=0.7)
    assert found is not None
    assert [chunk.id for chunk in found] == ["h"]


class AngleEmbedder:
    """Embeds a number as an angle."""

    name = "test"
    dimension = 2

    async def embed(self, text: str, task: str) -> Vector:
        assert task == "query"
        return angle(float(text))


async def test_policies_by_vector_obey_threshold_and_limit(database: Database) -> None:
    vectors = index(database)
    source: PolicySource = VectorPolicySource(vectors, AngleEmbedder(), "ns", embedded=vectors)
    assert await source.search("0", limit=5, threshold=0.7) is None
    await vectors.write(
        "ns", [entry("a", 0, text="A"), entry("b", 30, text="B", domain="aml"), entry("c", 120, text="C")]
    )
    found = await source.search("0", limit=5, threshold=0.7)
    assert found is not None
    assert [(chunk.id, chunk.text, chunk.domain) for chunk in found] == [("a", "A", None), ("b", "B", "aml")]
    assert await source.search("250", limit=1, threshold=0.99) == []


# --- chunks -----------------------------------------------------------------------------------------------------------


def test_chunks_end_at_paragraphs_and_lose_no_word() -> None:
    paragraphs = [" ".join(f"p{p}w{w}" for w in range(180)) for p in range(7)]
    chunks = chunk_markdown("\n\n".join(paragraphs))
    assert [len(chunk.split()) for chunk in chunks] == [360, 360, 360, 180]
    assert "\n\n".join(chunks) == "\n\n".join(paragraphs)


def test_a_heading_stays_with_what_follows_it() -> None:
    text = "# One\n\n" + "a " * 400 + "\n\n## Two\n\n### Deeper\n\n" + "b " * 200 + "\n\n# End"
    chunks = chunk_markdown(text)
    assert [chunk.split("\n")[0] for chunk in chunks] == ["# One", "## Two"]
    assert chunks[1].endswith("# End")


def test_a_paragraph_longer_than_a_piece_is_cut_between_words() -> None:
    assert [len(chunk.split()) for chunk in chunk_markdown("w " * 1200)] == [500, 500, 200]


@given(st.text("ab#\n \t\r`", max_size=300), st.integers(1, 9))
def test_any_text_is_cut_without_loss(text: str, words: int) -> None:
    chunks = chunk_markdown(text, words)
    assert " ".join(chunks).split() == text.split()
    assert all(0 < len(chunk.split()) <= words for chunk in chunks)


@pytest.mark.parametrize(
    ("source", "domain"), [("aml-bsa.md", "aml"), ("GDPR_art33.md", "gdpr"), ("x/hipaa.md", "hipaa"), ("saas", "saas")]
)
def test_the_domain_is_the_first_part_of_the_file_name(source: str, domain: str) -> None:
    assert domain_of(source) == domain
