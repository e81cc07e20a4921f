"""Every model call: one prompt, one schema, strict reading, an answer kept and shared, and a record of it."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Generic, TypeVar

from layers.canonical import canonical_bytes, sha256_of
from layers.errors import DependencyError, DependencyMalformed, VerdictNotOffered
from layers.model import JsonObject
from layers.ports import Answerer, AnswerStore, Clock, KeptAnswer, ModelReply
from layers.prompting import Prompt, RenderedPrompt, render
from layers.reply import ReplyFailure

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parameters:
    """How a model is asked. `repeat` tells apart answers to the same question that are wanted more than once."""

    temperature: float = 0.0
    seed: int = 7
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """What is asked. `read` turns the reply's text into a value, or raises `ReplyFailure`; it is pure."""

    prompt: Prompt
    values: Mapping[str, str]
    schema: JsonObject
    read: Callable[[str], T]
    parameters: Parameters = Parameters()


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What was answered. `prompt` is the very text that brought the reply, also where the answer was kept from before.

    `elapsed_ms` is what this asker waited.
    """

    value: T
    reply: ModelReply
    prompt: RenderedPrompt
    key: str
    cached: bool
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call, for audit: the question by its hashes, who answered, and how it ended (`answered` or the cause).

    It holds no text of the prompt or of the reply. `error` names the exception's class, `message` says why it failed.
    """

    prompt: str
    prompt_version: str
    prompt_sha256: str
    question: str
    model: str
    source: str
    outcome: str
    cached: bool
    elapsed_ms: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    response_model: str | None = None
    finish_reason: str | None = None
    error: str | None = None
    message: str | None = None


class _Flight(Generic[T]):
    """A call that several askers wait for. It is stopped when the last of them has left."""

    task: asyncio.Task[T]

    def __init__(self) -> None:
        self.waiting = 0
        self.prompt: RenderedPrompt | None = None
        """What the model was asked, once it was."""


class StructuredCall:
    """Asks models. One per process: it holds the answers kept in memory and the calls under way.

    An answer is kept by all that it depends on: model identity, prompt (but for its random token), schema, parameters
    and repeat. Failures are never kept. State is touched between awaits of one event loop only, so it needs no locks.
    """

    def __init__(
        self,
        *,
        capacity: int = 1024,
        store: AnswerStore | None = None,
        record: Callable[[CallRecord], None] = lambda _: None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._capacity = capacity
        self._store = store
        self._record = record
        self._clock = clock
        self._kept: OrderedDict[str, KeptAnswer] = OrderedDict()
        self._flights: dict[str, _Flight[tuple[KeptAnswer, bool]]] = {}

    async def ask(
        self,
        answerer: Answerer,
        question: Question[T],
        *,
        deadline: float | None = None,
        on_asked: Callable[[RenderedPrompt, str], object] = lambda _prompt, _key: None,
    ) -> Answer[T]:
        """The answer, kept from before or asked for now. Raises `DependencyError`; `deadline` as in `Answerer`.

        Equal questions at the same time are asked once; an asker that is cancelled takes nothing from the others.
        `on_asked` is told what the model was asked, and the question's key, whatever came back and before this ends; it
        is not called where the answer was kept from before.
        """
        start = self._clock()
        rendered = render(question.prompt, question.values)
        key = answer_key(answerer, rendered, question)
        outcome, kept, cached = "cancelled", None, False
        failure: Exception | None = None
        try:
            kept, cached = await self._kept_or_asked(answerer, question, rendered, key, deadline, on_asked)
            value = _read(answerer, question, kept.reply)
            outcome = "answered"
        except Exception as exc:
            failure, outcome = exc, getattr(exc, "kind", type(exc).__name__)
            raise
        finally:
            elapsed = (self._clock() - start) * 1000
            record = _record_of(answerer, rendered, key, kept, cached=cached, outcome=outcome, elapsed_ms=elapsed)
            self._record(record if failure is None else _with_failure(record, failure))
        return Answer(value, kept.reply, kept.prompt, key, cached, elapsed)

    async def _kept_or_asked(
        self,
        answerer: Answerer,
        question: Question[T],
        rendered: RenderedPrompt,
        key: str,
        deadline: float | None,
        on_asked: Callable[[RenderedPrompt, str], object],
    ) -> tuple[KeptAnswer, bool]:
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept, True
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight()
            flight.task = asyncio.create_task(self._look_up_or_ask(answerer, question, rendered, key, deadline, flight))
            flight.task.add_done_callback(lambda done: self._landed(key, done))
        joined = flight.waiting > 0
        flight.waiting += 1
        try:
            answer, cached = await asyncio.shield(flight.task)
            return answer, cached or joined
        finally:
            if flight.prompt is not None:
                on_asked(flight.prompt, key)
            flight.waiting -= 1
            if flight.waiting == 0 and not flight.task.done():
                self._flights.pop(key, None)  # whoever asks from now on must not join a call that is being stopped
                flight.task.cancel()

    def _landed(self, key: str, task: asyncio.Task[tuple[KeptAnswer, bool]]) -> None:
        if (flight := self._flights.get(key)) is not None and flight.task is task:
            del self._flights[key]
        if not task.cancelled():
            task.exception()  # seen, also when every asker has left

    async def _look_up_or_ask(
        self,
        answerer: Answerer,
        question: Question[T],
        rendered: RenderedPrompt,
        key: str,
        deadline: float | None,
        flight: _Flight[tuple[KeptAnswer, bool]],
    ) -> tuple[KeptAnswer, bool]:
        if self._store is not None and (kept := await self._store.get(key)) is not None:
            self._keep(key, kept)
            return kept, True
        flight.prompt = rendered
        reply = await answerer.ask(
            rendered,
            question.schema,
            temperature=question.parameters.temperature,
            seed=question.parameters.seed + question.parameters.repeat,
            deadline=deadline,
        )
        kept = KeptAnswer(rendered, reply)
        _read(answerer, question, reply)
        self._keep(key, kept)
        if self._store is not None:
            await self._store.put(key, kept)
        return kept, False

    def _keep(self, key: str, answer: KeptAnswer) -> None:
        self._kept[key] = answer
        while len(self._kept) > self._capacity:
            self._kept.popitem(last=False)


def answer_key(answerer: Answerer, rendered: RenderedPrompt, question: Question[T]) -> str:
    """The hash of all that an answer depends on."""
    return sha256_of(
        canonical_bytes(
            {
                "model": answerer.identity,
                "prompt": rendered.key,
                "prompt_sha256": question.prompt.sha256,
                "schema": sha256_of(canonical_bytes(question.schema)),
                "parameters": asdict(question.parameters),
            }
        )
    )


def _read(answerer: Answerer, question: Question[T], reply: ModelReply) -> T:
    try:
        return question.read(reply.text)
    except ReplyFailure as exc:
        error = VerdictNotOffered if exc.kind == "not_a_label" else DependencyMalformed
        tokens = {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
        raise error(answerer.dependency, exc.kind, exc.message, detail={**tokens, "reply": reply.text[:2000]}) from exc


def _record_of(
    answerer: Answerer,
    rendered: RenderedPrompt,
    key: str,
    kept: KeptAnswer | None,
    *,
    cached: bool,
    outcome: str,
    elapsed_ms: float,
) -> CallRecord:
    record = CallRecord(
        prompt=rendered.prompt.name,
        prompt_version=rendered.prompt.version,
        prompt_sha256=rendered.prompt.sha256,
        question=key,
        model=answerer.identity,
        source=answerer.source.value,
        outcome=outcome,
        cached=cached,
        elapsed_ms=elapsed_ms,
    )
    if kept is None:
        return record
    return replace(
        record,
        input_tokens=kept.reply.input_tokens,
        output_tokens=kept.reply.output_tokens,
        response_model=kept.reply.model,
        finish_reason=kept.reply.finish_reason,
    )


def _with_failure(record: CallRecord, exc: Exception) -> CallRecord:
    """The record of a call that failed. What was spent on a reply that could not be read counts too."""
    detail = exc.detail if isinstance(exc, DependencyError) else {}
    return replace(
        record,
        input_tokens=detail.get("input_tokens", record.input_tokens),
        output_tokens=detail.get("output_tokens", record.output_tokens),
        error=type(exc).__name__,
        message=_message_of(exc),
    )


def _message_of(exc: Exception) -> str | None:
    if isinstance(exc.__cause__, ReplyFailure):  # its own message may quote the reply
        return f"the reply could not be read: {exc.__cause__.kind}"
    return exc.message if isinstance(exc, DependencyError) else None
