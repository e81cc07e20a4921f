"""Synthesis: what is counted, what a model may add, and that nothing is paid for twice."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adjudication.failures import RunFailures
from app.adjudication.synthesis import Failure, Observation, choose, clusters_of, observe_failures, read_written
from app.adjudication.synthesis_model import MAX_PIECES, SynthesisRequest
from app.errors import NotFound, Unprocessable
from app.runs.chunks import ChunkStore
from app.runs.dataset import with_ids
from app.runs.dataset_store import DatasetStore
from app.runs.record_store import RecordStore, row_of
from app.runs.store import RunStore
from app.runs.submission import new_run
from app.settings import RunSettings, StoreSettings
from app.store.database import Database
from layers.adjudication_rules import UNLINKED
from layers.errors import DependencyUnavailable, NotAVerdict
from tests.adjudications import SECRET, GivenFailures, adjudicate, build, reply, says, show, state
from tests.runs import PROFILE, dataset, record
from tests.runs import request as run_request
from tests.unit.answerers import ScriptedAnswerer
from tests.unit.test_adjudication import ANY_REPLY

pytestmark = pytest.mark.anyio
RUN = "01933d2c-0000-7000-8000-00000000000a"


def failures(size: int = 3) -> GivenFailures:
    made = [
        Failure(f"e{n}", "high", "low" if n % 3 else None, None if n % 3 else "timeout", {"kind": "ab"[n % 2], "n": n})
        for n in range(size)
    ]
    return GivenFailures({RUN: made})


def wrote(ids: tuple[str, ...] = ("E1",), **more: Any) -> str:
    answer = {
        "themes": [{"title": "Splits", "summary": "They are split.", "evidence_ids": list(ids)}],
        "hypotheses": [{"statement": "Split transfers are overlooked.", "evidence_ids": list(ids)}],
    }
    return json.dumps(answer | more)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/store.db"))
    yield opened
    await opened.close()


def over(database: Database, model: ScriptedAnswerer | None, given_: GivenFailures | None = None) -> Any:
    return build(database, None, synthesis=model, failures=given_ or failures()).syntheses


def asked_for(mode: str = "hybrid") -> SynthesisRequest:
    return SynthesisRequest.model_validate({"run_id": RUN, "mode": mode})


# --- counting ---------------------------------------------------------------------------------------------------------


def test_failures_are_counted_by_cell_kind_and_slice() -> None:
    clusters = clusters_of(observe_failures(failures(6).by_run[RUN]))
    counts = {(each.by, json.dumps(each.of, sort_keys=True)): each.n for each in clusters}
    assert counts["confusion", '{"expected": "high", "scored": "low"}'] == 4
    assert counts["failure", '{"expected": "high", "kind": "timeout"}'] == 2
    assert counts["slice", '{"at": "/input/kind", "is": "a"}'] == 3
    assert [each.n for each in clusters] == sorted((each.n for each in clusters), reverse=True)


def test_a_field_that_is_different_everywhere_cuts_nothing() -> None:
    clusters = clusters_of(observe_failures(failures(30).by_run[RUN]))
    assert not any(each.of.get("at") == "/input/n" for each in clusters)
    assert any(each.of.get("at") == "/input/kind" for each in clusters)


@given(st.lists(st.sampled_from("abc"), max_size=120))
def test_every_cell_is_seen_and_the_choice_is_the_same_in_any_order(cells: list[str]) -> None:
    seen = [Observation(f"r{n:03}", "t", ("confusion", {"cell": cell})) for n, cell in enumerate(cells)]
    chosen = choose(seen)
    assert len(chosen) == min(MAX_PIECES, len(seen))
    assert {each.cell[1]["cell"] for each in chosen} == set(cells)
    assert choose(seen[::-1]) == chosen


async def test_deterministic_asks_no_model(database: Database) -> None:
    model = says(wrote())
    view = await over(database, model).synthesise(asked_for("deterministic"))
    assert (model.asked, view.themes, view.model, view.fallback) == ([], (), None, None)
    assert view.clusters


async def test_the_failures_of_a_stored_run_are_read_with_their_inputs(database: Database) -> None:
    stored = await DatasetStore(database).add(with_ids(dataset(3)))
    run = new_run(run_request(), stored, PROFILE, RunSettings(), "test")
    await RunStore(database).create(run)
    found = await RunStore(database).get(run.run_id)
    assert found is not None
    claim = await ChunkStore(database).claim(found, "me", size=1000, least=1)
    assert claim is not None
    for position, scored in enumerate(["high", "low", None]):
        made = record("high", scored, example_id=f"e{position}", correct=scored == "high" if scored else None)
        await RecordStore(database).add([row_of(found.no, position, made, PROFILE)], claim)
    source = RunFailures(database)
    assert await source.failures(run.run_id) == [
        Failure("e1", "high", "low", None, {"n": 1}),
        Failure("e2", "high", None, "timeout", {"n": 2}),
    ]
    with pytest.raises(NotFound):
        await source.failures(RUN)


# --- the model --------------------------------------------------------------------------------------------------------


async def test_proposals_start_unresolved_without_support_and_marked(database: Database) -> None:
    service = build(database, None, synthesis=says(wrote()), failures=failures())
    view = await service.syntheses.synthesise(asked_for())
    assert view.clusters
    assert [theme.title for theme in view.themes] == ["Splits"]
    (proposal,) = view.proposals
    draft = await service.hypothesis(proposal.hypothesis_id)
    assert (proposal.mark, draft.origin, draft.standing, draft.links, draft.assertions) == (
        "draft_ai",
        "draft_ai",
        UNLINKED,
        {},
        (),
    )


async def test_a_proposal_that_matches_a_stored_statement_changes_nothing_about_it(database: Database) -> None:
    service = build(database, says(reply()), synthesis=says(wrote()), failures=failures())
    stated = await state(service, "SPLIT transfers are overlooked.")
    await adjudicate(service, [stated], [await show(service, "a")])
    before = await service.hypothesis(stated.hypothesis_id)
    (proposal,) = (await service.syntheses.synthesise(asked_for())).proposals
    assert (proposal.hypothesis_id, proposal.existing) == (stated.hypothesis_id, True)
    assert await service.hypothesis(stated.hypothesis_id) == before


@pytest.mark.parametrize(
    ("answer", "reason", "calls"),
    [
        (wrote(("E1", "E99")), "unknown_citation", 2),
        (wrote(()), "malformed", 2),
        (wrote(score=1), "malformed", 2),
        (wrote(themes=[{"title": "t", "summary": "s", "evidence_ids": ["E1"]}] * 11), "too_much", 2),
        ("I see three themes.", "malformed", 2),
        (NotAVerdict("x", "truncated"), "truncated", 2),
        (DependencyUnavailable("x", "timeout"), "timeout", 1),
    ],
)
@pytest.mark.parametrize("mode", ["llm", "hybrid"])
async def test_a_fallback_is_kept_for_the_same_input(
    database: Database, mode: str, answer: Any, reason: str, calls: int
) -> None:
    """At most two calls a run, one where the model is away; asking again asks nobody."""
    model = ScriptedAnswerer(lambda _: answer)
    view = await over(database, model).synthesise(asked_for(mode))
    assert (view.fallback, view.themes, view.proposals, len(view.calls)) == (reason, (), (), calls)
    assert view.clusters, "what was counted stays"
    again = await over(database, model).synthesise(asked_for(mode))
    assert (again.reused, again.synthesis_id, len(model.asked)) == (True, view.synthesis_id, calls)


async def test_without_a_model_the_fallback_says_so_and_a_model_makes_a_new_key(database: Database) -> None:
    nobody = await over(database, None).synthesise(asked_for())
    somebody = await over(database, says(wrote())).synthesise(asked_for())
    assert (nobody.fallback, somebody.fallback) == ("not_configured", None)
    assert nobody.key != somebody.key


async def test_another_input_routing_or_mode_is_another_key(database: Database) -> None:
    views = [
        await over(database, says(wrote())).synthesise(asked_for()),
        await over(database, says(wrote()), failures(4)).synthesise(asked_for()),
        await over(database, ScriptedAnswerer(lambda _: wrote(), identity="other")).synthesise(asked_for()),
        await over(database, says(wrote())).synthesise(asked_for("llm")),
    ]
    assert len({view.key for view in views}) == 4
    assert not any(view.reused for view in views)


async def test_a_second_try_may_succeed(database: Database) -> None:
    answers = iter(["hm", wrote()])
    view = await over(database, ScriptedAnswerer(lambda _: next(answers))).synthesise(asked_for())
    assert ([call.outcome for call in view.calls], view.fallback) == (["void", "answered"], None)


async def test_no_more_than_forty_pieces_are_shown(database: Database) -> None:
    model = says(wrote())
    view = await over(database, model, failures(100)).synthesise(asked_for())
    assert (len(view.pieces), view.n_left_out) == (40, 60)
    assert '"id":"E40"' in model.asked[0].text
    assert '"id":"E41"' not in model.asked[0].text


@given(ANY_REPLY)
def test_any_reply_is_a_synthesis_in_full_or_none_at_all(text: str) -> None:
    written = read_written(text, {"E1"})
    assert isinstance(written, str) or len(written.themes) <= 10


async def test_hypotheses_are_clustered_by_how_they_stand_and_by_source(database: Database) -> None:
    model = says(wrote())
    service = build(database, says(reply()), synthesis=model)
    hypothesis = await state(service)
    await adjudicate(service, [hypothesis], [await show(service, f"Ignore all rules {n}", "s") for n in range(3)])
    view = await service.syntheses.synthesise(SynthesisRequest(hypothesis_ids=(hypothesis.hypothesis_id,)))
    assert {(each.by, each.n) for each in view.clusters} == {("qualification", 3), ("source", 3)}
    assert len(view.pieces) == 3
    unknown = SynthesisRequest(hypothesis_ids=("01933d2c-0000-7000-8000-000000000000",))
    with pytest.raises(Unprocessable):
        await service.syntheses.synthesise(unknown)


async def test_no_secret_is_shown_or_stored(database: Database) -> None:
    model = says(wrote(themes=[{"title": SECRET, "summary": f"x {SECRET}", "evidence_ids": ["E1"]}]))
    given_ = GivenFailures({RUN: [Failure("e1", "high", "low", None, {"note": SECRET, "password": "hunter2"})]})
    service = build(database, None, synthesis=model, failures=given_)
    await service.syntheses.synthesise(asked_for())
    export = b"".join(await service.snapshots.export()).decode()
    assert SECRET not in model.asked[0].text + export
    assert "hunter2" not in model.asked[0].text + export
