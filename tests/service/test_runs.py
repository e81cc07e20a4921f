"""Runs as their callers see them: submit, watch, steer, read."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from app.errors import BadRequest, Conflict, NotFound, Unprocessable
from app.runs.dataset import DuplicateExampleIds, EmptyDataset, Source
from app.runs.keys import KeyReused
from app.runs.model import RecordFilters, RunFilters, RunOptions, RunStatus
from app.settings import RunSettings, StoreSettings
from app.store.database import Database
from layers.errors import CircuitOpen, DependencyRejected, DependencyUnavailable
from layers.model import EvalDataset, EvalExample, EvalPrediction
from layers.ports import System
from layers.profile import BinaryCollapse, SystemProfile
from layers.withdrawal import unless_withdrawn
from tests.runs import PROFILE, Scripted, answer_high, dataset, ended, prediction, reached, request, run_service

pytestmark = pytest.mark.anyio


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """The embedded one: that the store behaves the same on both is tested with the store."""
    opened = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/store.db"))
    yield opened
    await opened.close()


class Held:
    """A system whose first answers come only when `go` is set."""

    def __init__(self, free: int = 0) -> None:
        self.go = anyio.Event()
        self.started = anyio.Event()
        self._free = free

    async def __call__(self, example: EvalExample) -> EvalPrediction:
        if int(example.input["n"]) >= self._free:
            self.started.set()
            await self.go.wait()
        return await answer_high(example)


async def labels(example: EvalExample) -> EvalPrediction:
    """Right for even numbers, wrong for odd ones, failing for every tenth."""
    n = example.input["n"]
    if n % 10 == 9:
        raise DependencyRejected("tested", "rejected", "not that one", detail={"status": 400})
    return prediction("high" if n % 2 == 0 else "low", id=example.id)


# --- a run that succeeds ----------------------------------------------------------------------------------------------


async def test_a_run_asks_about_every_example_once_and_reports(database) -> None:
    """Over several chunks; what failed is counted with its cause and the run goes on."""
    system = Scripted(labels)
    async with run_service(database, system, RunSettings(chunk_size=7)) as service:
        accepted = await service.submit(request(name="first", labels={"prompt_version": "v3"}), dataset(40))
        assert (accepted.status, accepted.progress.n_total) == (RunStatus.QUEUED, 40)
        run = await ended(service, accepted.run_id)
        report = await service.report(run.run_id)
    assert (run.status, run.failure, run.attempts) == (RunStatus.SUCCEEDED, None, 1)
    assert (run.name, run.labels, run.code_version) == ("first", {"prompt_version": "v3"}, "test")
    assert (run.progress.n_done, run.progress.n_scored, run.progress.n_failed) == (40, 36, 4)
    assert run.created_at <= (run.started_at or "") <= (run.finished_at or "")
    assert set(system.asked.values()) == {1}
    assert (report.total, report.n_scored, report.n_failed) == (40, 36, 4)
    assert report.accuracy == pytest.approx(20 / 36)
    assert report.failures_by_kind == {"rejected": 4}
    assert (report.accuracy_bounds.worst, report.accuracy_bounds.best) == (0.5, 0.6)


async def test_records_can_be_read_in_pages_and_exported(database) -> None:
    async with run_service(database, Scripted(labels), RunSettings(chunk_size=7)) as service:
        run = await ended(service, (await service.submit(request(), dataset(12))).run_id)
        first = await service.records(run.run_id, RecordFilters(), limit=9)
        second = await service.records(run.run_id, RecordFilters(), limit=9, cursor=first.next_cursor)
        failed = await service.records(run.run_id, RecordFilters(status="failed"))
        ndjson = b"".join([piece async for piece in service.export(run.run_id, RecordFilters(), "ndjson")])
        table = b"".join([piece async for piece in service.export(run.run_id, RecordFilters(), "csv")])
        with pytest.raises(BadRequest):
            await service.records(run.run_id, RecordFilters(), cursor="bm9wZQ")
        with_predictions = await service.report(run.run_id, predictions=True)
    assert [record.example_id for record in first.items + second.items] == [f"e{n}" for n in range(12)]
    assert second.next_cursor is None
    assert first.items[1].correct is False
    assert first.items[1].prediction is not None
    (failure,) = failed.items
    assert failure.error is not None
    assert (failure.error.kind, failure.error.message) == ("rejected", "not that one")
    assert failure.error.detail == {"dependency": "tested", "status": 400}
    assert [json.loads(line)["example_id"] for line in ndjson.splitlines()] == [f"e{n}" for n in range(12)]
    assert len(list(csv.reader(io.StringIO(table.decode())))) == 13
    assert len(with_predictions.predictions or ()) == 11


async def test_options_are_obeyed(database) -> None:
    """`limit` takes the first so many, `repeats` asks each so often, `binary` adds the collapsed reading."""
    profile = SystemProfile(
        name="tested", binary=BinaryCollapse(keep=frozenset({"low"}), negative="low", positive="high")
    )

    async def critical(_: EvalExample) -> EvalPrediction:
        return prediction("critical")

    system = Scripted(critical)
    options = RunOptions(limit=3, repeats=2, binary=True, concurrency=1)
    async with run_service(database, system.as_system(profile), RunSettings(chunk_size=4)) as service:
        run = await ended(service, (await service.submit(request(options=options), dataset(10))).run_id)
        report = await service.report(run.run_id)
        keys = [(r.example_id, r.repeat) for r in (await service.records(run.run_id, RecordFilters())).items]
    assert system.asked == {"e0": 2, "e1": 2, "e2": 2}
    assert keys == [("e0", 0), ("e0", 1), ("e1", 0), ("e1", 1), ("e2", 0), ("e2", 1)]
    assert report.accuracy == 0.0
    assert report.binary is not None
    assert report.binary.accuracy == 1.0


async def test_an_uploaded_file_is_a_dataset_and_can_be_run_again_by_its_id(database) -> None:
    upload = Source(io.BytesIO(b"expected_label,input.n\nhigh,1\nlow,2\n"), "csv")
    async with run_service(database, Scripted()) as service:
        first = await ended(service, (await service.submit(request(), upload)).run_id)
        second = await ended(service, (await service.submit(request(dataset_id=first.dataset_id))).run_id)
        assert second.dataset_id == first.dataset_id
        assert (await service.report(first.run_id)) == (await service.report(second.run_id))
        with pytest.raises(NotFound):
            await service.submit(request(dataset_id="sha256:" + "0" * 64))


async def test_runs_are_listed_with_their_progress(database) -> None:
    async with run_service(database, Scripted()) as service:
        ids = [(await service.submit(request(name=f"run {n}"), dataset(2))).run_id for n in range(3)]
        for run_id in ids:
            await ended(service, run_id)
        page = await service.list(RunFilters(status=RunStatus.SUCCEEDED), limit=2)
        rest = await service.list(RunFilters(status=RunStatus.SUCCEEDED), limit=2, cursor=page.next_cursor)
    assert [run.run_id for run in page.items + rest.items] == ids[::-1]
    assert {run.progress.n_done for run in page.items} == {2}
    assert rest.next_cursor is None


async def test_progress_says_how_fast_and_how_long(database) -> None:
    held = Held(free=5)
    async with run_service(database, Scripted(held)) as service:
        run_id = (await service.submit(request(options=RunOptions(concurrency=1)), dataset(10))).run_id
        await held.started.wait()
        run = await service.get(run_id)
        held.go.set()
        done = await ended(service, run_id)
    assert (run.status, run.progress.n_done, run.progress.n_total) == (RunStatus.RUNNING, 5, 10)
    assert run.progress.rate_per_s
    assert run.progress.eta_s is not None
    assert done.progress.eta_s is None


# --- refusals ---------------------------------------------------------------------------------------------------------

TRICKY = SystemProfile(name="tested", providers=("gemini", "ollama"), fields=("amount",))


@pytest.mark.parametrize(
    ("fields", "profile", "pointer", "says"),
    [
        pytest.param({"system": "nobody"}, PROFILE, "/system", "no system 'nobody'; there are tested", id="system"),
        pytest.param({"options": {"driver": "gemini"}}, PROFILE, "/options/driver", "no drivers", id="no-drivers"),
        pytest.param({"options": {"driver": "gpt"}}, TRICKY, "/options/driver", "gemini, ollama", id="driver"),
        pytest.param({"options": {"binary": True}}, PROFILE, "/options/binary", "no binary", id="binary"),
        pytest.param({"options": {"repeats": 2}}, TRICKY, "/options/repeats", "driver", id="repeats-without-driver"),
        pytest.param(
            {"options": {"pipeline": "critic"}}, PROFILE, "/options/pipeline", "no pipeline 'critic'", id="pipeline"
        ),
        pytest.param({}, TRICKY, "/dataset", "not made for tested.*amount", id="foreign-dataset"),
    ],
)
async def test_what_makes_no_sense_is_refused_naming_the_field(database, fields, profile, pointer, says) -> None:
    async with run_service(database, Scripted().as_system(profile)) as service:
        with pytest.raises(Unprocessable, match=says) as caught:
            await service.submit(request(**fields), dataset(3))
        assert (await service.list(RunFilters())).items == ()
    assert caught.value.errors[0].pointer == pointer


async def test_a_system_that_is_not_configured_says_what_to_set(database) -> None:
    closed = System(PROFILE, why_closed="set SENTINEL_L7_MCP_URL")
    async with run_service(database, closed) as service:
        with pytest.raises(Unprocessable, match="set SENTINEL_L7_MCP_URL"):
            await service.submit(request(), dataset(1))


@pytest.mark.parametrize(
    ("given", "error"),
    [
        pytest.param(EvalDataset(examples=()), EmptyDataset, id="empty"),
        pytest.param(EvalDataset(examples=dataset(1).examples * 2), DuplicateExampleIds, id="duplicate-ids"),
        pytest.param(dataset(6), Unprocessable, id="too-many"),
        pytest.param(None, Unprocessable, id="none"),
    ],
)
async def test_useless_datasets_are_refused(database, given, error) -> None:
    async with run_service(database, Scripted(), RunSettings(max_examples=5)) as service:
        with pytest.raises(error):
            await service.submit(request(), given)


async def test_unknown_runs_are_not_found(database) -> None:
    async with run_service(database, Scripted()) as service:
        for call in (service.get, service.cancel, service.pause, service.resume, service.report):
            with pytest.raises(NotFound):
                await call("no-such-run")
        with pytest.raises(NotFound):
            await service.records("no-such-run", RecordFilters())


# --- idempotency ------------------------------------------------------------------------------------------------------


async def test_the_same_key_and_request_make_one_run(database) -> None:
    async with run_service(database, Scripted()) as service:
        first = await service.submit(request(), dataset(2), idempotency_key="k")
        again = await service.submit(request(), dataset(2), idempotency_key="k")
        assert again.run_id == first.run_id
        with pytest.raises(KeyReused):
            await service.submit(request(), dataset(3), idempotency_key="k")
        with pytest.raises(KeyReused):
            await service.submit(request(name="other"), dataset(2), idempotency_key="k")
        assert len((await service.list(RunFilters())).items) == 1


async def test_many_posts_at_once_make_one_run(database) -> None:
    """The others are told that it is in flight, or get the same run."""
    async with run_service(database, Scripted()) as service:
        posts = (service.submit(request(), dataset(2), idempotency_key="k") for _ in range(20))
        answers = await asyncio.gather(*posts, return_exceptions=True)
        runs = {answer.run_id for answer in answers if not isinstance(answer, BaseException)}
        assert len(runs) == 1
        assert all(isinstance(answer, Conflict) for answer in answers if isinstance(answer, BaseException))
        assert len((await service.list(RunFilters())).items) == 1


async def test_a_refused_request_gives_its_key_back(database) -> None:
    async with run_service(database, Scripted()) as service:
        with pytest.raises(Unprocessable):
            await service.submit(request(system="nobody"), dataset(2), idempotency_key="k")
        assert (await service.submit(request(), dataset(2), idempotency_key="k")).run_id


async def test_an_upload_is_the_same_request_by_its_bytes(database) -> None:
    def upload(label: str) -> Source:
        return Source(io.BytesIO(f"expected_label\n{label}\n".encode()), "csv")

    async with run_service(database, Scripted()) as service:
        first = await service.submit(request(), upload("high"), idempotency_key="k")
        assert (await service.submit(request(), upload("high"), idempotency_key="k")).run_id == first.run_id
        with pytest.raises(KeyReused):
            await service.submit(request(), upload("low"), idempotency_key="k")


# --- failing, waiting -------------------------------------------------------------------------------------------------


async def refused(_: EvalExample) -> EvalPrediction:
    raise DependencyUnavailable("tested", "refused", "it refused the connection")


@pytest.mark.parametrize(("size", "most"), [(200, 20 + 16 + 4), (3, 3)])
async def test_a_target_that_is_down_from_the_start_ends_the_run(database, size, most) -> None:
    """After twenty (or all of a small dataset), and those on their way meanwhile, with one clear sentence."""
    system = Scripted(refused)
    async with run_service(database, system) as service:
        run = await ended(service, (await service.submit(request(), dataset(size))).run_id)
    assert run.status is RunStatus.FAILED
    assert run.failure is not None
    assert run.failure.kind == "unreachable"
    assert run.failure.message.startswith("tested could not be reached: the first ")
    assert run.failure.message.endswith("it refused the connection")
    assert system.asked.total() <= most


async def test_a_circuit_that_the_run_itself_opened_ends_it_at_once(database) -> None:
    """With a breaker in between, twenty real failures may never come."""
    asked = []

    async def breaker(example: EvalExample) -> EvalPrediction:
        asked.append(example.id)
        if len(asked) > 5:
            raise CircuitOpen("tested", retry_after=3600)
        return await refused(example)

    async with run_service(database, Scripted(breaker)) as service:
        run = await ended(service, (await service.submit(request(), dataset(100))).run_id)
    assert (run.status, run.failure and run.failure.kind) == (RunStatus.FAILED, "unreachable")
    assert run.progress.n_failed == 5


async def test_too_large_a_share_of_failures_ends_the_run(database) -> None:
    async def mostly_wrong(example: EvalExample) -> EvalPrediction:
        if example.input["n"] % 4:
            raise DependencyRejected("tested", "rejected")
        return await answer_high(example)

    system = Scripted(mostly_wrong)
    async with run_service(database, system) as service:
        run = await ended(service, (await service.submit(request(), dataset(400))).run_id)
    assert (run.status, run.failure and run.failure.kind) == (RunStatus.FAILED, "too_many_failures")
    assert 100 <= system.asked.total() < 150


async def test_an_outage_in_the_middle_makes_the_run_wait(database) -> None:
    """An open circuit is never an example's result; the run goes on by itself."""
    down, seen = anyio.Event(), anyio.Event()

    async def system(example: EvalExample) -> EvalPrediction:
        if example.input["n"] >= 10 and not down.is_set():
            seen.set()
            raise CircuitOpen("tested", retry_after=0.0)
        return await answer_high(example)

    async with run_service(database, Scripted(system)) as service:
        run_id = (await service.submit(request(), dataset(40))).run_id
        await seen.wait()
        await reached(service, run_id, RunStatus.WAITING)
        down.set()
        run = await ended(service, run_id)
    assert (run.status, run.progress.n_scored, run.progress.n_failed) == (RunStatus.SUCCEEDED, 40, 0)


async def test_a_prediction_that_can_not_be_stored_is_a_failed_example(database) -> None:
    async def odd(example: EvalExample) -> EvalPrediction:
        n = example.input["n"]
        value = {0: float("nan"), 1: "\ud800", 2: {1, 2}, 3: "fine"}[n]
        return prediction("high", raw_output={"value": value})

    async with run_service(database, Scripted(odd), RunSettings(max_failed_share=1.0)) as service:
        run = await ended(service, (await service.submit(request(), dataset(4))).run_id)
        report = await service.report(run.run_id)
    assert report.failures_by_kind == {"malformed": 3}
    assert report.n_scored == 1


async def test_a_bug_in_a_system_is_an_examples_failure_and_shows_no_secret(database, caplog) -> None:
    async def buggy(example: EvalExample) -> EvalPrediction:
        if example.input["n"] == 0:
            raise KeyError("token=hunter2")
        return await answer_high(example)

    async with run_service(database, Scripted(buggy)) as service:
        run = await ended(service, (await service.submit(request(), dataset(3))).run_id)
        (record,) = (await service.records(run.run_id, RecordFilters(status="failed"))).items
    assert run.status is RunStatus.SUCCEEDED
    assert record.error is not None
    assert (record.error.kind, record.error.message) == ("internal", "KeyError")


# --- steering ---------------------------------------------------------------------------------------------------------


async def test_cancelling_keeps_what_was_recorded_and_asks_nobody_any_more(database) -> None:
    held = Held(free=5)
    system = Scripted(held)
    async with run_service(database, system) as service:
        run_id = (await service.submit(request(options=RunOptions(concurrency=2)), dataset(50))).run_id
        await held.started.wait()
        assert (await service.cancel(run_id)).status is RunStatus.CANCELLING
        asked = system.asked.total()
        held.go.set()
        run = await ended(service, run_id)
        assert (await service.cancel(run_id)).status is RunStatus.CANCELLED
        report = await service.report(run_id)
    assert run.status is RunStatus.CANCELLED
    assert system.asked.total() == asked  # those in flight were answered, nobody else was asked
    assert run.progress.n_done == asked
    assert (report.total, report.n_scored) == (50, asked)


async def test_a_waiting_run_is_cancelled_at_once(database) -> None:
    async def system(example: EvalExample) -> EvalPrediction:
        if example.input["n"] > 0:
            raise CircuitOpen("tested", retry_after=3600)
        return await answer_high(example)

    async with run_service(database, Scripted(system)) as service:
        run_id = (await service.submit(request(), dataset(5))).run_id
        await reached(service, run_id, RunStatus.WAITING)
        await service.cancel(run_id)
        assert (await ended(service, run_id)).progress.n_done == 1


async def test_a_paused_run_rests_until_it_is_resumed(database) -> None:
    """No example is asked twice, although a new stretch of work begins while old answers are on their way."""
    held = Held(free=5)
    system = Scripted(held)
    async with run_service(database, system) as service:
        run_id = (await service.submit(request(options=RunOptions(concurrency=3)), dataset(30))).run_id
        await held.started.wait()
        assert (await service.pause(run_id)).status is RunStatus.PAUSED
        assert (await service.pause(run_id)).status is RunStatus.PAUSED
        asked = system.asked.total()
        assert (await service.resume(run_id)).status is RunStatus.QUEUED
        assert system.asked.total() == asked
        held.go.set()
        run = await ended(service, run_id)
        with pytest.raises(Conflict, match="succeeded can't be cancelled"):
            await service.cancel(run_id)
        with pytest.raises(Conflict, match="succeeded can't go on"):
            await service.resume(run_id)
    assert (run.status, run.progress.n_scored) == (RunStatus.SUCCEEDED, 30)
    assert set(system.asked.values()) == {1}


@pytest.mark.parametrize(("steer", "status"), [("pause", RunStatus.PAUSED), ("cancel", RunStatus.CANCELLED)])
async def test_a_run_that_stops_takes_back_what_waits_for_its_turn(database, steer: str, status: RunStatus) -> None:
    """Nothing more is sent, however long the budget would have made it wait, and nothing of it is recorded."""
    turn, waiting = anyio.Event(), anyio.Event()

    async def in_turn(example: EvalExample) -> EvalPrediction:
        waiting.set()
        await unless_withdrawn("tested", turn.wait())
        return await answer_high(example)

    system = Scripted(in_turn)
    async with run_service(database, system) as service:
        run_id = (await service.submit(request(options=RunOptions(concurrency=3)), dataset(9))).run_id
        await waiting.wait()
        await getattr(service, steer)(run_id)
        run = await reached(service, run_id, status)
        assert (run.progress.n_scored, run.progress.n_failed) == (0, 0)
        turn.set()
        if steer == "pause":
            await service.resume(run_id)
            assert (await ended(service, run_id)).progress.n_scored == 9


async def test_a_paused_run_can_be_cancelled(database) -> None:
    held = Held()
    async with run_service(database, Scripted(held)) as service:
        run_id = (await service.submit(request(), dataset(3))).run_id
        await held.started.wait()
        await service.pause(run_id)
        assert (await service.cancel(run_id)).status is RunStatus.CANCELLED
        held.go.set()
