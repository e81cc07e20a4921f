"""Comparisons, gates and baselines, the same on SQLite and PostgreSQL."""

import json
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import select, update

from app.errors import BadRequest, Conflict
from app.gates.baselines import MAX_HISTORY, BaselineStore
from app.gates.model import GateRequest
from app.gates.tables import gate_decisions, gate_policies
from app.runs.tables import dataset_examples
from app.store.database import Database
from layers.canonical import canonical_bytes, sha256_of
from tests.gates import World, example, examples, world_on

pytestmark = pytest.mark.anyio

POLICY = '[[floors]]\nmetric = "accuracy"\nmin = 0.5\n'


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    async with world_on(database) as made:
        yield made


async def test_runs_over_one_dataset_are_paired(world: World) -> None:
    rows = examples(60, wrong=range(6))
    one, other = await world.run(rows), await world.run(rows, limit=50)
    made = await world.gates.compare(one, other, slices=["/input/kind"])
    assert (made.pairs.n_paired, made.pairs.added.count, made.pairs.missing.count) == (50, 10, 0)
    assert (made.strict.both_right, made.strict.both_wrong) == (44, 6)
    assert sum(part.n for part in made.slices[0].values) == 50
    turned = await world.gates.compare(other, one)
    assert (turned.pairs.missing.count, turned.pairs.missing.ids[0]) == (10, "e50")


async def test_runs_over_different_datasets_are_paired_by_id(world: World) -> None:
    """Order, other examples and other content of the same example don't matter."""
    before = examples(40, wrong=range(4))
    after = examples(40, wrong=range(2, 12))[::-1][:-1]  # e0 is gone, the order is turned
    after.append(example("new", "low", "low"))
    after[5] = after[5].model_copy(update={"expected_label": "critical"})  # e34
    made = await world.gates.compare(await world.run(after), await world.run(before))
    assert (made.pairs.n_paired, made.strict.n) == (39, 38)
    assert made.pairs.missing.ids == ("e0",)
    assert made.pairs.added.ids == ("new",)
    assert made.pairs.relabelled.ids == ("e34",)
    assert (made.strict.corrected, made.pairs.corrected.ids) == (1, ("e1",))
    assert (made.strict.broke, set(made.pairs.broke.ids)) == (8, {f"e{n}" for n in range(4, 12)})


async def test_an_id_that_stands_twice_is_listed_and_not_compared(world: World) -> None:
    """No dataset is stored with one; a database that others wrote may hold it all the same, and then a gate blocks."""
    run = await world.run(examples(10))
    table = dataset_examples
    twice = update(table).where(table.c.example_id == "e3").values(example_id="e2")
    await world.database.write(lambda conn: conn.execute(twice).rowcount)
    made = await world.gates.compare(run, run)
    assert (made.pairs.duplicates.count, made.pairs.duplicates.ids, made.strict.n) == (1, ("e2",), 8)
    assert json.loads(await world.gates.gate(run, GateRequest(policy=POLICY)))["verdict"] == "BLOCK"


async def test_groups_and_axes_are_found_in_the_examples(world: World) -> None:
    """Keys of these names deeper inside make neither a group nor an axis."""
    plain = examples(10)
    plain[0] = plain[0].model_copy(update={"input": {"group": "no", "expected_labels": {"no": "no"}}})
    run = await world.run(plain)
    made = await world.gates.compare(run, run)
    assert (made.strict.grouped, made.axes) == (None, ())
    assert (await world.runs.report(run)).intervals.accuracy_clustered is None
    tied = [
        one.model_copy(update={"group": f"g{n // 2}", "expected_labels": {"risk": one.expected_label, "none": "x"}})
        for n, one in enumerate(examples(10))
    ]
    run = await world.run(tied)
    made = await world.gates.compare(run, run)
    assert made.strict.grouped.n_groups == 5
    assert [(one.axis, one.n, one.unscored.both) for one in made.axes] == [("none", 0, 10), ("risk", 10, 0)]
    assert (await world.runs.report(run)).intervals.resampling.n_units == 5


async def test_the_report_by_sums_is_the_report_by_walking(world: World) -> None:
    """Grouping in the database and looking at every example say the same."""
    rows = [*examples(50, wrong=range(0, 50, 7)), example("bad", "low", None)]
    run = await world.run(rows)
    summed = await world.runs.report(run, binary=True)
    walked = await world.runs.report(run, binary=True, slices=["/input/kind"])
    assert walked.calibration.brier_score == pytest.approx(summed.calibration.brier_score)
    same = {"slices": (), "calibration": None}
    assert walked.model_copy(update=same) == summed.model_copy(update=same)
    assert [(part.value, part.support) for part in walked.slices[0].values] == [("a", 26), ("b", 24)]
    assert walked.slices[0].n_without == 1


async def test_a_decision_is_stored_as_it_was_answered(world: World) -> None:
    """Canonical bytes, and the policy to the byte under its hash."""
    run = await world.run(examples(30))
    answered = await world.gates.gate(run, GateRequest(policy=POLICY))
    again = await world.gates.gate(run, GateRequest(policy=POLICY + "# another text\n"))
    rows = await world.database.read(
        lambda conn: conn.execute(select(gate_decisions).order_by(gate_decisions.c.decision_id)).all()
    )
    assert [row.decision for row in rows] == [answered, again]
    assert canonical_bytes(json.loads(answered)) == answered
    assert (rows[0].run_id, rows[0].verdict, rows[0].baseline_run_id) == (run, "PASS", None)
    policies = await world.database.read(lambda conn: conn.execute(select(gate_policies)).all())
    assert {row.policy_sha256 for row in policies} == {row.policy_sha256 for row in rows}
    assert all(row.policy_sha256 == sha256_of(row.policy) for row in policies)
    page = json.loads(await world.gates.decisions(run, limit=1))
    assert page["items"] == [json.loads(again)]
    page = json.loads(await world.gates.decisions(run, limit=1, cursor=page["next_cursor"]))
    assert (page["items"], page["next_cursor"]) == ([json.loads(answered)], None)
    with pytest.raises(BadRequest):
        await world.gates.decisions(run, cursor="nonsense")


async def test_the_same_policy_is_kept_once(world: World) -> None:
    run = await world.run(examples(30))
    for _ in range(3):
        await world.gates.gate(run, GateRequest(policy=POLICY))
    assert len(await world.database.read(lambda conn: conn.execute(select(gate_policies)).all())) == 1


async def test_a_baseline_is_moved_with_its_history(world: World) -> None:
    one, other = await world.run(examples(30)), await world.run(examples(30, wrong=[1]))
    for run in (one, one, other, one):
        made = await world.gates.move_baseline("main", run)
    assert (made.run_id, made.n_moves) == (one, 3)
    assert [move.run_id for move in made.history] == [one, other, one]
    await world.gates.move_baseline("also", other)
    page = await world.gates.baselines(limit=1)
    assert [item.name for item in page.items] == ["also"]
    page = await world.gates.baselines(limit=1, cursor=page.next_cursor)
    assert [(item.name, item.run_id, item.n_moves) for item in page.items] == [("main", one, 3)]
    assert page.next_cursor is None
    assert (await world.gates.compare(other, "main")).baseline_run_id == one


async def test_a_long_history_shows_its_end(database: Database) -> None:
    store = BaselineStore(database)
    for n in range(MAX_HISTORY + 3):
        await store.move("main", f"run-{n}")
    made = await store.find("main")
    assert (made.n_moves, len(made.history)) == (MAX_HISTORY + 3, MAX_HISTORY)
    assert made.history[0].run_id == f"run-{MAX_HISTORY + 2}"


async def test_a_run_that_a_gate_blocked_is_no_baseline(world: World) -> None:
    """Until a later gate says otherwise."""
    run = await world.run(examples(60, wrong=range(30)))
    await world.gates.gate(run, GateRequest(policy=POLICY.replace("0.5", "0.9")))
    with pytest.raises(Conflict, match="blocked"):
        await world.gates.move_baseline("main", run)
    await world.gates.gate(run, GateRequest(policy=POLICY.replace("0.5", "0.2")))
    assert (await world.gates.move_baseline("main", run)).run_id == run
