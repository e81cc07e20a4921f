"""The same prediction again: one stored answer, mended where it was degraded."""

from __future__ import annotations

import asyncio
from datetime import datetime

import anyio
import pytest

from app.errors import NotFound, Overloaded
from app.evaluation.model import OnlineScoringResult
from app.evaluation.service import EvaluationFilter, Options
from app.store.database import Database
from layers.errors import CircuitOpen, DependencyUnavailable
from layers.model import InstrumentPath, JudgeVerdict, LayerName, NarrativeGroundingResult
from layers.ports import LayerInput
from tests.evaluations import AGREED, FLAGGED, Stage, build_service, gives, judged, raises, request

pytestmark = pytest.mark.anyio

H, G, D, C, J = LayerName
DOWN = DependencyUnavailable("x", "refused", "down")


async def count(service) -> int:
    return len((await service.list(EvaluationFilter(), 500)).items)


@pytest.mark.parametrize("fields", [{}, FLAGGED], ids=["unflagged", "flagged"])
async def test_the_same_content_gets_its_stored_answer(database: Database, fields: dict) -> None:
    """It says `replayed`, differs in nothing else, and no costly layer is asked twice."""
    stage = Stage()
    service = build_service(database, stage)
    first = await service.evaluate(request(**fields))
    again = await service.evaluate(request(**fields))
    assert again == first.model_copy(update={"replayed": True})
    assert stage.times(J) == (1 if fields else 0)
    assert await count(service) == 1


async def test_the_same_content_in_another_order_is_the_same(database: Database) -> None:
    """The order of keys does not matter, any value does."""
    service = build_service(database, Stage())
    first = await service.evaluate(request(raw_output={"a": 1, "b": 2}))
    assert (await service.evaluate(request(raw_output={"b": 2, "a": 1}))).evaluation_id == first.evaluation_id
    for other in ({"a": 1, "b": 3}, {"a": 1, "b": 2.0}, {"a": 1, "b": "2"}):
        assert (await service.evaluate(request(raw_output=other))).evaluation_id != first.evaluation_id


async def test_other_content_of_the_same_id_is_a_new_evaluation(database: Database) -> None:
    """Both are listed under the prediction's id."""
    service = build_service(database, Stage())
    await service.evaluate(request(1, raw_output={"a": 1}))
    await service.evaluate(request(1, raw_output={"a": 2}))
    await service.evaluate(request(2))
    assert len((await service.list(EvaluationFilter(prediction_id="txn-1"))).items) == 2


@pytest.mark.parametrize("fields", [{}, FLAGGED], ids=["unflagged", "flagged"])
async def test_parallel_equal_posts_make_one_record(database: Database, fields: dict) -> None:
    """All get the same answer, one of them as its first."""
    stage = Stage()
    service = build_service(database, stage)
    answers = await asyncio.gather(*[service.evaluate_bytes(request(**fields)) for _ in range(30)])
    assert len({answer.evaluation_id for answer in answers}) == 1
    assert [answer.replayed for answer in answers].count(False) == 1
    assert stage.times(J) == (1 if fields else 0)
    assert await count(service) == 1


@pytest.mark.parametrize("fields", [{}, FLAGGED], ids=["unflagged", "flagged"])
async def test_parallel_equal_posts_to_several_processes_make_one_record(database: Database, fields: dict) -> None:
    """Services that share only the database agree as well."""
    services = [build_service(database, Stage()) for _ in range(5)]
    answers = await asyncio.gather(*[service.evaluate_bytes(request(**fields)) for service in services])
    assert len({answer.evaluation_id for answer in answers}) == 1
    assert [answer.replayed for answer in answers].count(False) == 1
    assert len({answer.body.replace(b'"replayed":true', b'"replayed":false') for answer in answers}) == 1


async def test_a_caller_that_hangs_up_does_not_spoil_the_one_who_waits_for_the_same(database: Database) -> None:
    """The next one takes over."""
    started = anyio.Event()
    first_call = [True]

    async def slow_once(_item: LayerInput) -> JudgeVerdict:
        if first_call and first_call.pop():
            started.set()
            await anyio.sleep_forever()
        return judged()

    service = build_service(database, Stage({J: slow_once}))
    first = asyncio.create_task(service.evaluate(request(**FLAGGED)))
    await started.wait()
    second = asyncio.create_task(service.evaluate(request(**FLAGGED)))
    await asyncio.sleep(0)
    first.cancel()
    result = await second
    assert (result.replayed, result.decision) == (False, "judge_confirms")
    assert await count(service) == 1


@pytest.mark.parametrize("error", [DOWN, CircuitOpen("x"), KeyError("bug")], ids=["failed", "circuit open", "crashed"])
async def test_a_repeat_mends_what_had_failed(database: Database, error: Exception) -> None:
    """The layer concerned runs again, the others keep their findings, and both revisions can be read."""
    stage = Stage({J: raises(error)})
    service = build_service(database, stage)
    first = await service.evaluate(request(**FLAGGED))
    assert (first.degraded, first.decision) == (True, "panel_and_neighbors_confirm")
    stage.behave[J] = gives(judged("low"))
    second = await service.evaluate(request(**FLAGGED))
    assert (second.evaluation_id, second.revision, second.replayed) == (first.evaluation_id, 2, False)
    assert (second.degraded, second.decision) == (False, "judge_overturns_far")
    assert (stage.times(D), stage.times(J)) == (1, 2)
    assert second.disagreement_result == AGREED
    assert await service.get(first.evaluation_id, 1) == first
    assert await service.get(first.evaluation_id) == await service.get(first.evaluation_id, 2) == second
    with pytest.raises(NotFound):
        await service.get(first.evaluation_id, 3)
    assert await count(service) == 1
    assert (await service.evaluate(request(**FLAGGED))).replayed


async def test_a_judge_chain_that_fell_back_is_tried_again(database: Database) -> None:
    """Heuristics in the judge's place are no second opinion."""
    fallback = JudgeVerdict(
        source=InstrumentPath.HEURISTICS_FALLBACK, verdict_label=None, agrees=None, confidence=None, reasoning=None
    )
    stage = Stage({J: gives(fallback)})
    service = build_service(database, stage)
    first = await service.evaluate(request(**FLAGGED))
    assert (first.degraded, first.instrument_path) == (True, "heuristics_fallback")
    stage.behave[J] = gives(judged())
    second = await service.evaluate(request(**FLAGGED))
    assert (second.revision, second.degraded, second.instrument_path) == (2, False, "ollama")


async def test_a_free_layer_that_had_failed_can_still_escalate(database: Database) -> None:
    """What it finds now is planned for anew."""
    stage = Stage({G: raises(DOWN)})
    service = build_service(database, stage)
    assert (await service.evaluate(request())).disposition == "inconclusive"
    stage.behave[G] = gives(NarrativeGroundingResult(ng_flagged=True, stage=3))
    second = await service.evaluate(request())
    assert (second.revision, second.escalated, stage.times(J)) == (2, True, 1)
    assert second.decision == "defect_stands"


async def test_what_is_merely_not_configured_is_not_tried_again(database: Database) -> None:
    """It would only end the same way."""
    service = build_service(database, Stage(absent=frozenset({D, C, J})))
    first = await service.evaluate(request(**FLAGGED))
    again = await service.evaluate(request(**FLAGGED))
    assert first.degraded
    assert (again.revision, again.replayed) == (1, True)


async def test_parallel_repeats_of_a_degraded_answer_make_one_revision(database: Database) -> None:
    """Also when they come over several processes."""
    stage = Stage({J: raises(DOWN)})
    services = [build_service(database, stage) for _ in range(3)]
    first = await services[0].evaluate(request(**FLAGGED))
    stage.behave[J] = gives(judged())
    answers = await asyncio.gather(*[service.evaluate(request(**FLAGGED)) for service in services for _ in range(3)])
    assert {(answer.evaluation_id, answer.revision) for answer in answers} == {(first.evaluation_id, 2)}
    assert [answer.replayed for answer in answers].count(False) == 1


async def test_fresh_evaluates_anew_and_is_what_later_repeats_get(database: Database) -> None:
    """Both records stay."""
    stage = Stage()
    service = build_service(database, stage)
    first = await service.evaluate(request(**FLAGGED))
    second = await service.evaluate(request(**FLAGGED), fresh=True)
    assert second.evaluation_id != first.evaluation_id
    assert (second.replayed, stage.times(J)) == (False, 2)
    assert (await service.evaluate(request(**FLAGGED))).evaluation_id == second.evaluation_id
    assert await count(service) == 2


async def test_a_content_first_posted_as_fresh_has_its_answer(database: Database) -> None:
    """A later post of it is a repeat."""
    service = build_service(database, Stage())
    first = await service.evaluate(request(), fresh=True)
    assert (await service.evaluate(request())).evaluation_id == first.evaluation_id


async def test_too_much_in_flight_is_refused_with_a_time_to_come_back(database: Database) -> None:
    """The bound is on evaluations under way; one that waits gets its turn when there is room."""
    go_on = anyio.Event()
    inside = anyio.Event()

    async def waits(_item: LayerInput) -> JudgeVerdict:
        inside.set()
        await go_on.wait()
        return judged()

    service = build_service(database, Stage({J: waits}), options=Options(max_in_flight=1))
    first = asyncio.create_task(service.evaluate(request(1, **FLAGGED)))
    await inside.wait()
    with pytest.raises(Overloaded) as refusal:
        await service.evaluate(request(2))
    assert refusal.value.retry_after > 0
    patient = [asyncio.create_task(service.evaluate_bytes(request(n), wait=True)) for n in range(3, 6)]
    await asyncio.sleep(0)
    patient.pop().cancel()
    go_on.set()
    await first
    assert len(await asyncio.gather(*patient)) == 2
    assert (await service.evaluate(request(9))).disposition == "pass"


async def test_the_list_is_paged_newest_first_and_filtered(database: Database) -> None:
    """Every filter holds, and pages neither repeat nor lose an item."""
    service = build_service(database, Stage(absent=frozenset({D, C, J})))
    made = [await service.evaluate(request(n, confidence=0.3 if n % 3 == 0 else 0.9)) for n in range(10)]

    async def ids(limit: int, **filters) -> list[str]:
        found, cursor = [], None
        while True:
            page = await service.list(EvaluationFilter(**filters), limit, cursor)
            assert len(page.items) <= limit
            found += [OnlineScoringResult.model_validate_json(item).evaluation_id for item in page.items]
            if (cursor := page.next_cursor) is None:
                return found

    newest_first = [result.evaluation_id for result in reversed(made)]
    assert await ids(3) == await ids(5) == await ids(500) == newest_first
    assert await ids(2, disposition="flag") == [newest_first[n] for n in (0, 3, 6, 9)]
    assert await ids(2, degraded=True) == await ids(2, disposition="flag")
    assert await ids(4, degraded=False) == await ids(4, disposition="pass")
    assert await ids(4, system="plain") == await ids(4, system="a\0b") == []
    since = made[7].created_at
    assert await ids(4, since=datetime.fromisoformat(since)) == newest_first[:3]
