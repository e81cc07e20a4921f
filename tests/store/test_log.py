"""The append-only log on both databases: entries in order, proofs that hold, signed heads, traces of meddling."""

import base64
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from app import verify
from app.errors import BadRequest, NotFound
from app.log import store
from app.log.keys import key_path, load_or_make_key
from app.log.model import head_message
from app.log.service import LogService
from app.log.store import Entry
from app.log.tables import log_leaves, log_tiles, provenance_stages
from app.store.database import Database
from layers import translog
from layers.errors import ConfigurationError
from layers.provenance import Provenance, Recorder, log_entry

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Draft:
    evaluation_id: str
    provenance: Provenance | None
    revision: int = 1
    created_at: str = "2026-01-01T00:00:00.000000Z"


def draft(name: str, revision: int = 1) -> Draft:
    recorder = Recorder()
    recorder.note("input", {"id": name})
    recorder.note("evidence", {"items": [revision]})
    return Draft(name, recorder.finish({"label": "high", "evaluation_id": name, "revision": revision}), revision)


def entries(count: int, start: int = 0) -> list[Entry]:
    return [
        Entry("evaluation", f"e{i}", 1, f"sha256:{i:064x}", "2026-01-01T00:00:00.000000Z")
        for i in range(start, start + count)
    ]


def hashes(count: int) -> list[bytes]:
    return [translog.leaf_hash(log_entry("evaluation", entry.root)) for entry in entries(count)]


@pytest.fixture
async def log(database: Database, tmp_path: Path) -> LogService:
    return await LogService.open(database, tmp_path / "log.key", now=lambda: "2026-01-02T03:04:05.000000Z")


def raw(digest: str) -> bytes:
    return bytes.fromhex(digest.removeprefix("sha256:"))


async def test_an_empty_log_has_a_head(log: LogService):
    head = await log.head()
    assert (head.tree_size, raw(head.root_hash)) == (0, translog.EMPTY_ROOT)


async def test_entries_are_numbered_in_order_whatever_the_batches(database: Database, log: LogService):
    indexes = []
    for start, count in ((0, 1), (1, 3), (4, 300), (304, 1)):
        batch = entries(count, start)
        indexes += await database.write(lambda conn, batch=batch: log.append_entries(conn, batch))
    assert indexes == list(range(305))
    assert raw((await log.head()).root_hash) == translog.tree_root(hashes(305))


async def test_tiles_are_closed_across_batches(database: Database, log: LogService):
    for start, count in ((0, 200), (200, 400), (600, 168)):
        batch = entries(count, start)
        await database.write(lambda conn, batch=batch: log.append_entries(conn, batch))
    rows = await database.read(lambda conn: conn.execute(log_tiles.select()).all())
    made = sorted((row.level, row.position, bytes(row.hash)) for row in rows)
    leaves = hashes(768)
    assert made == [(1, n, translog.tree_root(leaves[n * 256 : n * 256 + 256])) for n in range(3)]


async def test_proofs_from_the_store_verify(database: Database, log: LogService):
    await database.write(lambda conn: log.append_entries(conn, entries(700)))
    leaves = hashes(700)
    for index, size in ((0, 700), (699, 700), (255, 256), (256, 700), (300, 513), (0, 1)):
        proof = await log.inclusion(index, size)
        root = translog.tree_root(leaves[:size])
        assert raw(proof.root_hash) == root
        assert translog.verify_inclusion(raw(proof.leaf_hash), index, size, [raw(step) for step in proof.path], root)
    for first, second in ((1, 700), (256, 700), (257, 512), (700, 700), (0, 700)):
        proof = await log.consistency(first, second)
        roots = translog.tree_root(leaves[:first]), translog.tree_root(leaves[:second])
        assert (raw(proof.first_root), raw(proof.second_root)) == roots
        assert translog.verify_consistency(first, second, *roots, [raw(step) for step in proof.path])


async def test_what_the_log_does_not_have_has_no_proof(database: Database, log: LogService):
    await database.write(lambda conn: log.append_entries(conn, entries(3)))
    for index, size in ((3, 3), (-1, 3), (0, 4), (0, -1), (5, None)):
        with pytest.raises(BadRequest):
            await log.inclusion(index, size)
    for first, second in ((3, 2), (-1, 2), (4, None), (0, 9)):
        with pytest.raises(BadRequest):
            await log.consistency(first, second)


async def test_an_append_whose_transaction_fails_leaves_no_gap(database: Database, log: LogService):
    await database.write(lambda conn: log.append_entries(conn, entries(2)))

    def fails(conn):
        log.append_entries(conn, entries(300, 2))
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        await database.write(fails)
    assert list(await database.write(lambda conn: log.append_entries(conn, entries(1, 2)))) == [2]
    assert raw((await log.head()).root_hash) == translog.tree_root(hashes(3))


async def test_evaluations_are_entered_with_their_stages(database: Database, log: LogService):
    drafts = [draft("a"), draft("b"), draft("a", revision=2)]
    assert list(await database.write(lambda conn: log.append(conn, drafts))) == [0, 1, 2]
    bundle = await log.bundle("a")
    assert bundle.about == {"evaluation_id": "a", "revision": 2}
    assert bundle.root == drafts[2].provenance.root
    assert [stage.name for stage in bundle.stages] == ["input", "evidence", "verdict"]
    assert bundle.stages[0].payload.encode() == drafts[2].provenance.stages[0].payload
    first = await log.bundle("a", 1, since=1)
    assert (first.root, first.log.index) == (drafts[0].provenance.root, 0)
    assert (first.log.consistency.first, first.log.consistency.second) == (1, 3)


async def test_a_bundle_from_the_service_is_true_for_the_program_that_knows_nothing_of_it(
    database: Database, log: LogService, tmp_path: Path, capsys
):
    """Entries, an older head kept by an auditor, more entries, an erasure: checked by the stand-alone program alone."""
    await database.write(lambda conn: log.append(conn, [draft(f"e{i}") for i in range(260)]))
    old = await log.head()
    await database.write(lambda conn: log.append(conn, [draft(f"f{i}") for i in range(50)]))
    await log.erase("e7", 1, ["input"])
    for name in ("e7", "f3"):
        files = {
            "bundle": await log.bundle(name, since=old.tree_size),
            "head": old,
            "key": log.keys(),
        }
        paths = {what: tmp_path / f"{what}.json" for what in files}
        for what, value in files.items():
            paths[what].write_text(value.model_dump_json())
        arguments = [str(paths["bundle"]), "--head", str(paths["head"]), "--key", str(paths["key"])]
        assert verify.main(arguments) == 0
        assert "from 260 to 310 entries, only added" in capsys.readouterr().out


async def test_a_changed_payload_in_the_database_is_named_by_the_check(database, log: LogService, tmp_path, capsys):
    await database.write(lambda conn: log.append(conn, [draft("a")]))
    stages = provenance_stages
    changed = stages.update().where(stages.c.name == "evidence").values(payload=b"[]")
    await database.write(lambda conn: conn.execute(changed))
    path = tmp_path / "bundle.json"
    path.write_text((await log.bundle("a")).model_dump_json())
    assert verify.main([str(path)]) == 1
    assert "stage 2 ('evidence')" in capsys.readouterr().out.splitlines()[-1]


async def test_an_evaluation_without_provenance_is_not_entered(database: Database, log: LogService):
    with pytest.raises(ValueError, match="provenance"):
        await database.write(lambda conn: log.append(conn, [Draft("a", None)]))


async def test_an_unknown_evaluation_has_no_bundle(database: Database, log: LogService):
    await database.write(lambda conn: log.append(conn, [draft("a")]))
    for name, revision in (("z", None), ("a", 2)):
        with pytest.raises(NotFound):
            await log.bundle(name, revision)


async def test_a_stage_can_be_erased_and_everything_still_proves(database: Database, log: LogService):
    await database.write(lambda conn: log.append(conn, [draft("a"), draft("b")]))
    before = await log.bundle("a")
    assert await log.erase("a", None, ["input", "evidence"]) == 2
    assert await log.erase("a", None, ["input"]) == 0
    after = await log.bundle("a")
    assert [(stage.erased, stage.payload, stage.salt) for stage in after.stages[:2]] == [(True, None, None)] * 2
    assert [stage.commitment for stage in after.stages] == [stage.commitment for stage in before.stages]
    assert (after.root, after.log.inclusion) == (before.root, before.log.inclusion)
    with pytest.raises(NotFound, match="prompt"):
        await log.erase("a", None, ["prompt"])


async def test_an_erased_payload_is_overwritten_in_the_file(tmp_path: Path, database: Database, log: LogService):
    if database.dialect != "sqlite":
        pytest.skip("PostgreSQL overwrites on VACUUM")
    recorder = Recorder()
    recorder.note("input", {"secret": "correct-horse-battery"})
    await database.write(lambda conn: log.append(conn, [Draft("a", recorder.finish({}))]))
    await log.erase("a", None, ["input"])
    await database.close()  # the last connection moves the write-ahead log into the file
    assert b"correct-horse-battery" not in (tmp_path / "store.db").read_bytes()


async def test_heads_are_signed_by_the_key_that_is_shown(database: Database, log: LogService):
    await database.write(lambda conn: log.append_entries(conn, entries(2)))
    head, key = await log.head(), log.keys()
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key.public_key))
    message = head_message(head.tree_size, head.root_hash, head.timestamp)
    public.verify(base64.b64decode(head.signature), message)  # raises unless it is true
    assert head.timestamp == "2026-01-02T03:04:05.000000Z"
    assert head.key_id == key.key_id


async def test_a_rewritten_entry_changes_the_root(database: Database, log: LogService):
    await database.write(lambda conn: log.append_entries(conn, entries(5)))
    old = await log.head()
    await database.write(
        lambda conn: conn.execute(log_leaves.update().where(log_leaves.c.leaf_index == 1).values(leaf_hash=b"\0" * 32))
    )
    proof = await log.consistency(5)
    assert proof.second_root != old.root_hash


async def test_a_missing_entry_is_named(database: Database, log: LogService):
    await database.write(lambda conn: log.append_entries(conn, entries(5)))
    await database.write(lambda conn: conn.execute(log_leaves.delete().where(log_leaves.c.leaf_index == 1)))
    with pytest.raises(store.LogDamaged, match="entry 1"):
        await log.head()


async def test_stages_are_shown_as_stored_even_when_meddled_with(database: Database, log: LogService):
    """The service hides nothing: a changed payload goes into the bundle, and the check finds it."""
    await database.write(lambda conn: log.append(conn, [draft("a")]))
    await database.write(lambda conn: conn.execute(provenance_stages.update().values(payload=b"\xff")))
    assert (await log.bundle("a")).stages[0].encoding == "base64"


# --- keys ----------------------------------------------------------------------------------------------------------


async def test_the_key_is_made_once_with_mode_0600_and_kept(database: Database, tmp_path: Path):
    path = tmp_path / "k" / "log.key"
    path.parent.mkdir()
    first = await LogService.open(database, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]
    second = await LogService.open(database, path)
    assert first.keys() == second.keys()


async def test_a_new_key_is_shown_beside_the_earlier_ones(database: Database, tmp_path: Path):
    first = await LogService.open(database, tmp_path / "one.key")
    await database.write(lambda conn: first.append_entries(conn, entries(2)))
    second = await LogService.open(database, tmp_path / "two.key")
    keys = second.keys()
    assert (keys.first_size, [key.key_id for key in keys.earlier]) == (2, [first.keys().key_id])


def test_a_key_that_others_can_read_is_refused(tmp_path: Path):
    path = tmp_path / "log.key"
    load_or_make_key(path)
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        load_or_make_key(path)


@pytest.mark.parametrize(
    "content", [b"", b"rubbish", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_a_file_without_a_key_is_refused_and_kept(tmp_path: Path, content):
    path = tmp_path / "log.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="no Ed25519 private key"):
        load_or_make_key(path)
    assert path.read_bytes() == content


def test_a_folder_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="ARBITER_LOG_KEY_FILE"):
        load_or_make_key(tmp_path / "no" / "log.key")


@pytest.mark.parametrize(
    ("url", "given", "expected"),
    [
        ("sqlite:///data/a.db", None, Path("data/a.db.key")),
        ("postgresql://u@h/db", None, Path("arbiter-l8.key")),
        ("sqlite:///data/a.db", Path("k"), Path("k")),
    ],
)
def test_where_the_key_lies(url, given, expected):
    assert key_path(url, given) == expected
