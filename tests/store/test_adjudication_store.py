"""Adjudication in the store, the same on SQLite and PostgreSQL: turns, races, leases, snapshots."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from app.adjudication.model import AdjudicationRequest
from app.adjudication.record_store import LEASE_SECONDS, RecordStore
from app.adjudication.service import AdjudicationService
from app.adjudication.snapshot_lines import KINDS, SnapshotRefused
from app.adjudication.synthesis import Failure
from app.adjudication.synthesis_model import SynthesisRequest
from app.errors import BadRequest, Conflict
from app.log.service import LogService
from app.settings import StoreSettings
from app.store.database import Database
from layers.adjudication_rules import Thresholds, standing_of
from layers.canonical import canonical_bytes, sha256_of
from layers.errors import DependencyUnavailable
from tests.adjudications import SECRET, GivenFailures, adjudicate, build, by_evidence, reply, says, show, state
from tests.unit.answerers import ScriptedAnswerer

pytestmark = pytest.mark.anyio
RUN = "01933d2c-0000-7000-8000-00000000000a"


async def test_records_of_one_hypothesis_have_turns_without_gaps_whoever_races(database: Database) -> None:
    """Eight at once: each has its own turn, and the score is the one that all of them give."""
    service = build(database, ScriptedAnswerer(by_evidence({"odd": reply("contradicts")}, reply())), concurrency=8)
    hypothesis = await state(service)
    pieces = [await show(service, f"{'odd' if n % 2 else 'even'} {n}") for n in range(8)]
    await adjudicate(service, [hypothesis], pieces)
    moves = (await service.transitions(hypothesis.hypothesis_id)).items
    now = await service.hypothesis(hypothesis.hypothesis_id)
    assert [move.turn for move in moves] == list(range(1, 9))
    assert now.standing == standing_of((now.links or {}).values()) == moves[-1].after
    assert (now.standing.n_supporting, now.standing.n_contradicting) == (4, 4)


async def test_a_statement_is_stored_once_whoever_races(database: Database) -> None:
    service = build(database, None)
    made: list[str] = []

    async def add(text: str) -> None:
        made.append((await state(service, text)).hypothesis_id)

    async with anyio.create_task_group() as group:
        for text in ("It rains.", "IT RAINS.", "it  rains."):
            group.start_soon(add, text)
    assert len(set(made)) == 1


async def test_a_run_is_held_by_one_process_until_its_lease_runs_out(database: Database) -> None:
    moment = [1000.0]
    one, other = (RecordStore(database, clock=lambda: moment[0]) for _ in range(2))
    service = build(database, says(reply()))
    hypothesis, piece = await state(service), await show(service, "a")
    request = AdjudicationRequest(hypothesis_ids=(hypothesis.hypothesis_id,), evidence_ids=(piece.evidence_id,))
    run = await service.adjudicate(request)
    assert (await one.claim()) is not None
    assert await other.claim() is None
    moment[0] += LEASE_SECONDS - 1
    await one.renew({run.run_id})
    moment[0] += 2
    assert await other.claim() is None
    moment[0] += LEASE_SECONDS
    taken = await other.claim()
    assert taken is not None
    assert taken.run_id == run.run_id
    await one.release()
    assert await one.claim() is None, "what another one holds is not let go of"


async def test_a_foreign_cursor_is_refused(database: Database) -> None:
    service = build(database, None)
    hypothesis = await state(service)
    for ask in (service.hypotheses, service.evidence_page, service.runs):
        with pytest.raises(BadRequest):
            await ask(cursor="nonsense")
    with pytest.raises(BadRequest):
        await service.transitions(hypothesis.hypothesis_id, cursor="bm8")


async def test_every_record_enters_the_log(database: Database, tmp_path: Path) -> None:
    log = await LogService.open(database, tmp_path / "key")
    service = build(database, says(reply()), ledger=log)
    await adjudicate(service, [await state(service)], [await show(service, "a"), await show(service, "b")])
    assert (await log.head()).tree_size == 2


# --- snapshots --------------------------------------------------------------------------------------------------------


async def full(database: Database, **fields: Any) -> AdjudicationService:
    """A service with something of every kind: links, removals, reuse, failures, a run not begun, a synthesis."""
    answers: dict[str, str | Exception] = {"for": reply(), "against": reply("contradicts"), "prose": "hm"}
    failures = GivenFailures({RUN: [Failure("e1", "high", "low", None, {"kind": "a"})]})
    wrote = json.dumps(
        {
            "themes": [{"title": "t", "summary": "s", "evidence_ids": ["E1"]}],
            "hypotheses": [{"statement": "A draft.", "evidence_ids": ["E1"]}],
        }
    )
    service = build(
        database, ScriptedAnswerer(by_evidence(answers)), synthesis=says(wrote), failures=failures, **fields
    )
    pieces = [await show(service, text) for text in ("for 1", "for 2", "against", "prose", "beside")]
    named = [{"evidence_id": pieces[0].evidence_id}]
    first = await state(service, by={"kind": "person", "name": "ann"}, evidence=named)
    second = await state(service, "It snows.", importance=80)
    await adjudicate(service, [first, second], pieces)
    await adjudicate(service, [first], pieces[:2])
    other = build(database, says(reply("neutral")), thresholds=Thresholds(min_relevance=61), **fields)
    await adjudicate(other, [first], pieces[:1])
    dead = build(database, says(DependencyUnavailable("x", "timeout")), thresholds=Thresholds(min_relevance=62))
    await adjudicate(dead, [first], pieces[:1])
    await service.syntheses.synthesise(SynthesisRequest(run_id=RUN))
    ids = {"hypothesis_ids": (second.hypothesis_id,), "evidence_ids": (pieces[0].evidence_id,)}
    await service.adjudicate(AdjudicationRequest(**ids))
    return service


async def elsewhere(tmp_path: Path, name: str = "other") -> Database:
    return await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/{name}.db"))


async def test_a_snapshot_comes_out_of_another_store_byte_for_byte(database: Database, tmp_path: Path) -> None:
    """And that store stands as the first one does."""
    service = await full(database)
    data = b"".join(await service.snapshots.export())
    kinds = {json.loads(line)["kind"] for line in data.splitlines()}
    assert kinds == {*KINDS, "end"}
    there = await elsewhere(tmp_path)
    copy = build(there, None)
    await copy.snapshots.take_over(data)
    assert b"".join(await copy.snapshots.export()) == data
    await copy.snapshots.take_over(data)  # once more changes nothing
    for view in (await service.hypotheses()).items:
        assert await copy.hypothesis(view.hypothesis_id) == await service.hypothesis(view.hypothesis_id)
    unfinished = (await copy.runs()).items[0]
    assert unfinished.status == "stopped", "nobody pays for another service's runs"
    await there.close()


async def test_a_copy_goes_on_where_the_first_one_stopped(database: Database, tmp_path: Path) -> None:
    service = await full(database)
    data = b"".join(await service.snapshots.export())
    there = await elsewhere(tmp_path)
    model = ScriptedAnswerer(by_evidence({"for": reply()}))
    copy = build(there, model)
    await copy.snapshots.take_over(data)
    first = (await copy.hypotheses()).items[-1]
    pieces = (await copy.evidence_page()).items
    await adjudicate(copy, [first], [piece for piece in pieces if "for" in piece.text])
    assert not model.asked, "what was finished is reused"
    again = b"".join(await copy.snapshots.export())
    last = await elsewhere(tmp_path, "last")
    await build(last, None).snapshots.take_over(again)
    await last.close()
    await there.close()


async def test_a_snapshot_is_not_mixed_with_other_facts(database: Database, tmp_path: Path) -> None:
    data = b"".join(await (await full(database)).snapshots.export())
    there = await elsewhere(tmp_path)
    copy = build(there, None)
    await state(copy, "Something else.")
    with pytest.raises(Conflict):
        await copy.snapshots.take_over(data)
    await there.close()


Lines = list[dict[str, Any]]


def resealed(lines: Lines) -> bytes:
    """Lines as the service would write them, hash and counts made right again: what a forger would do."""
    body = [canonical_bytes(line) + b"\n" for line in lines if line["kind"] != "end"]
    counts = {kind: sum(line["kind"] == kind for line in lines) for kind in KINDS}
    end = {"format": "arbiter-l8 adjudication 1", "counts": counts, "sha256": sha256_of(b"".join(body)), "hmac": None}
    return b"".join([*body, canonical_bytes({"kind": "end", "value": end}) + b"\n"])


def of(lines: Lines, kind: str, **fields: Any) -> dict[str, Any]:
    """The first value of a kind that has these fields."""
    return next(
        line["value"]
        for line in lines
        if line["kind"] == kind and all(line["value"][name] == value for name, value in fields.items())
    )


def changed(kind: str, *path: Any, to: Any, **fields: Any) -> Callable[[Lines], None]:
    def forge(lines: Lines) -> None:
        value = of(lines, kind, **fields)
        for step in path[:-1]:
            value = value[step]
        value[path[-1]] = to

    return forge


def without(kind: str, **fields: Any) -> Callable[[Lines], None]:
    def forge(lines: Lines) -> None:
        lines[:] = [line for line in lines if line["value"] is not of(lines, kind, **fields)]

    return forge


def twice(kind: str) -> Callable[[Lines], None]:
    def forge(lines: Lines) -> None:
        at = next(n for n, line in enumerate(lines) if line["kind"] == kind)
        lines.insert(at, lines[at])

    return forge


NOBODY = "01933d2c-0000-7000-8000-00000000000b"
FORGERIES: dict[str, Callable[[Lines], None]] = {
    "a score": changed("transition", "after", "score", to=0.99),
    "a qualification": changed("transition", "after", "qualification", to="supported"),
    "a cause": changed("transition", "caused_by", to=[NOBODY]),
    "a transition less": without("transition"),
    "a relation": changed("adjudication", "relation", to="contradicts", relation="supports"),
    "an answer": changed("adjudication", "interpretation", "relation", to="contradicts", relation="supports"),
    "a weight": changed("adjudication", "interpretation", "relevance", to=100.0, effect="link"),
    "a link from prose": changed("adjudication", "effect", to="link", relation="uncertain"),
    "a threshold": changed("adjudication", "thresholds", "min_relevance", to=99.0, effect="link"),
    "a record less": without("adjudication", turn=2),
    "a turn": changed("adjudication", "turn", to=9, turn=2),
    "a record twice": twice("adjudication"),
    "a text": changed("hypothesis", "text", to="Something else."),
    "an importance": changed("hypothesis", "importance", to=99.0),
    "the evidence": changed("evidence", "text", to="Something else."),
    "a source": changed("evidence", "source", to="elsewhere"),
    "a hypothesis less": without("hypothesis"),
    "an assertion about nothing": changed("assertion", "evidence_id", to=NOBODY),
    "a key": changed("adjudication", "key", to="sha256:" + "0" * 64),
    "what was told": changed("adjudication", "context", to={"objective": "x"}),
    "a run of other pairs": changed("run", "run", "request", "evidence_ids", to=[NOBODY]),
    "a run that ended early": changed("run", "finished_at", to="2026-01-01T00:00:00.000000Z", finished_at=None),
    "an original": changed("adjudication", "reused_from", to=NOBODY, turn=6),
    "a citation": changed("synthesis", "themes", 0, "evidence_ids", to=["E9"]),
    "a proposal": changed("synthesis", "proposals", 0, "hypothesis_id", to=NOBODY),
    "an unknown field": changed("hypothesis", "score", to=1.0),
    "a secret": changed("assertion", "note", to=f"the key is {SECRET}"),
    "the order": lambda lines: lines.insert(0, lines.pop()),
}


@pytest.fixture(scope="module")
async def exported(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    database = await elsewhere(tmp_path_factory.mktemp("first"))
    data = b"".join(await (await full(database)).snapshots.export())
    await database.close()
    return data


@pytest.fixture
def lines(exported: bytes) -> Lines:
    return [json.loads(line) for line in exported.splitlines() if b'{"kind":"end"' not in line]


async def refuse(tmp_path: Path, data: bytes) -> None:
    """It is refused, and nothing of it is stored."""
    database = await elsewhere(tmp_path)
    copy = build(database, None)
    empty = b"".join(await copy.snapshots.export())
    with pytest.raises(SnapshotRefused):
        await copy.snapshots.take_over(data)
    assert b"".join(await copy.snapshots.export()) == empty
    await database.close()


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES.keys())
async def test_a_forged_snapshot_is_refused_whole(lines: Lines, tmp_path: Path, forge: Callable[[Lines], None]) -> None:
    """Also where its hash was made right again: scores must follow from records, and all else from content."""
    forge(lines)
    await refuse(tmp_path, resealed(lines))


async def test_what_is_not_forged_passes_the_same_way(lines: Lines, tmp_path: Path) -> None:
    database = await elsewhere(tmp_path)
    counts = await build(database, None).snapshots.take_over(resealed(lines))
    assert sum(counts.values()) == len(lines)
    await database.close()


async def test_a_corrupt_snapshot_is_refused_whole(lines: Lines, tmp_path: Path) -> None:
    data = resealed(lines)
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    rows = data.splitlines(keepends=True)
    spaced = rows[0].replace(b'":', b'": ', 1)
    for bad in (
        b"",
        b"\n",
        data[:-1],
        data[:middle],
        b"".join(rows[:-1]),
        b"".join(rows[1:]),
        data + rows[-1],
        data + b"\n",
        flipped,
        b"\xff" + data,
        b"".join([spaced, *rows[1:]]),
        b"null\n",
        b'{"kind":"end"}\n',
        b"[" * 10_000 + b"\n",
    ):
        await refuse(tmp_path, bad)


async def test_a_seal_is_demanded_and_checked_where_there_is_a_key(tmp_path: Path) -> None:
    """With a key, nobody who has not got it makes a snapshot that is taken over, however consistent."""
    first = await elsewhere(tmp_path, "first")
    service = await full(first, key=b"one key")
    data = b"".join(await service.snapshots.export())
    unsealed = b"".join(await build(first, None).snapshots.export())
    other = await elsewhere(tmp_path)
    for key, given in ((b"one key", unsealed), (None, data), (b"another", data)):
        with pytest.raises(SnapshotRefused):
            await build(other, None, key=key).snapshots.take_over(given)
    copy = build(other, None, key=b"one key")
    await copy.snapshots.take_over(data)
    assert b"".join(await copy.snapshots.export()) == data
    for each in (first, other):
        await each.close()
