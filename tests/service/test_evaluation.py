"""One evaluation from its request to its stored answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from app.errors import NotFound, Unprocessable
from app.evaluation.model import OnlineScoringResult
from app.evaluation.service import EvaluationFilter, Options
from app.settings import StoreSettings
from app.store.database import Database
from layers.errors import CircuitOpen, ConfigurationError, DependencyUnavailable
from layers.evidence import EvidenceMap
from layers.model import (
    ConsistencyResult,
    EvidenceRole,
    HeuristicResult,
    LayerName,
    NarrativeGroundingResult,
    Neighbor,
    SkipReason,
)
from layers.ports import LayerInput, Skip
from tests.evaluations import DOUBT, FLAGGED, Stage, build_service, gives, hangs, raises, request

pytestmark = pytest.mark.anyio

H, G, D, C, J = LayerName
COSTLY = (D, C, J)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    """SQLite: what differs between databases is tested where the store is."""
    database = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/e.db"))
    yield database
    await database.close()


def statuses(result: OnlineScoringResult) -> dict[LayerName, str]:
    return {name: report.reason or report.status for name, report in result.layers.items()}


async def test_an_unflagged_item_asks_no_costly_layer(store: Database) -> None:
    """It passes, complete, with one entry for each layer there is."""
    stage = Stage()
    result = await build_service(store, stage, audit_rate=0.02).evaluate(request())
    assert stage.asked == [H, G]
    assert (result.disposition, result.decision, result.degraded) == ("pass", "nothing_flagged", False)
    assert (result.escalated, result.escalation_reasons, result.inclusion_probability) == (False, (), 0.02)
    assert statuses(result) == {H: "scored", G: "scored", D: "not_selected", C: "not_selected", J: "not_selected"}
    assert result.heuristic_result == HeuristicResult(flagged=False)
    assert result.judge_verdict is None
    assert (result.revision, result.replayed, result.layers[D].version) == (1, False, "7")


async def test_a_flagged_item_is_looked_at_by_every_layer_in_cost_order(store: Database) -> None:
    """The judge comes last and sees what the others found."""
    stage = Stage()
    result = await build_service(store, stage).evaluate(request(**FLAGGED))
    assert stage.asked[:2] == [H, G]
    assert set(stage.asked[2:4]) == {D, C}
    assert stage.asked[4:] == [J]
    assert set(stage.seen[J].earlier) == {H, G, D, C}
    assert (result.disposition, result.decision) == ("pass", "judge_confirms")
    assert result.escalation_reasons == ("heuristics:low_confidence",)
    assert (result.suspicion_score, result.inclusion_probability) == (0.7, 1.0)
    assert (result.assurance, result.instrument_path) == ("ANCHOR-WARRANTED", "ollama")


async def test_the_layers_of_a_tier_run_at_the_same_time(store: Database) -> None:
    """Each waits for the other: one after the other they would never end."""
    there = {D: anyio.Event(), C: anyio.Event()}

    def meets(me: LayerName, other: LayerName):
        async def layer(item: LayerInput):
            there[me].set()
            await there[other].wait()
            raise Skip(SkipReason.NO_INPUT)

        return layer

    stage = Stage({D: meets(D, C), C: meets(C, D)})
    with anyio.fail_after(5):
        result = await build_service(store, stage).evaluate(request(**FLAGGED))
    assert statuses(result)[D] == statuses(result)[C] == "no_input"


async def test_the_evidence_map_is_built_again_before_the_judge(store: Database) -> None:
    """What the providers and neighbours said can be pointed to by then; what was numbered keeps its number."""
    stage = Stage()
    await build_service(store, stage).evaluate(request(**FLAGGED))
    before, after = stage.seen[D].evidence, stage.seen[J].evidence
    assert {each.role for each in before} == {EvidenceRole.RAW_OUTPUT, EvidenceRole.FLAG}
    assert {each.role for each in after} == {EvidenceRole.RAW_OUTPUT, EvidenceRole.FLAG, EvidenceRole.PROVIDER}
    assert after[: len(before)] == before


async def test_what_the_map_lacks_is_told_to_the_judge(store: Database) -> None:
    """A claim about all of something can't be paid by a part of it."""
    stage = Stage()
    await build_service(store, stage).evaluate(request(raw_output={f"f{n}": n for n in range(40)}, **FLAGGED))
    assert stage.seen[J].incomplete == (EvidenceRole.RAW_OUTPUT,)


async def test_a_map_that_can_not_be_built_sends_the_item_to_a_person(store: Database) -> None:
    """There is nothing to point to, so nobody is asked; that is no reason to give no answer."""

    def broken(_item: LayerInput) -> EvidenceMap:
        raise KeyError("bug")

    stage = Stage()
    result = await build_service(store, stage, options=Options(number=broken)).evaluate(request(**FLAGGED))
    assert stage.asked == [H, G]
    assert (result.disposition, result.decision) == ("review", "question_refused")
    assert result.escalation_reasons == ("heuristics:low_confidence", "preflight:out_of_corpus")


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        pytest.param(Skip(SkipReason.SIDE_EFFECTS), "side_effects", None, id="skip"),
        pytest.param(CircuitOpen("ollama"), "circuit_open", None, id="circuit open"),
        pytest.param(DependencyUnavailable("ollama", "refused", "no"), "failed", "refused", id="dependency"),
        pytest.param(ExceptionGroup("g", [CircuitOpen("x")]), "circuit_open", None, id="from a task group"),
        pytest.param(ConfigurationError("dimension 3, not 768"), "failed", "configuration", id="configuration"),
        pytest.param(TimeoutError("its own"), "failed", "crashed", id="a time-out that is not the deadline's"),
        pytest.param(KeyError("secret"), "failed", "crashed", id="bug"),
    ],
)
async def test_a_layer_s_trouble_is_its_own(store: Database, error: Exception, status: str, kind: str | None) -> None:
    """Whatever a layer raises ends as its outcome, the others go on, and no message of a bug gets out."""
    stage = Stage({D: raises(error)})
    result = await build_service(store, stage).evaluate(request(**FLAGGED))
    assert statuses(result)[D] == status
    cause = result.layers[D].cause
    assert (cause.kind if cause else None) == kind
    assert "secret" not in result.model_dump_json()
    assert result.judge_verdict is not None
    assert result.degraded is (status != "side_effects")


async def test_a_layer_that_gives_no_finding_has_crashed(store: Database) -> None:
    """A wrong type is caught where it is made."""
    stage = Stage({D: gives({"not": "a finding"})})  # type: ignore[arg-type]
    result = await build_service(store, stage).evaluate(request(**FLAGGED))
    assert statuses(result)[D] == "failed"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
async def test_a_finding_that_can_not_be_written_down_has_failed(store: Database, bad: float) -> None:
    """A remote's NaN costs its layer, not the record."""
    neighbor = Neighbor(id="n", label="high", similarity=bad, stale=False)
    finding = ConsistencyResult(
        consistent=True, majority_label="high", neighbors=(neighbor,), embedder="e", threshold=0.9
    )
    result = await build_service(store, Stage({C: gives(finding)})).evaluate(request(**FLAGGED))
    assert result.layers[C].cause is not None
    assert (result.layers[C].cause.kind, result.consistency_result, result.degraded) == ("malformed", None, True)


async def test_a_slow_layer_loses_its_own_answer_only(store: Database) -> None:
    """Its deadline ends it; its neighbours and the judge are heard."""
    stage = Stage({D: hangs}, timeouts={D: 0.01})
    result = await build_service(store, stage).evaluate(request(**FLAGGED))
    assert result.layers[D].cause is not None
    assert result.layers[D].cause.kind == "timeout"
    assert statuses(result)[C] == statuses(result)[J] == "scored"


async def test_no_layer_outlasts_the_request(store: Database) -> None:
    """A layer gets what is left of the request's time; with nothing left it is not even started."""
    times = iter([0.0] * 100)
    moment = [0.0]

    def clock() -> float:
        next(times)
        return moment[0]

    async def takes_all(item: LayerInput):
        moment[0] += 100.0
        raise Skip(SkipReason.NO_INPUT)

    stage = Stage({D: takes_all})
    result = await build_service(store, stage, request_timeout=75.0, clock=clock).evaluate(request(**FLAGGED))
    assert J not in stage.asked
    assert result.layers[J].cause is not None
    assert result.layers[J].cause.kind == "timeout"


async def test_nothing_configured_still_answers(store: Database) -> None:
    """A flagged item whose costly layers are missing keeps its flag, and says what was not looked at."""
    result = await build_service(store, Stage(absent=frozenset(COSTLY))).evaluate(request(**FLAGGED))
    assert (result.disposition, result.decision, result.degraded) == ("flag", "no_second_opinion", True)
    assert {statuses(result)[name] for name in COSTLY} == {"not_configured"}


async def test_heuristics_that_could_not_look_give_no_clean_bill(store: Database) -> None:
    """Nothing flagged because nobody looked is inconclusive, and the score is null, not 0."""
    result = await build_service(store, Stage({H: raises(KeyError("bug"))})).evaluate(request())
    assert (result.disposition, result.degraded, result.suspicion_score) == ("inconclusive", True, None)
    assert not result.escalated


async def test_a_grounding_flag_escalates_like_a_heuristic_one(store: Database) -> None:
    """Either of the free layers is enough."""
    stage = Stage({G: gives(NarrativeGroundingResult(ng_flagged=True, stage=2))})
    result = await build_service(store, stage).evaluate(request())
    assert result.escalation_reasons == ("narrative_grounding:ungrounded",)
    assert J in stage.asked


async def test_a_caller_that_hangs_up_stops_the_work_and_leaves_nothing(store: Database) -> None:
    """Cancellation reaches the layers, is no layer's failure, and nothing is stored."""
    started, cancelled = anyio.Event(), anyio.Event()

    async def slow(_item: LayerInput):
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    service = build_service(store, Stage({J: slow}))
    async with anyio.create_task_group() as group:
        group.start_soon(service.evaluate, request(**FLAGGED))
        await started.wait()
        group.cancel_scope.cancel()
    assert cancelled.is_set()
    assert (await service.list(EvaluationFilter())).items == ()


# --- what is asked ----------------------------------------------------------------------------------------------------


async def test_label_and_confidence_are_read_from_a_known_payload(store: Database) -> None:
    """As the system's adapter reads them; what the caller gives wins."""
    stage = Stage()
    service = build_service(store, stage)
    payload = {"label": "high", "confidence": 0.8}
    result = await service.evaluate(request(1, confidence=None, label=None, raw_output=payload))
    seen = stage.seen[H].prediction
    assert (result.label, seen.confidence, seen.metadata) == ("high", 0.8, {"confidence_missing": True})
    await service.evaluate(request(2, confidence=0.5, label=None, raw_output=payload, metadata={"k": 1}))
    seen = stage.seen[H].prediction
    assert (seen.label, seen.confidence, seen.metadata) == ("high", 0.5, {"confidence_missing": True, "k": 1})


@pytest.mark.parametrize(
    ("fields", "pointer", "says"),
    [
        pytest.param({"system": "knwon"}, "/system", "known", id="unknown system"),
        pytest.param({"system": "plain", "label": None}, "/label", "required", id="no label"),
        pytest.param({"system": "plain", "confidence": None}, "/confidence", "required", id="no confidence"),
        pytest.param({"label": None}, "/raw_output", "label is missing", id="nothing to read"),
        pytest.param({"label": None, "raw_output": {"label": ""}}, "/raw_output", "label", id="an empty label read"),
        pytest.param(
            {"confidence": None, "raw_output": {"label": "a", "confidence": 7}}, "/raw_output", "confidence", id="7"
        ),
        pytest.param({"label": "skipped"}, "/label", "nothing was judged", id="not a verdict"),
        pytest.param({"id": "a\0b"}, "/id", "NUL", id="NUL"),
        pytest.param({"raw_output": {"x": float("nan")}}, "", "JSON", id="NaN"),
        pytest.param({"raw_output": {"x": "\ud800"}}, "", "surrogate", id="lone surrogate"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_field(store: Database, fields: dict, pointer: str, says: str) -> None:
    """The refusal points at the field and says why."""
    with pytest.raises(Unprocessable, match=says) as refusal:
        await build_service(store, Stage()).evaluate(request(**fields))
    assert [error.pointer for error in refusal.value.errors] == [pointer]


# --- what is stored ---------------------------------------------------------------------------------------------------


async def test_the_answer_is_what_was_stored(store: Database) -> None:
    """Byte for byte, by id, and in the list."""
    service = build_service(store, Stage())
    answer = await service.evaluate_bytes(request())
    assert await service.get_bytes(answer.evaluation_id) == answer.body
    assert (await service.list(EvaluationFilter())).items == (answer.body,)


@pytest.mark.parametrize("evaluation_id", ["nothing", "", "\0", "\ud800", "x" * 10_000])
async def test_what_is_not_there_is_said_so(store: Database, evaluation_id: str) -> None:
    """Whatever the id looks like."""
    with pytest.raises(NotFound):
        await build_service(store, Stage()).get(evaluation_id)


async def test_a_flagged_answer_survives_the_round_trip(store: Database) -> None:
    """The stored bytes decode to the same values."""
    service = build_service(store, Stage({H: gives(DOUBT)}))
    result = await service.evaluate(request())
    assert await service.get(result.evaluation_id) == result
    assert result.heuristic_result == DOUBT
