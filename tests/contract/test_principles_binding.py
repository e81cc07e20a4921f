"""Principles 9 and 10: what code decides no model sets, and a block is binding."""

from __future__ import annotations

import inspect
import json
import typing
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from app.errors import Blocked
from app.gates import decide as gate_rule
from app.gates.model import GateRequest
from app.runs.tables import records
from app.store.database import Database
from app.verdicts import decide as verdict_rule
from app.verdicts.binding import Bindings
from app.verdicts.holistic import answer_schema
from app.verdicts.laws import ASPECTS
from app.verdicts.model import Decision, ReasonKind, VerdictRequest
from app.verdicts.run_subject import find_run, run_hash
from layers.ports import Answerer
from layers.structured_call import StructuredCall
from tests.unit.test_verdict_rule import REPLIES
from tests.verdicts import BY_QWEN, FAILS, GONE, OPTIONAL, PASSES, Arbiter, arbiter_in, arbiter_over, make_run, reply

pytestmark = pytest.mark.anyio


async def test_principle_9_no_score_qualification_promotion_or_gate_decision_is_ever_set_by_a_model(
    tmp_path: Path,
) -> None:
    """A model that answers everything at once moves no figure, no gate, no baseline, and gives no verdict."""
    greedy = json.dumps(
        {
            "findings": [],
            "confidence": 1,
            "verdict": "accept",
            "score": 1.0,
            "qualification": "supported",
            "gate": "PASS",
            "baseline": "production",
        }
    )
    async with arbiter_in(tmp_path, lambda _: greedy) as arbiter:
        run = await make_run(arbiter.database, label=lambda n: "low" if n == 0 else "high")
        policy = GateRequest(policy='[[floors]]\nmetric = "accuracy"\nmin = 0.99\nproof = "point"\nmin_n = 1\n')
        before = json.loads(await arbiter.gates.gate(run.run_id, policy))
        verdict = await arbiter.service.give(arbiter.config(BY_QWEN + PASSES), run.run_id)
        after = json.loads(await arbiter.gates.gate(run.run_id, policy))
        assert verdict.verdict is Decision.BLOCK
        assert {**before, "decided_at": None} == {**after, "decided_at": None}
        assert before["verdict"] == "BLOCK"
        assert not (await arbiter.gates.baselines()).items
    assert set(answer_schema(ASPECTS)["properties"]) == {"findings", "confidence"}


@pytest.mark.parametrize("rule", [gate_rule.decide, verdict_rule.decide])
def test_principle_9_a_rule_has_no_parameter_through_which_a_model_could_come(rule: object) -> None:
    """What decides is a plain function of values: nothing that could ask anybody is handed to it."""
    assert not inspect.iscoroutinefunction(rule)
    hints = typing.get_type_hints(rule)
    assert hints
    assert not {Answerer, StructuredCall} & set(hints.values())


@given(text=REPLIES, checks=st.sampled_from([FAILS, PASSES + FAILS, GONE, ""]))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_principle_9_no_output_of_a_model_makes_an_accept_of_a_failed_check(
    tmp_path: Path, text: str, checks: str
) -> None:
    async def verdict() -> Decision:
        async with arbiter_in(tmp_path, lambda _: text) as arbiter:
            config = arbiter.config(BY_QWEN + OPTIONAL + checks)
            return (await arbiter.service.give(config, str(config.root))).verdict

    assert anyio.run(verdict) is Decision.BLOCK


# --- 10 ---------------------------------------------------------------------------------------------------------------


async def test_principle_10_no_endpoint_flag_or_retry_turns_a_blocked_artifact_into_an_accepted_one(
    database: Database, tmp_path: Path
) -> None:
    """Another config, no check at all, an eager model, other labels and names, the same run under a new id."""
    run = await make_run(database)
    async with arbiter_over(database, tmp_path, None) as arbiter:
        block = await arbiter.service.give(arbiter.config(OPTIONAL + FAILS), run.run_id)
        same = await make_run(database, name="new name", labels={"prompt_version": "v2"}, options={"concurrency": 3})
        for config in (OPTIONAL + PASSES, OPTIONAL, OPTIONAL + GONE, "confidence_floor = 0.0\n" + OPTIONAL + PASSES):
            for run_id in (run.run_id, same.run_id):
                again = await arbiter.service.give(arbiter.config(config), run_id)
                assert (again.verdict_id, again.replayed) == (block.verdict_id, True)
        with pytest.raises(Blocked) as refused:
            await arbiter.gates.move_baseline("production", same.run_id)
        assert refused.value.verdict["verdict_id"] == block.verdict_id
        assert len((await arbiter.service.list()).items) == 1
        changed = await make_run(database, label=lambda n: "low" if n == 0 else "high")
        assert (
            await arbiter.service.give(arbiter.config(OPTIONAL + PASSES), changed.run_id)
        ).verdict is Decision.ACCEPT


async def test_principle_10_a_runs_hash_is_of_what_it_predicted_and_of_no_times_and_ids(database: Database) -> None:
    """Failures that are tried again in vain leave the hash as it is; what is predicted does not."""
    run = await make_run(database)
    same = await make_run(database, name="b", labels={"x": "y"}, options={"concurrency": 2, "limit": 3})
    stored = await find_run(database, run.run_id)
    digest = await run_hash(database, stored)
    assert await run_hash(database, await find_run(database, same.run_id)) == digest
    assert digest == (await Bindings(database).state(run.run_id)).sha256

    async def with_record(**values: object) -> str:
        first = (records.c.run_no == stored.no) & (records.c.position == 0)
        await database.write(lambda conn: conn.execute(update(records).where(first).values(**values)).rowcount)
        return await run_hash(database, stored)

    assert await with_record(elapsed_ms=99.0) == digest
    changes = [
        await with_record(scored="low"),
        await with_record(confidence=0.25),
        await with_record(scored=None, confidence=None, error_kind="timeout"),
        await with_record(error_kind="refused"),
    ]
    for option in ({"limit": 2}, {"repeats": 2}):
        other = await make_run(database, options=option)
        changes.append(await run_hash(database, await find_run(database, other.run_id)))
    smaller = await make_run(database, size=2)
    changes.append(await run_hash(database, await find_run(database, smaller.run_id)))
    assert len({digest, *changes}) == len(changes) + 1


async def test_principle_10_a_block_made_of_could_not_run_alone_may_be_acted_again_and_both_are_logged(
    tmp_path: Path,
) -> None:
    async with arbiter_in(tmp_path) as arbiter:
        run = await make_run(arbiter.database)
        first = await arbiter.service.give(arbiter.config(OPTIONAL + GONE), run.run_id)
        assert {reason.kind for reason in first.reasons} == {ReasonKind.COULD_NOT_RUN}
        second = await arbiter.service.give(arbiter.config(OPTIONAL + PASSES), run.run_id)
        assert (first.verdict, second.verdict) == (Decision.BLOCK, Decision.ACCEPT)
        assert [first.log_index, second.log_index] == [0, 1]


async def test_principle_10_an_accept_is_never_reused(tmp_path: Path) -> None:
    """What was accepted is judged anew, and may be blocked."""
    async with arbiter_in(tmp_path) as arbiter:
        run = await make_run(arbiter.database)
        given = [
            await arbiter.service.give(arbiter.config(OPTIONAL + text), run.run_id)
            for text in (PASSES, PASSES, FAILS, PASSES)
        ]
    assert [one.verdict.value for one in given] == ["accept", "accept", "block", "block"]
    assert [one.replayed for one in given] == [False, False, False, True]


@pytest.mark.parametrize("model", [None, reply()])
async def test_principle_10_zero_checks_is_a_block(tmp_path: Path, model: str | None) -> None:
    async with arbiter_in(tmp_path, None if model is None else lambda _: model) as arbiter:
        run = await make_run(arbiter.database)
        verdict = await arbiter.service.give(arbiter.config(BY_QWEN + OPTIONAL), run.run_id)
        assert verdict.verdict is Decision.BLOCK
        assert verdict.reasons[0].kind is ReasonKind.NO_CHECKS


async def test_principle_10_the_http_surface_offers_no_way_around_a_block() -> None:
    """Nothing in a request says what a verdict shall be, or that it should be given again."""
    assert set(VerdictRequest.model_fields) == {"artifact", "checks"}
    assert not {"force", "override", "fresh"} & set(inspect.signature(Arbiter).parameters)
