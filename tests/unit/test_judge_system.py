"""The judge measured like any other system: what it said is scored, and its silence never is."""

import pytest

from app.runs.judge_system import JudgeSystem
from app.runs.run_eval import run_eval
from layers.errors import CircuitOpen, DependencyRejected, DependencyUnavailable
from layers.model import (
    Claim,
    EvalDataset,
    EvalExample,
    EvalPrediction,
    InstrumentPath,
    JudgeAttempt,
    JudgeVerdict,
    Rung,
    SkipReason,
)
from layers.ports import LayerInput, Skip
from layers.profile import SystemProfile

pytestmark = pytest.mark.anyio
PROFILE = SystemProfile(name="sentinel-l7", labels=("low", "high"), elevated=frozenset({"high"}))


def verdict(label: str | None, *attempts: JudgeAttempt) -> JudgeVerdict:
    source = InstrumentPath.OLLAMA if label else InstrumentPath.HEURISTICS_FALLBACK
    claims = (Claim(text="x", evidence_ids=("E1",), rung=Rung.ANCHOR_WARRANTED),) if label else ()
    return JudgeVerdict(
        source=source,
        verdict_label=label,
        agrees=None,
        confidence=0.7 if label else None,
        reasoning=None,
        claims=claims,
        attempts=attempts,
    )


def failed(kind: str, outcome: str = "failed") -> JudgeAttempt:
    return JudgeAttempt(source=InstrumentPath.OLLAMA, outcome=outcome, error_type=kind, elapsed_ms=1.0)


class Bench:
    """A judge that says what it was told to, and keeps what it was shown."""

    def __init__(self, said: JudgeVerdict | Exception) -> None:
        self.said = said
        self.seen: list[LayerInput] = []

    async def __call__(self, item: LayerInput) -> JudgeVerdict:
        self.seen.append(item)
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


def example(label: str = "low", expected: str = "high", *, name: str = "1", of: str | None = None) -> EvalExample:
    recorded = EvalPrediction(id=of or name, raw_output={"risk_level": label}, label=label, confidence=0.9)
    return EvalExample(id=name, input={"amount": 5}, expected_label=expected, prediction=recorded)


async def test_the_judges_label_is_scored_and_its_instrument_path_stands_on_the_record() -> None:
    judge = Bench(verdict("high"))
    prediction = await JudgeSystem(judge, PROFILE).predict(example())
    assert (prediction.label, prediction.confidence) == ("high", 0.7)
    assert prediction.metadata["instrument_path"] == "ollama"
    assert prediction.metadata["assurance"] == "ANCHOR-WARRANTED"
    assert prediction.metadata["judged_label"] == "low"


async def test_an_unflagged_prediction_is_judged_too_on_numbered_evidence() -> None:
    judge = Bench(verdict("low"))
    await JudgeSystem(judge, PROFILE).predict(example())
    assert [piece.id for piece in judge.seen[0].evidence][:2] == ["E1", "E2"]


@pytest.mark.parametrize(
    ("said", "error", "kind"),
    [
        pytest.param(verdict(None, failed("timeout")), DependencyUnavailable, "timeout", id="an outage"),
        pytest.param(verdict(None, failed("not_a_label")), DependencyRejected, "not_a_label", id="no valid label"),
        pytest.param(
            verdict(None, failed("circuit_open", "skipped")), CircuitOpen, "circuit_open", id="all circuits open"
        ),
        pytest.param(Skip(SkipReason.NOT_CONFIGURED), DependencyRejected, "not_configured", id="no judge"),
    ],
)
async def test_a_chain_that_fell_back_is_a_failure_and_never_a_verdict(said, error, kind) -> None:
    with pytest.raises(error) as caught:
        await JudgeSystem(Bench(said), PROFILE).predict(example())
    assert caught.value.kind == kind


async def test_an_example_without_a_prediction_has_nothing_to_judge() -> None:
    with pytest.raises(DependencyRejected, match="no `prediction`"):
        await JudgeSystem(Bench(verdict("low")), PROFILE).predict(EvalExample(id="1", expected_label="low"))


async def test_a_prediction_of_another_item_is_not_judged() -> None:
    """Its verdict would count for this one."""
    judge = Bench(verdict("high"))
    with pytest.raises(DependencyRejected) as caught:
        await JudgeSystem(judge, PROFILE).predict(example(of="2"))
    assert caught.value.kind == "foreign_prediction"


async def test_verdicts_are_scored_against_the_labels_and_failures_counted_apart() -> None:
    examples = (example(expected="high"), example(expected="low", name="2"))
    report = await run_eval(JudgeSystem(Bench(verdict("high")), PROFILE), EvalDataset(examples=examples))
    assert (report.correct, report.n_scored, report.n_failed) == (1, 2, 0)
