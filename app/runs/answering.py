"""Get a chunk answered: its questions from the store, the answers back to it, and an eye on whether to go on."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator

import anyio

from app.errors import Unavailable
from app.runs.asking import Item
from app.runs.chunks import ChunkStore, Claim
from app.runs.dataset import UnreadableExample, read_stored
from app.runs.keeping import Chunk
from app.runs.model import BUSY, RunStatus
from app.runs.observe import RunObserver
from app.runs.record_store import RecordStore
from app.runs.session import Session
from app.runs.store import RunStore, StoredRun
from layers.model import EvalExample

WATCH_SECONDS = 1.0
"""How often a run looks whether another process paused or cancelled it, or a more urgent one has come."""


async def _always(_: StoredRun) -> bool:
    return True


class Answering:
    """`is_heard` says whether the others know this process to be alive, `admits` whether it is a run's turn; `halted`:
    the process is about to end."""

    def __init__(self, runs: RunStore, records: RecordStore, chunks: ChunkStore, observer: RunObserver) -> None:
        self._runs = runs
        self._records = records
        self._chunks = chunks
        self._observer = observer
        self.is_heard: Callable[[], bool] = lambda: False
        self.admits: Callable[[StoredRun], Awaitable[bool]] = _always
        self.halted = False

    async def ask(self, session: Session, claim: Claim) -> bool:
        """Ask all of a chunk; whether there was anything left to ask. What is left when it has to stop is let go of."""
        chunk = Chunk(session.run, claim, self._records, self._observer)
        questions = await self._questions(session.run, claim)
        await self._execute(session, chunk, questions)
        if (failure := session.execution.failure) is not None:
            run = session.run
            await self._runs.move(
                run.run_id, RunStatus.FAILED, only_from=BUSY, failure=failure, stretch=run.workflow_id
            )
        if self.halted:
            await anyio.sleep_forever()  # until it is cancelled: a result would say that these were all asked
        if session.gate.stopped or chunk.left:
            await self._chunks.let_go(claim)
        else:
            await self._chunks.finish(claim)
        return bool(questions)

    async def _questions(self, run: StoredRun, claim: Claim) -> list[tuple[int, int, bytes]]:
        """Unit, repeat and example of what is still to be asked."""
        repeats = run.config.options.repeats
        positions = (claim.start // repeats, -(-claim.stop // repeats))
        done = await self._records.done(run, *positions)
        rows = dict(await self._records.examples(run.dataset_no, *positions))
        units = ((unit, *divmod(unit, repeats)) for unit in range(claim.start, claim.stop))
        return [(unit, repeat, rows[position]) for unit, position, repeat in units if (position, repeat) not in done]

    async def _execute(self, session: Session, chunk: Chunk, questions: list[tuple[int, int, bytes]]) -> None:
        unreadable: list[UnreadableExample] = []

        def items() -> Iterator[Item]:
            for unit, repeat, data in questions:
                if chunk.lost or not self.is_heard():
                    chunk.left = True
                    return
                try:
                    example = read_stored(data, unit // session.run.config.options.repeats, EvalExample)
                except UnreadableExample as exc:  # told when the answers that are under way have been kept
                    unreadable.append(exc)
                    return
                yield Item(unit, repeat, example)

        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, session)
            await session.execution.run(items(), session.keeping(chunk.keep), chunk.claim.start)
            group.cancel_scope.cancel()
        if unreadable:
            raise unreadable[0]

    async def _watch(self, session: Session) -> None:
        """Show whether the run waits, and see whether somebody wants it to stop."""
        changed = anyio.Event()
        shown = RunStatus.RUNNING
        with session.gate.listening(lambda: changed.set()):  # noqa: PLW0108 - the event is another one each time
            while True:
                with anyio.move_on_after(WATCH_SECONDS):
                    await changed.wait()
                changed = anyio.Event()
                with contextlib.suppress(Unavailable):
                    shown = await self._show(session, shown)
                    if await self._runs.status(session.run) not in BUSY or not await self.admits(session.run):
                        session.gate.stop()

    async def _show(self, session: Session, shown: RunStatus) -> RunStatus:
        status = RunStatus.WAITING if session.gate.held else RunStatus.RUNNING
        if status is not shown:
            await self._runs.move(session.run.run_id, status, only_from=BUSY, stretch=session.run.workflow_id)
        return status
