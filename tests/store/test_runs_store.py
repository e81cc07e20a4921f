"""Datasets, runs, records and keys, the same on SQLite and PostgreSQL."""

import asyncio
import contextlib
import dataclasses
import io
import json

import anyio
import pytest
from sqlalchemy import func, select

from app.errors import BadRequest, Conflict
from app.runs.chunks import ChunkStore, Claim
from app.runs.dataset import DuplicateExampleIds, Source, read_examples, with_ids
from app.runs.dataset_store import DatasetStore, StoredDataset
from app.runs.keys import KeyReused, KeyStore
from app.runs.model import Record, RecordFilters, RunFailure, RunFilters, RunStatus
from app.runs.parsing import DatasetError
from app.runs.record_store import RecordStore, row_of
from app.runs.store import RunStore, StoredRun
from app.runs.submission import new_run
from app.runs.tables import dataset_examples, datasets
from app.runs.tally import Tally
from app.settings import RunSettings
from app.store.database import Database
from layers.canonical import canonical_bytes, sha256_of
from layers.model import EvalExample
from tests.runs import PROFILE, dataset, record, request

pytestmark = pytest.mark.anyio


async def rows_of(database: Database, table) -> int:
    return await database.read(lambda conn: conn.scalar(select(func.count()).select_from(table)) or 0)


async def a_run(database: Database, size: int = 3, **fields: object) -> StoredRun:
    stored = await DatasetStore(database).add(with_ids(dataset(size)))
    runs = RunStore(database)
    run = dataclasses.replace(new_run(request(), stored, PROFILE, RunSettings(), "test"), **fields)
    await runs.create(run)
    found = await runs.get(run.run_id)
    assert found is not None
    return found


# --- datasets ---------------------------------------------------------------------------------------------------------


async def test_a_dataset_is_stored_once_by_its_content(database: Database) -> None:
    """However it was written, the same examples are the same dataset."""
    store = DatasetStore(database)
    first = await store.add(with_ids(dataset(1200)))
    lines = "".join(
        json.dumps({"expected_label": "high", "input": {"n": n}, "id": f"e{n}", "metadata": {}}) + "\n"
        for n in range(1200)
    )
    second = await store.add(read_examples(Source(io.BytesIO(lines.encode()), "ndjson")))
    assert second == first
    assert first.n_examples == 1200
    assert await store.find(first.id) == first
    assert (await rows_of(database, datasets), await rows_of(database, dataset_examples)) == (1, 1200)


async def test_the_hash_is_over_the_canonical_examples(database: Database) -> None:
    """Anybody can compute it from the stored bytes alone."""
    stored = await DatasetStore(database).add(with_ids(dataset(3)))
    rows = await RecordStore(database).examples(stored.no, 0, 10)
    assert stored.id == sha256_of(b"".join(data + b"\n" for _, data in rows))
    assert [position for position, _ in rows] == [0, 1, 2]


async def test_other_content_is_another_dataset(database: Database) -> None:
    store = DatasetStore(database)
    ids = {(await store.add(with_ids(given))).id for given in (dataset(2), dataset(3), dataset(2, "low"))}
    assert len(ids) == 3


async def test_duplicate_ids_are_named_and_nothing_stays(database: Database) -> None:
    examples = (EvalExample(id=f"e{n % 700}", expected_label="x") for n in range(1400))
    with pytest.raises(DuplicateExampleIds, match=r"'e0', 'e1'.*and 680 more"):
        await DatasetStore(database).add(examples)
    assert (await rows_of(database, datasets), await rows_of(database, dataset_examples)) == (0, 0)


async def test_an_upload_that_breaks_leaves_nothing(database: Database) -> None:
    lines = b'{"expected_label": "x"}\n' * 600 + b"{"
    with pytest.raises(DatasetError, match="line 601"):
        await DatasetStore(database).add(read_examples(Source(io.BytesIO(lines), "ndjson")))
    assert (await rows_of(database, datasets), await rows_of(database, dataset_examples)) == (0, 0)


async def test_uploads_at_the_same_time_make_one_dataset(database: Database) -> None:
    store = DatasetStore(database)
    stored = await asyncio.gather(*(store.add(with_ids(dataset(50))) for _ in range(5)))
    assert len({each.no for each in stored}) == 1
    assert (await rows_of(database, datasets), await rows_of(database, dataset_examples)) == (1, 50)


# --- runs -------------------------------------------------------------------------------------------------------------


async def test_a_run_comes_back_as_it_was_stored(database: Database) -> None:
    run = await a_run(database, name="nightly")
    assert (run.name, run.system, run.status, run.n_total) == ("nightly", "tested", RunStatus.QUEUED, 3)
    assert run.config.profile == PROFILE
    assert await RunStore(database).get("no-such-run") is None


async def test_a_status_changes_only_from_one_that_allows_it(database: Database) -> None:
    """Of two racing changes one wins, and the times of start and end are set on the way."""
    runs, run = RunStore(database), await a_run(database)
    assert await runs.move(run.run_id, RunStatus.RUNNING, only_from={RunStatus.QUEUED})
    assert not await runs.move(run.run_id, RunStatus.PAUSED, only_from={RunStatus.QUEUED})
    failure = RunFailure(kind="unreachable", message="nobody there")
    moved = await asyncio.gather(
        runs.move(run.run_id, RunStatus.FAILED, only_from={RunStatus.RUNNING}, failure=failure),
        runs.move(run.run_id, RunStatus.CANCELLED, only_from={RunStatus.RUNNING}),
    )
    assert sorted(moved) == [False, True]
    after = await runs.get(run.run_id)
    assert after is not None
    assert after.started_at is not None
    assert after.finished_at is not None
    assert after.started_at <= after.finished_at


async def test_runs_are_listed_newest_first_in_pages(database: Database) -> None:
    runs = RunStore(database)
    made = [(await a_run(database)).run_id for _ in range(3)]
    other = await a_run(database, system="other")
    first = await runs.list(RunFilters(system="tested"), 2, None)
    assert [run.run_id for run in first] == made[::-1]  # one more than asked for says that there is more
    with pytest.raises(BadRequest):
        await runs.list(RunFilters(), 2, "not-a-cursor")
    assert [run.run_id for run in await runs.list(RunFilters(system="other"), 2, None)] == [other.run_id]
    await runs.move(other.run_id, RunStatus.CANCELLED, only_from={RunStatus.QUEUED})
    assert [run.run_id for run in await runs.unfinished()] == made


# --- records ----------------------------------------------------------------------------------------------------------


async def claimed(database: Database, run: StoredRun) -> Claim:
    claim = await ChunkStore(database).claim(run, "me", size=1000, least=1)
    assert claim is not None
    return claim


async def add(database: Database, run: StoredRun, position: int, each: Record) -> None:
    await RecordStore(database).add([row_of(run.no, position, each, PROFILE)], await claimed(database, run))


async def test_records_are_insert_only(database: Database) -> None:
    """Whoever comes second with the same example, repeat and attempt changes nothing."""
    run = await a_run(database)
    store, claim = RecordStore(database), await claimed(database, run)
    await store.add([row_of(run.no, 0, record("high", "high", example_id="e0"), PROFILE)], claim)
    await store.add([row_of(run.no, n, record("high", "low", example_id=f"e{n}"), PROFILE) for n in range(3)], claim)
    pages = await store.page(run, RecordFilters(), 10, None)
    assert [Record.model_validate_json(data).scored_label for _, data in pages] == ["high", "low", "low"]


async def test_a_record_is_kept_as_its_canonical_bytes(database: Database) -> None:
    run, each = await a_run(database), record("high", None, error="timeout", example_id="\u20ac\0")
    await add(database, run, 1, each)
    ((key, data),) = await RecordStore(database).page(run, RecordFilters(), 10, None)
    assert key == (1, 0, 1)
    assert data == canonical_bytes(each.model_dump())


async def test_the_highest_attempt_counts(database: Database) -> None:
    """Retried failures replace themselves, in counts and pages alike; `current=False` shows all."""
    run = await a_run(database, attempts=2)
    await add(database, run, 0, record("high", "high"))
    await add(database, run, 1, record("high", None))
    await add(database, run, 1, record("high", "low", attempt=2))
    await add(database, run, 2, record("high", None))
    await add(database, run, 2, record("high", None, error="refused", attempt=2))
    store = RecordStore(database)
    assert await store.count(run) == (2, 1)
    assert await store.tally(run) == Tally(3, {("high", "high"): 1, ("high", "low"): 1}, {("high", "refused"): 1})
    assert (await store.standing(run)).failures == {"refused": 1}
    assert [key for key, _ in await store.page(run, RecordFilters(), 10, None)] == [(0, 0, 1), (1, 0, 2), (2, 0, 2)]
    assert len(await store.page(run, RecordFilters(current=False), 10, None)) == 5


async def test_what_is_done_is_not_asked_again(database: Database) -> None:
    """Scored in any attempt, or failed in this one."""
    run = await a_run(database, attempts=2)
    await add(database, run, 0, record("high", "high"))
    await add(database, run, 1, record("high", None))
    await add(database, run, 2, record("high", None, attempt=2))
    assert await RecordStore(database).done(run, 0, 3) == {(0, 0), (2, 0)}
    assert await RecordStore(database).done(run, 1, 2) == set()


async def test_records_are_filtered_and_paged_in_the_datasets_order(database: Database) -> None:
    run, store = await a_run(database, 6), RecordStore(database)
    labels = ["high", "low", None, "high", "low", None]
    for position in reversed(range(6)):
        await add(database, run, position, record("high", labels[position], example_id=str(position)))

    async def positions(**fields: object) -> list[int]:
        return [key[0] for key, _ in await store.page(run, RecordFilters(**fields), 10, None)]

    assert await positions() == [0, 1, 2, 3, 4, 5]
    assert await positions(status="failed") == [2, 5]
    assert await positions(correct=True) == [0, 3]
    assert await positions(correct=False) == [1, 4]
    assert await positions(scored_label="low") == [1, 4]
    assert await positions(error_kind="timeout") == [2, 5]
    assert await positions(expected_label="low") == []
    page = await store.page(run, RecordFilters(), 2, (1, 0, 1))
    assert [key[0] for key, _ in page] == [2, 3]
    assert [len(batch) async for batch in store.all(run, RecordFilters())] == [6]


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_a_key_is_claimed_by_one(database: Database) -> None:
    """In flight it is a conflict, for another body a refusal, and afterwards the run that it made."""
    keys = KeyStore(database)
    assert await keys.claim("k", "sha256:a", "me") is None
    with pytest.raises(Conflict):
        await keys.claim("k", "sha256:a", "me")
    with pytest.raises(KeyReused):
        await keys.claim("k", "sha256:b", "me")
    stored = StoredDataset(1, "sha256:" + "0" * 64, 1)
    run = new_run(request(), stored, PROFILE, RunSettings(), "test")
    await RunStore(database).create(run, "k")
    assert await keys.claim("k", "sha256:a", "me") == run.run_id
    with pytest.raises(KeyReused):
        await keys.claim("k", "sha256:b", "me")
    await keys.release("k")  # settled: nothing to give back
    assert await keys.claim("k", "sha256:a", "me") == run.run_id


async def test_a_released_key_can_be_used_again(database: Database) -> None:
    keys = KeyStore(database)
    await keys.claim("k", "sha256:a", "me")
    await keys.release("k")
    assert await keys.claim("k", "sha256:b", "me") is None


async def test_keys_of_a_dead_process_fall_free(database: Database) -> None:
    """Those of a living one, and those that made a run, stay."""
    keys = KeyStore(database)
    await keys.claim("dead", "sha256:a", "seat-1")
    await keys.claim("living", "sha256:a", "seat-2")
    await keys.claim("nobody", "sha256:a", None)
    assert set(await keys.unsettled()) == {"seat-1", "seat-2", None}
    await keys.drop_unsettled("seat-1")
    await keys.drop_unsettled(None)
    assert await keys.claim("dead", "sha256:b", "seat-2") is None
    assert await keys.claim("nobody", "sha256:b", "seat-2") is None
    with pytest.raises(Conflict):
        await keys.claim("living", "sha256:a", "seat-2")


async def test_of_many_claims_one_wins(database: Database) -> None:
    keys, won = KeyStore(database), []

    async def claim() -> None:
        with contextlib.suppress(Conflict):
            won.append(await keys.claim("k", "sha256:a", "me"))

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(claim)
    assert won == [None]
