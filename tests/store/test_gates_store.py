"""Comparisons, gates and baselines, the same on SQLite and PostgreSQL."""

import json
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import select, update

from app.errors import BadRequest, Conflict, Unprocessable
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
    """Whatever another policy, or a gate that comes to no verdict, says afterwards."""
    run = await world.run(examples(60, wrong=range(30)))
    strict = GateRequest(policy=POLICY.replace("0.5", "0.9"))
    other = await world.run(examples(60, wrong=range(31)))
    await world.gates.gate(run, strict)
    for easy in ("0.2", "0.5"):
        await world.gates.gate(run, GateRequest(policy=POLICY.replace("0.5", easy)))
        with pytest.raises(Conflict, match=r"blocked.*sha256:"):
            await world.gates.move_baseline("main", run)
    made = await world.gates.compare(other, run)
    assert any("block stands" in warning for warning in made.warnings)


async def test_a_block_is_taken_back_by_the_policy_that_made_it(world: World) -> None:
    """A fall behind one baseline, held again against another one after that was moved."""
    good, bad = await world.run(examples(400)), await world.run(examples(400, wrong=range(100)))
    run = await world.run(examples(400, wrong=range(101)))
    policy = "[[regressions]]\ntolerated = 0.1\n"
    await world.gates.gate(run, GateRequest(policy=policy, baseline=good))
    await world.gates.gate(run, GateRequest(policy=policy))  # nothing to compare with: no verdict
    with pytest.raises(Conflict, match="blocked"):
        await world.gates.move_baseline("main", run)
    await world.gates.gate(run, GateRequest(policy=policy, baseline=bad))
    assert (await world.gates.move_baseline("main", run)).run_id == run


async def test_no_run_is_held_against_itself(world: World) -> None:
    """Not by its id, and not by a name that points at it."""
    run = await world.run(examples(60))
    await world.gates.move_baseline("main", run)
    for baseline in (run, "main", None):
        with pytest.raises(Unprocessable, match="itself"):
            await world.gates.gate(run, GateRequest(policy='baseline = "main"\n' + POLICY, baseline=baseline))


async def test_repeats_are_answers_and_an_example_counts_once(world: World) -> None:
    """Forty examples asked three times are forty."""
    run = await world.run(examples(40, wrong=range(4)), repeats=3)
    text = "min_n = 100\n[[floors]]\nmetric = 'accuracy'\nmin = 0.5\n[[floors]]\nmetric = 'macro.f1'\nmin = 0.5\n"
    text += "[[floors]]\nmetric = 'recall'\nlabel = 'high'\nmin = 0.5\n"
    text += "[[floors]]\nmetric = 'accuracy'\nmin = 0.5\nslice = { path = '/input/kind' }\n"
    rules = {rule["name"]: rule for rule in json.loads(await world.gates.gate(run, GateRequest(policy=text)))["rules"]}
    sizes = {name: rule["n"] for name, rule in rules.items()}
    assert sizes == {
        "run is over": 40,
        "every example has a record": 40,
        "failed examples": 40,
        "example ids are unique": 40,
        "floor accuracy": 40,
        "floor macro.f1": 40,
        "floor recall of high": 20,
        "floor accuracy where /input/kind is a": 20,
        "floor accuracy where /input/kind is b": 20,
    }
    assert rules["floor accuracy"]["status"] == "INCONCLUSIVE"
    assert rules["floor accuracy"]["reason"].startswith("40 scored examples")


@pytest.mark.parametrize("repeats", [1, 3])
async def test_gate_and_report_give_one_interval(world: World, repeats: int) -> None:
    """The same figure of the same records, to the last digit, in both readings of the labels."""
    run = await world.run(examples(200, wrong=range(0, 200, 9)), repeats=repeats)
    figures = ("macro.f1", "macro.precision", "weighted.f1", "balanced_accuracy", "kappa", "matthews")
    floors = "".join(
        f"[[floors]]\nmetric = '{name}'\nmin = 0.1\nlabels = '{labels}'\n"
        for name in figures
        for labels in ("strict", "binary")
    )
    floors += "[[floors]]\nmetric = 'f1'\nlabel = 'high'\nmin = 0.1\n[[floors]]\nmetric = 'accuracy'\nmin = 0.1\n"
    rules = {one["name"]: one for one in json.loads(await world.gates.gate(run, GateRequest(policy=floors)))["rules"]}
    report = (await world.runs.report(run, binary=True)).model_dump(mode="json")
    for suffix, scores in (("", report), (" (binary)", report["binary"])):
        for name in figures:
            kind, _, which = name.partition(".")
            said = scores["intervals"][kind][which] if which else scores["intervals"][kind]
            assert rules[f"floor {name}{suffix}"]["interval"] == said
    ends = report["intervals"]
    accuracy = (ends["accuracy_clustered"] or {"interval": ends["accuracy"]})["interval"]
    assert rules["floor accuracy"]["interval"] == accuracy
    of_label = next(one for one in report["intervals"]["per_label"] if one["label"] == "high")
    assert rules["floor f1 of high"]["interval"] == of_label["f1"]
