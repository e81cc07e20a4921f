"""Asking models: answers are kept by all that they depend on, failures never, and equal questions are asked once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from layers.canonical import sha256_of
from layers.errors import DependencyMalformed, DependencyUnavailable, VerdictNotOffered
from layers.ports import KeptAnswer
from layers.prompting import Prompt, RenderedPrompt
from layers.reply import ReplyFailure
from layers.structured_call import CallRecord, Parameters, Question, StructuredCall
from tests.unit.answerers import ScriptedAnswerer

pytestmark = pytest.mark.anyio

TEXT = "{{token}} {{data}}"
PROMPT = Prompt("test", "1", TEXT, sha256_of(TEXT.encode()))


def read(text: str) -> int:
    if not text.isdigit():
        raise ReplyFailure("not_a_label" if text == "label" else "malformed", f"{text} is no number")
    return int(text)


def question(data: str = "d", **changes: Any) -> Question[int]:
    return replace(Question(PROMPT, {"data": data}, {"type": "integer"}, read), **changes)


async def test_an_answer_is_kept_and_marked_as_such() -> None:
    model, calls = ScriptedAnswerer(lambda _: "7"), StructuredCall()
    first, second = await calls.ask(model, question()), await calls.ask(model, question())
    assert (first.value, first.cached) == (7, False)
    assert (second.value, second.cached) == (7, True)
    assert len(model.asked) == 1
    assert second.prompt is first.prompt, "the prompt on record is the one that brought the answer"


@pytest.mark.parametrize(
    "other",
    [
        question("e"),
        question(schema={"type": "number"}),
        question(parameters=Parameters(temperature=0.1)),
        question(parameters=Parameters(seed=8)),
        question(parameters=Parameters(repeat=1)),
        question(prompt=replace(PROMPT, text=TEXT + ".", sha256="sha256:other")),
    ],
    ids=["data", "schema", "temperature", "seed", "repeat", "prompt"],
)
async def test_whatever_an_answer_depends_on_makes_another_question(other: Question[int]) -> None:
    model, calls = ScriptedAnswerer(lambda _: "7"), StructuredCall()
    await calls.ask(model, question())
    assert not (await calls.ask(model, other)).cached
    assert len(model.asked) == 2


async def test_another_model_is_another_question() -> None:
    calls = StructuredCall()
    await calls.ask(ScriptedAnswerer(lambda _: "7"), question())
    assert not (await calls.ask(ScriptedAnswerer(lambda _: "8", identity="scripted:2"), question())).cached


async def test_a_repeat_is_asked_with_a_seed_of_its_own() -> None:
    model, calls = ScriptedAnswerer(lambda _: "7"), StructuredCall()
    for repeat in range(2):
        await calls.ask(model, question(parameters=Parameters(seed=5, repeat=repeat)), deadline=9.0)
    assert [(o["seed"], o["deadline"]) for o in model.options] == [(5, 9.0), (6, 9.0)]


@pytest.mark.parametrize(
    ("said", "error", "kind"),
    [
        (DependencyUnavailable("ollama", "timeout"), DependencyUnavailable, "timeout"),
        ("no number", DependencyMalformed, "malformed"),
        ("label", VerdictNotOffered, "not_a_label"),
    ],
)
async def test_a_failure_is_never_kept(said: Any, error: type[Exception], kind: str) -> None:
    script = [said, "7"]
    model, calls = ScriptedAnswerer(lambda _: script.pop(0)), StructuredCall()
    with pytest.raises(error) as failure:
        await calls.ask(model, question())
    assert failure.value.kind == kind
    answer = await calls.ask(model, question())
    assert (answer.value, answer.cached) == (7, False)


async def test_the_least_recently_used_answer_is_forgotten_first() -> None:
    model, calls = ScriptedAnswerer(lambda _: "7"), StructuredCall(capacity=2)
    for data in ("a", "b", "a", "c"):
        await calls.ask(model, question(data))
    assert (await calls.ask(model, question("a"))).cached
    assert not (await calls.ask(model, question("b"))).cached


class Gate:
    """A model that answers when it is let, and knows whether it was stopped."""

    def __init__(self, text: str = "7") -> None:
        self.text = text
        self.started, self.open = anyio.Event(), anyio.Event()
        self.stopped = False

    def __call__(self, _: RenderedPrompt) -> Any:
        return self._answer()

    async def _answer(self) -> str:
        self.started.set()
        try:
            await self.open.wait()
        except BaseException:
            self.stopped = True
            raise
        return self.text


async def test_equal_questions_at_the_same_time_are_asked_once() -> None:
    gate = Gate()
    model, calls, answers = ScriptedAnswerer(gate), StructuredCall(), []

    async def ask() -> None:
        answers.append(await calls.ask(model, question()))

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(ask)
        await gate.started.wait()
        gate.open.set()
    assert len(model.asked) == 1
    assert [a.value for a in answers] == [7] * 20
    assert sorted(a.cached for a in answers) == [False] + [True] * 19


async def test_a_failure_reaches_all_who_wait_and_the_next_asks_anew() -> None:
    gate = Gate("no number")
    model, calls, failures = ScriptedAnswerer(gate), StructuredCall(), []

    async def ask() -> None:
        try:
            await calls.ask(model, question())
        except DependencyMalformed as exc:
            failures.append(exc.kind)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(ask)
        await gate.started.wait()
        gate.open.set()
    assert failures == ["malformed"] * 3
    gate.text = "8"
    assert (await calls.ask(model, question())).value == 8


async def test_an_asker_that_leaves_takes_nothing_from_the_others() -> None:
    """Also when it is the one whose question started the call."""
    gate = Gate()
    model, calls, answers = ScriptedAnswerer(gate), StructuredCall(), []
    first = anyio.CancelScope()

    async def ask(scope: anyio.CancelScope) -> None:
        with scope:
            answers.append(await calls.ask(model, question()))

    async with anyio.create_task_group() as group:
        group.start_soon(ask, first)
        await gate.started.wait()
        group.start_soon(ask, anyio.CancelScope())
        await anyio.wait_all_tasks_blocked()
        first.cancel()
        await anyio.wait_all_tasks_blocked()
        assert not gate.stopped
        gate.open.set()
    assert [a.value for a in answers] == [7]


async def test_when_the_last_asker_leaves_the_call_stops_and_the_next_starts_anew() -> None:
    gate = Gate()
    model, calls = ScriptedAnswerer(gate), StructuredCall()
    async with anyio.create_task_group() as group:
        group.start_soon(calls.ask, model, question())
        await gate.started.wait()
        group.cancel_scope.cancel()
    await anyio.wait_all_tasks_blocked()
    assert gate.stopped
    gate.open.set()
    assert (await calls.ask(model, question())).value == 7
    assert len(model.asked) == 2


class DictStore:
    """Keeps answers in a dictionary."""

    def __init__(self) -> None:
        self.kept: dict[str, KeptAnswer] = {}

    async def get(self, key: str) -> KeptAnswer | None:
        return self.kept.get(key)

    async def put(self, key: str, answer: KeptAnswer) -> None:
        self.kept[key] = answer


async def test_a_store_hands_answers_to_the_next_process() -> None:
    model, store = ScriptedAnswerer(lambda _: "7"), DictStore()
    await StructuredCall(store=store).ask(model, question())
    answer = await StructuredCall(store=store).ask(model, question())
    assert (answer.value, answer.cached, len(model.asked)) == (7, True, 1)


async def test_what_can_not_be_read_does_not_reach_the_store() -> None:
    store = DictStore()
    with pytest.raises(DependencyMalformed):
        await StructuredCall(store=store).ask(ScriptedAnswerer(lambda _: "x"), question())
    assert store.kept == {}


async def test_every_call_leaves_a_record_without_any_text() -> None:
    records: list[CallRecord] = []
    script = ["secret reply", "7"]
    model, calls = ScriptedAnswerer(lambda _: script.pop(0)), StructuredCall(record=records.append)
    with pytest.raises(DependencyMalformed):
        await calls.ask(model, question("secret data"))
    for _ in range(2):
        await calls.ask(model, question("secret data"))
    assert [(r.outcome, r.cached, r.input_tokens) for r in records] == [
        ("malformed", False, 100),
        ("answered", False, 100),
        ("answered", True, 100),
    ]
    assert {r.question for r in records} == {records[0].question}
    assert (records[0].prompt, records[0].prompt_version, records[0].model) == ("test", "1", "scripted:1")
    assert "secret" not in repr(records)
