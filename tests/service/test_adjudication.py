"""Adjudication as callers see it: what is stored, what is asked, what scores do, and what no model can do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.adjudication.model import AdjudicationRequest, NewAssertion, NewEvidence, RecordFilters
from app.errors import NotFound, Unavailable, Unprocessable
from app.settings import StoreSettings
from app.store.database import Database
from layers.adjudication_rules import UNLINKED, Qualification, Thresholds, standing_of
from layers.errors import DependencyUnavailable
from tests.adjudications import SECRET, adjudicate, build, by_evidence, reply, says, show, state
from tests.unit.answerers import ScriptedAnswerer
from tests.unit.test_adjudication import ANY_REPLY

pytestmark = pytest.mark.anyio
AUTHOR = {"kind": "person", "name": "ann"}


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/store.db"))
    yield opened
    await opened.close()


async def records_of(service: Any, **filters: Any) -> list[Any]:
    page = await service.records(RecordFilters(**filters), limit=100)
    return list(page.items)[::-1]


# --- scores -----------------------------------------------------------------------------------------------------------


async def test_two_sources_that_support_make_a_hypothesis_supported(database: Database) -> None:
    service = build(database, says(reply(relevance=100, confidence=100)))
    hypothesis, pieces = await state(service), [await show(service, "a"), await show(service, "b")]
    assert hypothesis.standing == UNLINKED
    run = await adjudicate(service, [hypothesis], pieces)
    assert (run.status, run.n_pairs, run.n_done, run.outcomes) == ("done", 2, 2, {"interpreted": 2})
    now = await service.hypothesis(hypothesis.hypothesis_id)
    assert (now.standing.score, now.standing.qualification) == (0.75, Qualification.SUPPORTED)
    assert set(now.links or {}) == {piece.evidence_id for piece in pieces}
    page = await service.hypotheses(Qualification.SUPPORTED)
    assert [each.hypothesis_id for each in page.items] == [hypothesis.hypothesis_id]


async def test_a_transition_names_the_record_that_caused_it_before_and_after(database: Database) -> None:
    service = build(database, ScriptedAnswerer(by_evidence({"for": reply(), "against": reply("contradicts")})))
    hypothesis = await state(service)
    await adjudicate(service, [hypothesis], [await show(service, "for"), await show(service, "against")])
    await adjudicate(service, [hypothesis], [await show(service, "beside")])
    moves = (await service.transitions(hypothesis.hypothesis_id)).items
    records = await records_of(service)
    assert [move.caused_by for move in moves] == [(record.record_id,) for record in records[:2]]
    assert moves[0].before == UNLINKED
    assert moves[0].after == moves[1].before
    assert moves[1].after == (await service.hypothesis(hypothesis.hypothesis_id)).standing
    assert [record.changed for record in records] == [True, True, False]
    first = await service.transitions(hypothesis.hypothesis_id, limit=1)
    rest = await service.transitions(hypothesis.hypothesis_id, limit=1, cursor=first.next_cursor)
    assert (*first.items, *rest.items) == moves


async def test_neutral_removes_a_link_and_nothing_else_does(database: Database) -> None:
    """`uncertain`, failures, and what is below a threshold keep what was accepted before."""
    answers: list[str | Exception] = [
        reply(),
        reply("uncertain"),
        "prose",
        DependencyUnavailable("x", "timeout"),
        reply("contradicts", relevance=59),
        reply("neutral", confidence=69),
        reply("neutral"),
    ]
    hypothesis_id, linked = "", []
    for number, answer in enumerate(answers):
        # another threshold below which nothing is filtered is another configuration, so nothing is reused
        service = build(database, says(answer), thresholds=Thresholds(prefilter_similarity=number / 100))
        hypothesis = await state(service)
        await adjudicate(service, [hypothesis], [await show(service, "a")])
        hypothesis_id = hypothesis.hypothesis_id
        linked.append(bool((await service.hypothesis(hypothesis_id)).links))
    assert linked == [True] * 6 + [False]
    assert (await service.hypothesis(hypothesis_id)).standing == UNLINKED


async def test_a_changed_mind_replaces_the_link(database: Database) -> None:
    for number, relation in enumerate(["supports", "contradicts"]):
        service = build(database, says(reply(relation)), thresholds=Thresholds(prefilter_similarity=number / 100))
        hypothesis = await state(service)
        await adjudicate(service, [hypothesis], [await show(service, "a")])
    (link,) = ((await service.hypothesis(hypothesis.hypothesis_id)).links or {}).values()
    assert link.relation == "contradicts"


VALID = st.builds(
    reply,
    st.sampled_from(["supports", "contradicts", "neutral", "uncertain"]),
    relevance=st.integers(0, 100),
    confidence=st.integers(0, 100),
)
NUMBERS = count()


@given(replies=st.lists(ANY_REPLY | VALID, min_size=1, max_size=6))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_no_output_changes_a_score_but_through_an_accepted_link(database: Database, replies: list[str]) -> None:
    """Whatever a model writes, the score is the formula over links that stand in the records; nothing else moves."""
    left, number = iter(replies), next(NUMBERS)
    service = build(database, ScriptedAnswerer(lambda _: next(left)), concurrency=1)
    hypothesis = await state(service, f"h{number}")
    others = (await service.hypotheses(limit=500)).items[1:]
    await adjudicate(service, [hypothesis], [await show(service, f"{number} {n}") for n in range(len(replies))])
    now = await service.hypothesis(hypothesis.hypothesis_id)
    records = await records_of(service, hypothesis_id=hypothesis.hypothesis_id)
    linking = [each for each in records if each.effect == "link"]
    assert set(now.links or {}) == {each.evidence_id for each in linking}
    assert all(each.interpretation.relevance >= 60 and each.interpretation.confidence >= 70 for each in linking)
    assert now.standing == standing_of((now.links or {}).values())
    moves = (await service.transitions(hypothesis.hypothesis_id)).items
    assert {cause for move in moves for cause in move.caused_by} <= {each.record_id for each in linking}
    assert (moves[-1].after if moves else UNLINKED) == now.standing
    assert (await service.hypotheses(limit=500)).items[1:] == others


async def test_the_order_of_arrival_changes_nothing(tmp_path: Path) -> None:
    ends = []
    answers = {"one": reply(), "two": reply("contradicts", relevance=77), "three": reply(confidence=81)}
    for order in (["one", "two", "three"], ["three", "one", "two"]):
        opened = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/{order[0]}.db"))
        service = build(opened, ScriptedAnswerer(by_evidence(answers)), concurrency=1)
        hypothesis = await state(service)
        await adjudicate(service, [hypothesis], [await show(service, text) for text in order])
        ends.append((await service.hypothesis(hypothesis.hypothesis_id)).standing)
        await opened.close()
    assert ends[0] == ends[1]


# --- reuse ------------------------------------------------------------------------------------------------------------


async def test_a_finished_adjudication_is_reused_whatever_the_caller_expects_now(database: Database) -> None:
    model = says(reply())
    service = build(database, model)
    hypothesis, piece = await state(service), await show(service, "a")
    await adjudicate(service, [hypothesis], [piece])
    await adjudicate(service, [hypothesis], [piece], suggested_relation="contradicts", objective="find the opposite")
    await adjudicate(service, [hypothesis], [piece])
    first, second, third = await records_of(service)
    assert len(model.asked) == 1
    assert third.reused_from == first.record_id, "the record that a model made, not one that stood for it"
    assert (second.reused_from, second.turn, second.changed) == (first.record_id, 2, False)
    assert second.interpretation == first.interpretation


async def test_another_model_or_threshold_is_another_question(database: Database) -> None:
    for identity, thresholds in (("a", Thresholds()), ("b", Thresholds()), ("b", Thresholds(min_relevance=61))):
        model = ScriptedAnswerer(lambda _: reply(), identity=identity)
        service = build(database, model, thresholds=thresholds)
        await adjudicate(service, [await state(service)], [await show(service, "a")])
        assert len(model.asked) == 1


async def test_a_failure_is_tried_again_in_a_later_run_and_not_in_this_one(database: Database) -> None:
    down = [True]
    model = ScriptedAnswerer(lambda _: DependencyUnavailable("x", "timeout") if down[0] else reply())
    service = build(database, model)
    hypothesis, piece = await state(service), await show(service, "a")
    run = await adjudicate(service, [hypothesis], [piece])
    await service.drain()
    assert (run.outcomes, len(model.asked)) == ({"failed": 1}, 1)
    down[0] = False
    again = await adjudicate(service, [hypothesis], [piece])
    assert (again.outcomes, len(model.asked)) == ({"interpreted": 1}, 2)


async def test_with_every_model_down_nothing_that_was_accepted_is_lost(database: Database) -> None:
    """The safe state: failed records, one call for the whole run, the score as it was."""
    service = build(database, says(reply()))
    hypothesis = await state(service)
    await adjudicate(service, [hypothesis], [await show(service, "a")])
    before = (await service.hypothesis(hypothesis.hypothesis_id)).standing
    dead = says(DependencyUnavailable("x", "refused"))
    later = build(database, dead, thresholds=Thresholds(min_relevance=61))
    run = await adjudicate(
        later, [hypothesis], [await show(later, f"b{n}") for n in range(9)] + [await show(later, "a")]
    )
    assert (run.status, run.outcomes, len(dead.asked)) == ("done", {"failed": 10}, 1)
    assert (await later.hypothesis(hypothesis.hypothesis_id)).standing == before
    last = (await records_of(later, outcome="failed"))[-1]
    assert (last.fallback, last.attempts[0].outcome, last.effect) == ("refused", "skipped", "keep")


async def test_low_relevance_is_a_record_and_no_call(database: Database) -> None:
    class Apart:
        name, dimension = "apart", 2

        async def embed(self, _text: str, task: str) -> list[float]:
            return [1.0, 0.0] if task == "query" else [0.0, 1.0]

    model = says(reply())
    service = build(database, model, embedder=Apart())
    for _ in range(2):
        run = await adjudicate(service, [await state(service)], [await show(service, "a")])
        assert run.outcomes == {"low_relevance": 1}
    first, second = await records_of(service, outcome="low_relevance")
    assert (model.asked, first.similarity, second.reused_from) == ([], 0.0, first.record_id)


async def test_a_run_goes_on_after_a_restart_and_asks_nothing_twice(database: Database) -> None:
    """A process that dies in the middle leaves a run that the next one finishes."""
    reached, asked = anyio.Event(), []

    async def hang() -> str:
        reached.set()
        await anyio.sleep_forever()
        return ""

    def speak(prompt: Any) -> Any:
        asked.append(prompt)
        return reply() if len(asked) == 1 else hang()

    service = build(database, ScriptedAnswerer(speak), concurrency=1)
    pieces = [await show(service, text) for text in "abc"]
    hypothesis = await state(service)
    request = AdjudicationRequest(
        hypothesis_ids=(hypothesis.hypothesis_id,), evidence_ids=tuple(piece.evidence_id for piece in pieces)
    )
    run = await service.adjudicate(request)
    async with anyio.create_task_group() as group:
        group.start_soon(service.work)
        await reached.wait()
        group.cancel_scope.cancel()
    assert (await service.run(run.run_id)).status == "accepted"
    after = ScriptedAnswerer(lambda _: reply())
    heir = build(database, after)
    await heir.drain()
    assert ((await heir.run(run.run_id)).status, len(after.asked)) == ("done", 2)


# --- assertions -------------------------------------------------------------------------------------------------------


async def test_evidence_named_with_a_hypothesis_is_an_assertion_and_no_inference(database: Database) -> None:
    service = build(database, says(reply()))
    piece = await show(service, "a")
    named = [{"evidence_id": piece.evidence_id, "relation": "contradicts"}]
    made = await state(service, by=AUTHOR, evidence=named)
    (said,) = made.assertions or ()
    assert (said.relation, said.by.name, said.evidence_id) == ("contradicts", "ann", piece.evidence_id)
    assert (made.standing, made.links) == (UNLINKED, {})
    with pytest.raises(Unprocessable):
        await state(service, "Another.", evidence=named)


async def test_an_assertion_is_recorded_once_and_moves_no_score(database: Database) -> None:
    service = build(database, None)
    hypothesis, piece = await state(service), await show(service, "a")
    new = NewAssertion(evidence_id=piece.evidence_id, relation="supports", by={"kind": "system", "name": "s"})
    one, two = [await service.add_assertion(hypothesis.hypothesis_id, new) for _ in range(2)]
    assert one == two
    now = await service.hypothesis(hypothesis.hypothesis_id)
    assert (len(now.assertions or ()), now.standing) == (1, UNLINKED)
    with pytest.raises(NotFound):
        await service.add_assertion("01933d2c-0000-7000-8000-000000000000", new)


async def test_a_matching_hypothesis_keeps_the_relationships_there_are(database: Database) -> None:
    """It differs in case and blanks alone. What is merely similar is another one, without any."""
    service = build(database, says(reply()))
    first = await state(service, "It  rains.")
    await adjudicate(service, [first], [await show(service, "a")])
    same, similar = await state(service, "IT RAINS.", importance=99), await state(service, "It rains a lot.")
    assert (same.hypothesis_id, same.existing, same.importance, len(same.links or {})) == (
        first.hypothesis_id,
        True,
        50,
        1,
    )
    assert (similar.existing, similar.links, similar.standing) == (False, {}, UNLINKED)


async def test_the_same_evidence_counts_once(database: Database) -> None:
    service = build(database, says(reply()))
    one, same, other = (
        await show(service, "A fact.", "s"),
        await show(service, "a  FACT.", "S"),
        await show(service, "A fact.", "t"),
    )
    assert one == same
    assert other.evidence_id != one.evidence_id


# --- what is refused --------------------------------------------------------------------------------------------------


async def test_what_there_is_not_is_named(database: Database) -> None:
    service = build(database, says(reply()))
    unknown = "01933d2c-0000-7000-8000-000000000000"
    request = AdjudicationRequest(hypothesis_ids=(unknown,), evidence_ids=(unknown,))
    with pytest.raises(Unprocessable, match=unknown):
        await service.adjudicate(request)
    for ask in (service.hypothesis, service.evidence, service.run, service.record, service.transitions):
        with pytest.raises(NotFound):
            await ask(unknown)


async def test_without_a_model_everything_but_asking_works(database: Database) -> None:
    service = build(database, None)
    hypothesis, piece = await state(service), await show(service, "a")
    request = AdjudicationRequest(hypothesis_ids=(hypothesis.hypothesis_id,), evidence_ids=(piece.evidence_id,))
    with pytest.raises(Unavailable, match="OLLAMA_JUDGE_HOST"):
        await service.adjudicate(request)


async def test_a_run_has_a_bound(database: Database) -> None:
    service = build(database, says(reply()))
    pieces = [await show(service, f"e{n}") for n in range(101)]
    with pytest.raises(Unprocessable, match="at most 100 pairs"):
        await adjudicate(service, [await state(service)], pieces)


# --- records and secrets ----------------------------------------------------------------------------------------------


async def test_a_record_says_all_that_it_rests_on(database: Database) -> None:
    second = ScriptedAnswerer(lambda _: reply("contradicts"), identity="second")
    service = build(database, says(reply(confidence=66)), escalation=second)
    hypothesis, piece = await state(service, importance=80), await show(service, "a")
    await adjudicate(service, [hypothesis], [piece], objective="support", suggested_relation="supports")
    (record,) = await records_of(service, hypothesis_id=hypothesis.hypothesis_id, evidence_id=piece.evidence_id)
    assert (record.model, record.provider, record.escalation, record.relation) == (
        "second",
        "ollama",
        "accepted",
        "contradicts",
    )
    assert [attempt.role for attempt in record.attempts] == ["adjudication", "escalation"]
    assert record.attempts[0].interpretation.confidence == 66
    assert record.attempts[0].reply_sha256.startswith("sha256:")
    assert (record.prompt.name, record.prompt.version, record.schema_version) == ("adjudication", "1", "1")
    assert record.context == {"objective": "support", "suggested_relation": "supports"}
    assert record.context_ids == (hypothesis.hypothesis_id, piece.evidence_id)
    assert await service.record(record.record_id) == record


async def test_no_secret_is_stored_anywhere(database: Database, tmp_path: Path) -> None:
    """Not in statements, evidence, metadata, context, nor in what a model repeats; escaped and nested neither."""
    escaped = "".join(f"\\u{ord(char):04x}" for char in SECRET)
    model = says(reply(rationale=f"because {SECRET} and {escaped} and sk-abcdefghijklmnop1234"))
    service = build(database, model)
    nested = json.dumps({"note": json.dumps({"password": "hunter2 and more"})})
    hypothesis = await state(service, f"The key {SECRET} leaked.", by={"kind": "person", "name": f"x {SECRET}"})
    piece = await service.add_evidence(
        NewEvidence(text=f"{nested} {escaped}", source=SECRET, metadata={"deep": [{"apiKey": "abc", "t": SECRET}]})
    )
    await adjudicate(service, [hypothesis], [piece], objective=f"Bearer {SECRET}1")
    assert SECRET not in model.asked[0].text
    export = b"".join(await service.snapshots.export())
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())  # noqa: ASYNC240
    for data in (export, stored):
        for secret in (SECRET, "hunter2", "sk-abcdefghijklmnop1234", escaped, escaped.replace("\\", "\\\\")):
            assert secret.encode() not in data


async def test_lists_go_on_where_their_cursor_says(database: Database) -> None:
    service = build(database, says(reply()))
    for number in range(3):
        await adjudicate(service, [await state(service, f"h{number}")], [await show(service, f"e{number}")])
    for ask in (service.hypotheses, service.evidence_page, service.runs):
        first = await ask(limit=2)
        rest = await ask(limit=2, cursor=first.next_cursor)
        assert (len(first.items), len(rest.items), rest.next_cursor) == (2, 1, None)
    first = await service.records(RecordFilters(), limit=2)
    rest = await service.records(RecordFilters(), limit=2, cursor=first.next_cursor)
    assert len({each.record_id for each in (*first.items, *rest.items)}) == 3
