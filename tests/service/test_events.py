"""Events of runs: the same for everybody, replayed to the byte, and nothing left behind by those who hang up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from sqlalchemy import delete

from app.cli.progress import follow
from app.errors import NotFound, Overloaded
from app.runs.event_store import EventStore, RunEvent
from app.runs.event_tables import run_events
from app.runs.events import RunEvents
from app.runs.model import Progress, Run, RunOptions, RunStatus, links_of
from app.settings import StoreSettings
from app.store.database import Database
from app.store.ids import uuid7
from tests.runs import Scripted, dataset, request, run_service
from tests.service.serving import served

pytestmark = pytest.mark.anyio

RUN_ID = uuid7()
LONG = 60.0
"""An interval at which nothing happens during a test."""


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/store.db"))
    yield opened
    await opened.close()


def a_run(status: str = "running", done: int = 0, failed: int = 0, attempts: int = 1) -> Run:
    return Run(
        run_id=RUN_ID,
        name=None,
        system="tested",
        status=RunStatus(status),
        failure=None,
        dataset_id="sha256:" + "0" * 64,
        options=RunOptions(),
        labels={},
        progress=Progress(n_total=10, n_done=done, n_scored=done - failed, n_failed=failed),
        created_at="2026-01-01T00:00:00.000000Z",
        started_at=None,
        finished_at=None,
        attempts=attempts,
        code_version="1",
        links=links_of(RUN_ID),
    )


class Stage:
    """A run that stands where a test puts it."""

    def __init__(self, run: Run | None = None) -> None:
        self.run = run or a_run()
        self.looks = 0

    async def get(self, run_id: str) -> Run:
        self.looks += 1
        if run_id != self.run.run_id:
            raise NotFound("there is no such run")
        return self.run


def hub(stage: Stage, database: Database, **options: float) -> RunEvents:
    return RunEvents(stage.get, EventStore(database), **{"interval": 0.001, "patience": 0, **options})


async def take(events: AsyncIterator[RunEvent | None], count: int) -> list[RunEvent]:
    """The next events, signs of life left out."""
    found: list[RunEvent] = []
    with anyio.fail_after(10):
        while len(found) < count:
            if (event := await anext(events)) is not None:
                found.append(event)
    return found


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.001)


async def tell_all(database: Database, *runs: Run, keep: int = 1_000) -> list[RunEvent]:
    store = EventStore(database, keep=keep)
    for run in runs:
        await store.tell(run)
    return list(await store.since(RUN_ID, 0))


# --- what is told -----------------------------------------------------------------------------------------------------


async def test_an_event_is_told_once_for_each_thing_that_is_new(database: Database) -> None:
    """A status, counts, the end; the same look again is no news, and neither is an older one that comes late."""
    events = await tell_all(
        database,
        a_run("queued"),
        a_run("queued"),
        a_run("running"),
        a_run("running", 3),
        a_run("running", 2),
        a_run("running", 3, failed=1),
        a_run("succeeded", 10, failed=1),
        a_run("running", 9),
        a_run("running", 10, failed=1),
    )
    assert [(event.seq, event.kind) for event in events] == [
        (1, "status"),
        (2, "status"),
        (3, "progress"),
        (4, "progress"),
        (5, "end"),
    ]
    again = await tell_all(database, a_run("queued", 9, attempts=2), a_run("succeeded", 10, attempts=2))
    assert [event.kind for event in again[5:]] == ["status", "end"]


async def test_many_tellers_make_one_list(database: Database) -> None:
    """Processes that look at the same run at the same time tell each thing once, in one order."""
    stage = Stage(a_run("running"))
    hubs = [hub(stage, database) for _ in range(4)]
    heard: dict[int, list[RunEvent]] = {}

    async def follow(number: int) -> None:
        async with hubs[number].listen(RUN_ID) as events:
            heard[number] = [event async for event in events if event is not None]

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(follow, number)
        for done in range(1, 10):
            before = stage.looks
            stage.run = a_run("running", done)
            await until(lambda before=before: stage.looks > before + 8)
        stage.run = a_run("succeeded", 10)
    assert [event.seq for event in heard[0]] == list(range(1, len(heard[0]) + 1))
    assert [event.kind for event in heard[0]] == ["status", *["progress"] * (len(heard[0]) - 2), "end"]
    assert all(each == heard[0] for each in heard.values())


# --- replay -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heard", range(5))
async def test_after_a_break_exactly_what_was_missed_comes(database: Database, heard: int) -> None:
    told = await tell_all(database, *(a_run("running", n) for n in range(4)), a_run("failed", 4))
    async with hub(Stage(a_run("failed", 4)), database).listen(RUN_ID, str(heard)) as events:
        assert [event async for event in events] == told[heard:]


async def test_a_new_process_tells_the_same(database: Database) -> None:
    """Events come from the store: a service that starts anew replays them to the byte."""
    told = await tell_all(database, a_run(), a_run("running", 5), a_run("cancelled", 5))
    stage = Stage(a_run("cancelled", 5))
    for _ in range(2):
        async with hub(stage, database).listen(RUN_ID) as events:
            assert [event async for event in events] == told


@pytest.mark.parametrize("last_id", ["1", "99", "abc", "-1", "1e3", "0", "٣", "9" * 400])
async def test_an_id_too_old_or_foreign_gives_one_resync(database: Database, last_id: str) -> None:
    await tell_all(database, *(a_run("running", n) for n in range(9)), keep=3)
    stage = Stage(a_run("running", 8))
    async with hub(stage, database).listen(RUN_ID, last_id) as events:
        (first,) = await take(events, 1)
        assert (first.kind, first.seq) == ("resync", 9)
        assert Run.model_validate_json(first.data) == stage.run
        stage.run = a_run("succeeded", 10)
        assert [(event.kind, event.seq) async for event in events if event] == [("end", 10)]


async def test_without_an_id_the_stream_begins_with_what_is_kept(database: Database) -> None:
    told = await tell_all(database, *(a_run("running", n) for n in range(9)), keep=3)
    async with hub(Stage(a_run("running", 8)), database).listen(RUN_ID) as events:
        assert await take(events, 3) == told


async def test_a_run_told_to_its_end_needs_no_more_telling(database: Database) -> None:
    await tell_all(database, a_run(), a_run("succeeded", 10))
    events = hub(Stage(a_run("succeeded", 10)), database)
    assert [await events.is_over(RUN_ID, last_id) for last_id in (None, "1", "2", "3", "x")] == [
        False,
        False,
        True,
        False,
        False,
    ]


# --- listeners --------------------------------------------------------------------------------------------------------


async def test_listeners_of_one_run_share_the_looking(database: Database) -> None:
    """However many listen, the store is asked once per interval, and not at all when the last one has gone."""
    stage = Stage()
    events = hub(stage, database, interval=LONG)
    async with AsyncExitStack() as stack:
        for _ in range(20):
            stream = await stack.enter_async_context(events.listen(RUN_ID))
            assert [event.kind for event in await take(stream, 1)] == ["status"]
        assert events.watched == 1
        assert stage.looks == 20 + 1  # each is looked up once when it comes; the sharing one looks once
    assert events.watched == 0


async def test_too_many_listeners_are_refused(database: Database) -> None:
    events = hub(Stage(), database, max_listeners=2)
    async with events.listen(RUN_ID), events.listen(RUN_ID):
        with pytest.raises(Overloaded):
            async with events.listen(RUN_ID):
                pass
    async with events.listen(RUN_ID):
        pass


async def test_silence_is_broken_by_signs_of_life(database: Database) -> None:
    async with hub(Stage(), database, interval=LONG, heartbeat=0.001).listen(RUN_ID) as events:
        await take(events, 1)
        with anyio.fail_after(10):
            assert [await anext(events), await anext(events)] == [None, None]


async def test_closing_ends_every_stream(database: Database) -> None:
    events = hub(Stage(), database, interval=LONG)
    async with events.listen(RUN_ID) as one, events.listen(RUN_ID) as other:
        await take(one, 1)
        await take(other, 1)
        await events.close()
        with anyio.fail_after(10):
            assert [[event async for event in stream] for stream in (one, other)] == [[], []]


async def test_a_store_out_of_reach_for_a_moment_ends_no_stream(database: Database) -> None:
    stage = Stage()

    class Flaky(Stage):
        async def get(self, run_id: str) -> Run:
            run = await stage.get(run_id)
            if 1 < stage.looks < 5:
                raise Overloaded
            return run

    async with hub(Flaky(), database).listen(RUN_ID) as events:
        assert [event.kind for event in await take(events, 1)] == ["status"]


# --- over HTTP --------------------------------------------------------------------------------------------------------


def parsed(text: str) -> list[dict[str, str]]:
    blocks = [block for block in text.split("\n\n") if block.startswith("id:")]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


async def test_a_run_is_followed_to_its_end(settings, database: Database) -> None:
    """A client sees the run start, advance and end; one that comes back gets the rest, and at last nothing more."""
    release = anyio.Event()

    async def hold_the_last(example) -> Awaitable:
        from tests.runs import answer_high

        if example.id == "e3":
            await release.wait()
        return await answer_high(example)

    async with run_service(database, Scripted(hold_the_last)) as runs:
        events = RunEvents(runs.get, EventStore(database), interval=0.01)
        async with served(settings, runs=runs, events=events) as http:
            run = await runs.submit(request(), dataset(4))
            text = ""
            with anyio.fail_after(20):
                async with http.stream("GET", run.links.events) as response:
                    assert response.headers["content-type"].startswith("text/event-stream")
                    async for piece in response.aiter_text():
                        text += piece
                        if '"n_done":3' in text:
                            release.set()
            told = parsed(text)
            assert told[-1]["event"] == "end"
            assert [event["id"] for event in told] == [str(n + 1) for n in range(len(told))]
            for place in range(len(told)):
                again = await http.get(run.links.events, headers={"last-event-id": told[place]["id"]})
                assert parsed(again.text) == told[place + 1 :]
                assert again.status_code == (200 if place + 1 < len(told) else 204)


async def test_whoever_hangs_up_is_forgotten(settings, database: Database) -> None:
    events = hub(Stage(), database, interval=LONG)
    async with served(settings, events=events) as http:
        async with http.stream("GET", f"/runs/{RUN_ID}/events") as response:
            await anext(response.aiter_bytes())
            assert events.watched == 1
        await until(lambda: events.watched == 0)


@pytest.mark.parametrize(
    ("method", "path", "accept", "status"),
    [
        ("GET", f"/runs/{uuid7()}/events", "*/*", 404),
        ("GET", "/runs/x/events", "text/event-stream", 404),
        ("GET", f"/runs/{RUN_ID}/events", "application/json", 406),
        ("HEAD", f"/runs/{RUN_ID}/events", "text/event-stream", 200),
    ],
)
async def test_what_can_not_be_followed_is_refused_at_once(api, database, method, path, accept, status) -> None:
    async with api(events=hub(Stage(), database)) as http:
        with anyio.fail_after(10):
            assert (await http.request(method, path, headers={"accept": accept})).status_code == status


async def test_the_command_line_follows_events_and_polls_where_there_are_none(settings, database: Database) -> None:
    """With events each step is seen without asking; without them the run is asked for until it has ended."""
    stage = Stage(a_run("running", 1))
    for events in (hub(stage, database), None):
        stage.run = a_run("running", 1)
        async with served(settings, runs=stage, events=events) as http:
            seen = []
            with anyio.fail_after(20):
                async for run in follow(http, {"run_id": RUN_ID, "status": "queued"}):
                    seen.append((run["status"], run["progress"]["n_done"]))
                    stage.run = a_run("succeeded", 10)
        assert seen == [("running", 1), ("succeeded", 10)]
        told = await database.write(lambda conn: conn.execute(delete(run_events)).rowcount)
        assert told == (2 if events else 0)
