"""Work that was accepted for later: done once, by whoever lives, and never lost."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from contextlib import AbstractContextManager, nullcontext

import anyio
import anyio.lowlevel
import pytest
from sqlalchemy import Connection

from app.errors import NotFound, Unprocessable
from app.evaluation.item import Item
from app.evaluation.model import Accepted, OnlineScoringResult
from app.evaluation.observe import UNWATCHED, Watch
from app.evaluation.service import EvaluationFilter, EvaluationService, Options
from app.evaluation.work import LEASE_SECONDS, MAX_ATTEMPTS, Work, WorkStore, work_row
from app.evaluation.worker import Worker
from app.settings import StoreSettings
from app.store.database import Database
from app.store.ids import uuid7
from layers.model import LayerName
from layers.ports import LayerInput
from tests.evaluations import DOUBT, FLAGGED, Stage, build_service, gives, judged, raises, request
from tests.postgres import PostgresServer

pytestmark = pytest.mark.anyio

H, G, D, C, J = LayerName


async def all_of(service: EvaluationService) -> list[OnlineScoringResult]:
    page = await service.list(EvaluationFilter(), 500)
    return [OnlineScoringResult.model_validate_json(item) for item in page.items]


async def test_accepted_work_answers_under_the_id_it_was_given(database: Database) -> None:
    """First `accepted`, then the evaluation itself."""
    service = build_service(database, Stage())
    evaluation_id = await service.accept(request())
    waiting = await service.get(evaluation_id)
    assert isinstance(waiting, Accepted)
    assert (waiting.evaluation_id, waiting.status) == (evaluation_id, "accepted")
    await service.drain()
    done = await service.get(evaluation_id)
    assert isinstance(done, OnlineScoringResult)
    assert (done.evaluation_id, done.disposition) == (evaluation_id, "pass")


async def test_what_makes_no_sense_is_not_accepted(database: Database) -> None:
    """The caller hears of it at once."""
    with pytest.raises(Unprocessable):
        await build_service(database, Stage()).accept(request(system="unknown"))


async def test_a_content_that_has_its_answer_makes_no_work(database: Database) -> None:
    """Its id is returned; a degraded one is worked on again, `fresh` always."""
    stage = Stage()
    service = build_service(database, stage)
    first = await service.evaluate(request())
    assert await service.accept(request()) == first.evaluation_id
    assert await service.accept(request(), fresh=True) != first.evaluation_id
    await service.drain()
    assert len(await all_of(service)) == 2


async def test_equal_work_accepted_twice_is_done_once(database: Database) -> None:
    """Both ids show the same evaluation."""
    stage = Stage()
    service = build_service(database, stage)
    ids = [await service.accept(request(**FLAGGED)) for _ in range(3)]
    await service.drain()
    shown = {result.evaluation_id for each in ids if isinstance(result := await service.get(each), OnlineScoringResult)}
    assert len(shown) == 1
    assert shown <= set(ids)
    assert stage.times(J) == 1


async def test_accepted_work_is_done_by_a_later_process(database: Database) -> None:
    """What one process accepted and never began, the next one finds."""
    evaluation_id = await build_service(database, Stage()).accept(request())
    later = build_service(database, Stage())
    await later.drain()
    assert isinstance(await later.get(evaluation_id), OnlineScoringResult)


class Asked:
    """An observer to whom callers make themselves known, and who notes for whom each piece of work is done."""

    def __init__(self) -> None:
        self.now: str | None = None
        self.jobs: dict[str, str | None] = {}

    def begin(self, item: Item) -> Watch:
        return UNWATCHED.begin(item)

    def caller(self) -> str | None:
        return self.now

    def job(self, work_id: str, caller: str | None = None) -> AbstractContextManager[object]:
        self.jobs[work_id] = caller
        return nullcontext()


async def test_accepted_work_knows_who_asked_for_it(database: Database) -> None:
    """One by one, in a batch and in the audit sample; whichever process does it."""
    accepting, working = Asked(), Asked()
    service = build_service(database, Stage(), audit_rate=1.0, options=Options(observer=accepting))
    accepting.now = f"00-{'1' * 32}-{'2' * 16}-01"
    one = await service.accept(request(1))
    accepting.now = f"00-{'3' * 32}-{'4' * 16}-00"
    _, many = await service.accept_batch([request(2), request(3)])
    answered = await service.evaluate(request(4))
    accepting.now = None
    nobody = await service.accept(request(5))
    await build_service(database, Stage(), options=Options(observer=working)).drain()
    said = f"00-{'3' * 32}-{'4' * 16}-00"
    audit = working.jobs.keys() - {one, *many, nobody}
    assert working.jobs == {
        one: f"00-{'1' * 32}-{'2' * 16}-01",
        **dict.fromkeys(many, said),
        **dict.fromkeys(audit, said),
        nobody: None,
    }
    assert len(audit) == 1
    assert answered.evaluation_id not in working.jobs


async def test_a_worker_that_is_stopped_lets_go_of_its_work(database: Database) -> None:
    """Another one takes it at once; being stopped is no attempt."""
    began = anyio.Event()

    async def slow(_item: LayerInput):
        began.set()
        await anyio.sleep_forever()

    stopped = build_service(database, Stage({J: slow}))
    evaluation_id = await stopped.accept(request(**FLAGGED))
    async with anyio.create_task_group() as group:
        group.start_soon(stopped.work)
        await began.wait()
        group.cancel_scope.cancel()
    other = WorkStore(database, owner="other")
    (work,) = await other.claim(5)
    assert (work.work_id, work.attempts) == (evaluation_id, 0)


async def test_work_of_a_process_that_died_is_done_when_its_lease_has_run_out(database: Database) -> None:
    """Not before, and by one process only."""
    moment = [1000.0]
    first, second, third = (WorkStore(database, owner=name, clock=lambda: moment[0]) for name in "abc")
    await first.add([work_row("w", b"{}")])
    assert [work.work_id for work in await first.claim(5)] == ["w"]
    moment[0] += LEASE_SECONDS - 1
    assert await second.claim(5) == []
    await first.renew({"w"})
    moment[0] += LEASE_SECONDS - 1
    assert await second.claim(5) == []
    moment[0] += 2
    claims = await asyncio.gather(second.claim(5), third.claim(5))
    assert sorted(len(claim) for claim in claims) == [0, 1]
    assert [work.attempts for claim in claims for work in claim] == [1]


async def test_a_lease_that_was_lost_is_not_renewed(database: Database) -> None:
    """Who slept too long does not take the work back from who has it now."""
    moment = [1000.0]
    sleepy, quick, third = (WorkStore(database, owner=name, clock=lambda: moment[0]) for name in "abc")
    await sleepy.add([work_row("w", b"{}")])
    await sleepy.claim(1)
    moment[0] += LEASE_SECONDS + 1
    await quick.claim(1)
    moment[0] += LEASE_SECONDS + 1
    await sleepy.renew({"w"})
    assert len(await third.claim(1)) == 1


async def test_work_is_claimed_oldest_first_and_each_piece_once(database: Database) -> None:
    """Many claimers at once share it out without overlap."""
    stores = [WorkStore(database, owner=f"o{n}") for n in range(4)]
    ids = [uuid7() for _ in range(40)]
    await stores[0].add([work_row(work_id, b"{}") for work_id in ids])
    claims = await asyncio.gather(*[store.claim(10) for store in stores])
    assert sorted(work.work_id for claim in claims for work in claim) == ids
    assert await stores[0].claim(10) == []


async def test_processes_on_postgresql_share_the_work_without_waiting_for_each_other(postgres: PostgresServer) -> None:
    """While one is claiming, another takes what is left."""
    claimed, go_on = threading.Event(), threading.Event()
    with postgres.migrated_database() as url:
        first, second = [await Database.open(StoreSettings(url=url)) for _ in range(2)]
        slow, quick = WorkStore(first, owner="slow"), WorkStore(second, owner="quick")
        await slow.add([work_row(f"w{n}", b"{}") for n in range(5)])

        def claim_and_wait(conn: Connection) -> list[Work]:
            works = slow._claim(conn, 2)
            claimed.set()
            assert go_on.wait(10)
            return works

        held = asyncio.create_task(first.write(claim_and_wait))
        await asyncio.to_thread(claimed.wait, 10)
        rest = await asyncio.wait_for(quick.claim(10), 5)
        go_on.set()
        assert [work.work_id for work in await held] == ["w0", "w1"]
        assert [work.work_id for work in rest] == ["w2", "w3", "w4"]
        await first.close()
        await second.close()


async def test_work_that_kills_its_workers_is_given_up(database: Database) -> None:
    """After so many attempts it has failed, and says why."""
    moment = [1000.0]
    store = WorkStore(database, owner="o", clock=lambda: moment[0])
    await store.add([work_row("w", b"{}")])
    for _ in range(MAX_ATTEMPTS):
        assert len(await store.claim(1)) == 1
        moment[0] += LEASE_SECONDS + 1
    assert await store.claim(1) == []
    found = await store.status("w")
    assert found is not None
    assert found[0].status == "failed"
    assert found[0].error is not None
    assert found[0].error.kind == "abandoned"


async def test_leases_of_ended_processes_of_this_machine_are_let_go_of_at_start(database: Database) -> None:
    """After a crash nobody waits for a lease; those of living processes and of other machines stand."""
    ended = subprocess.Popen([sys.executable, "-c", ""])  # noqa: ASYNC220
    await asyncio.to_thread(ended.wait)
    host = socket.gethostname()[:64]
    owners = {
        "dead": f"{host}:{ended.pid}:x",
        "same number": f"{host}:{os.getpid()}:an-earlier-process",
        "alive": f"{host}:{os.getppid()}:x",
        "elsewhere": f"not-{host}:{ended.pid}:x",
    }
    for name, owner in owners.items():
        store = WorkStore(database, owner=owner)
        await store.add([work_row(name, b"{}")])
        await store.claim(1)
    fresh = WorkStore(database)
    await fresh.release_dead()
    assert sorted(work.work_id for work in await fresh.claim(9)) == ["dead", "same number"]


async def test_work_stored_by_a_worker_that_then_died_is_not_done_again(database: Database) -> None:
    """Its evaluation stands already; only the work's own row did not say so."""
    stage = Stage()
    service = build_service(database, stage)
    moment = [0.0]
    dying = WorkStore(database, owner="dying", clock=lambda: moment[0])
    evaluation_id = await service.accept(request(**FLAGGED), fresh=True)
    (work,) = await dying.claim(1)
    await service._perform(work)
    await service.drain()
    assert stage.times(J) == 1
    assert [result.evaluation_id for result in await all_of(service)] == [evaluation_id]


async def test_work_that_crashes_has_failed_and_says_with_what(database: Database) -> None:
    """By the type's name, never by its message; the worker goes on."""
    store = WorkStore(database)

    async def perform(work) -> str:
        if work.work_id == "bad":
            raise KeyError("secret")
        return "result"

    await store.add([work_row("bad", b"{}"), work_row("good", b"{}")])
    await Worker(store, perform).drain()
    bad, good = await store.status("bad"), await store.status("good")
    assert bad is not None
    assert good is not None
    assert (bad[0].status, bad[0].error.model_dump()) == ("failed", {"kind": "crashed", "message": "KeyError"})
    assert (good[0].status, good[1]) == ("done", "result")


async def test_a_worker_does_no_more_at_once_than_it_may(database: Database) -> None:
    """The bound holds, and all of it is done."""
    now, most, done = 0, 0, 0

    async def perform(_work) -> str:
        nonlocal now, most, done
        now += 1
        most = max(most, now)
        for _ in range(10):  # long enough for the others to begin
            await anyio.lowlevel.checkpoint()
        now -= 1
        done += 1
        return "result"

    store = WorkStore(database)
    await store.add([work_row(f"w{n}", b"{}") for n in range(30)])
    await Worker(store, perform, concurrency=4).drain()
    assert (done, most) == (30, 4)
    assert await store.backlog() == 0


async def test_a_running_worker_takes_what_comes_in(database: Database) -> None:
    """Accepting wakes it; it need not look again and again."""
    service = build_service(database, Stage())
    async with anyio.create_task_group() as group:
        group.start_soon(service.work)
        with anyio.fail_after(10):
            for n in range(3):
                evaluation_id = await service.accept(request(n))
                while isinstance(await service.get(evaluation_id), Accepted):
                    await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()


class LooksCounted(WorkStore):
    """A store that notes how much each look found."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.looks: list[int] = []
        self.looked = anyio.Event()

    async def claim(self, limit: int) -> list[Work]:
        works = await super().claim(limit)
        self.looks.append(len(works))
        self.looked.set()
        self.looked = anyio.Event()
        return works


@pytest.mark.parametrize("soon", [3600.0, 0.0])
async def test_what_nobody_waits_for_is_looked_for_only_in_a_moment(database: Database, soon: float) -> None:
    """Until then it is gathered, and one look takes all of it; a look costs the same, whatever it finds."""

    async def perform(_work) -> str:
        return "result"

    store = LooksCounted(database)
    worker = Worker(store, perform, poll=3600.0, soon=soon)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        with anyio.fail_after(10):
            await store.looked.wait()
            for name in ("one", "two"):
                await store.add([work_row(name, b"{}")])
                worker.wake_soon()
            if soon:
                await store.backlog()
                assert store.looks == [0]
                worker.wake()
            while sum(store.looks) < 2:
                await store.looked.wait()
        group.cancel_scope.cancel()
    assert store.looks[:2] == [0, 2] or not soon


async def test_a_batch_is_stored_whole_and_shows_how_far_it_is(database: Database) -> None:
    """Its lines keep their order; one that makes no sense has failed and spoils no other."""
    service = build_service(database, Stage())
    lines = [request(n, system="unknown" if n == 2 else "known") for n in range(5)]
    batch_id, ids = await service.accept_batch(lines)
    before = await service.get_batch(batch_id)
    assert (before.status, before.n_total, before.n_done, before.n_failed) == ("accepted", 5, 0, 1)
    assert before.evaluation_ids == ids
    await service.drain()
    after = await service.get_batch(batch_id)
    assert (after.status, after.n_done, after.n_failed) == ("done", 4, 1)
    results = [await service.get(each) for each in ids]
    assert [getattr(each, "prediction_id", None) for each in results] == ["txn-0", "txn-1", None, "txn-3", "txn-4"]
    failed = results[2]
    assert isinstance(failed, Accepted)
    assert failed.error is not None
    assert (failed.status, failed.batch_id) == ("failed", batch_id)
    assert "unknown system" in failed.error.message
    with pytest.raises(NotFound):
        await service.get_batch(ids[0])


# --- the audit sample -------------------------------------------------------------------------------------------------


async def test_an_unflagged_item_of_the_sample_is_answered_first_and_looked_at_later(database: Database) -> None:
    """The answer does not wait; the later record names it and carries the chance of being drawn."""
    stage = Stage()
    service = build_service(database, stage, audit_rate=1.0)
    first = await service.evaluate(request())
    assert (first.escalated, first.inclusion_probability, stage.times(J)) == (False, 1.0, 0)
    await service.drain()
    second, listed_first = await all_of(service)
    assert listed_first == first
    assert (second.parent_id, second.prediction_id) == (first.evaluation_id, first.prediction_id)
    assert (second.escalated, second.escalation_reasons) == (True, ("audit_sample",))
    assert (second.decision, second.inclusion_probability) == ("judge_confirms", 1.0)
    assert stage.times(J) == 1


async def test_a_re_examination_is_never_the_answer_to_a_repeat(database: Database) -> None:
    """Repeats get the first answer, make no further sample, and re-examinations draw none themselves."""
    stage = Stage()
    service = build_service(database, stage, audit_rate=1.0)
    first = await service.evaluate(request())
    await service.drain()
    again = await service.evaluate(request())
    await service.drain()
    assert (again.evaluation_id, again.replayed) == (first.evaluation_id, True)
    assert await service.accept(request()) == first.evaluation_id
    assert len(await all_of(service)) == 2


async def test_the_order_to_look_later_is_stored_with_the_answer(database: Database) -> None:
    """A process that dies right after answering loses nothing."""
    first = await build_service(database, Stage(), audit_rate=1.0).evaluate(request())
    later = build_service(database, Stage())
    await later.drain()
    assert {result.parent_id for result in await all_of(later)} == {None, first.evaluation_id}


async def test_a_flagged_item_is_not_drawn(database: Database) -> None:
    """It is looked at anyway, with certainty."""
    service = build_service(database, Stage({H: gives(DOUBT)}), audit_rate=1.0)
    result = await service.evaluate(request())
    assert result.inclusion_probability == 1.0
    assert await WorkStore(database).backlog() == 0


async def test_a_sample_that_nobody_looked_at_is_not_counted_as_confirmed(database: Database) -> None:
    """Drawn, and every costly layer failed: inconclusive."""
    down = {name: raises(KeyError("down")) for name in (D, C, J)}
    service = build_service(database, Stage(down), audit_rate=1.0)
    await service.evaluate(request())
    await service.drain()
    audit = (await all_of(service))[0]
    assert (audit.disposition, audit.decision, audit.degraded) == ("inconclusive", "sample_not_looked_at", True)


async def test_a_judge_of_the_sample_can_flag_what_the_free_checks_let_pass(database: Database) -> None:
    """That is what the sample is for."""
    service = build_service(database, Stage({J: gives(judged("low")), D: raises(KeyError("x"))}), audit_rate=1.0)
    await service.evaluate(request())
    await service.drain()
    assert (await all_of(service))[0].decision == "judge_overturns_far"
