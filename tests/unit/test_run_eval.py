"""Scoring from Python: any callable, no server, each failure alone."""

import subprocess
import sys
import threading

import anyio
import pytest

from app.runs import run_eval
from app.runs.dataset import DuplicateExampleIds, EmptyDataset
from layers.errors import CircuitOpen, DependencyMalformed, DependencyUnavailable
from layers.model import EvalDataset, EvalExample, EvalPrediction
from layers.profile import BinaryCollapse, SystemProfile
from tests.runs import Scripted, dataset, prediction

pytestmark = pytest.mark.anyio


async def test_an_async_function_is_asked_about_every_input() -> None:
    async def system(data: dict) -> EvalPrediction:
        return prediction("high" if data["n"] % 2 else "low")

    report = await run_eval(system, dataset(10))
    assert (report.total, report.n_scored, report.correct, report.accuracy) == (10, 10, 5, 0.5)


async def test_a_sync_function_runs_in_threads() -> None:
    """It may block without blocking the loop: four that wait for each other all get through."""
    meeting = threading.Barrier(4, timeout=5)

    def system(_: dict) -> EvalPrediction:
        meeting.wait()
        return prediction("high")

    report = await run_eval(system, dataset(4), concurrency=4)
    assert report.accuracy == 1.0


class AsyncCallable:
    async def __call__(self, _: dict) -> EvalPrediction:
        return prediction("high")


async def test_objects_are_taken_too() -> None:
    """With an async `__call__`, or a `predict` that gets the whole example."""
    assert (await run_eval(AsyncCallable(), dataset(3))).accuracy == 1.0
    system = Scripted()
    assert (await run_eval(system, dataset(3))).accuracy == 1.0
    assert system.asked == {"e0": 1, "e1": 1, "e2": 1}


async def test_plain_dicts_are_a_dataset() -> None:
    examples = [{"input": {"a": 1}, "expected_label": "high"}, EvalExample(expected_label="low")]
    report = await run_eval(AsyncCallable(), examples)
    assert (report.total, report.correct) == (2, 1)


async def test_a_dataset_as_it_stands_in_a_file_is_taken() -> None:
    report = await run_eval(AsyncCallable(), {"examples": [{"input": {}, "expected_label": "high"}]})
    assert report.accuracy == 1.0


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("examples.json", TypeError),
        (b"[]", TypeError),
        (3, TypeError),
        (None, TypeError),
        (["a"], TypeError),
        ([None], TypeError),
        ({"examples": "abc"}, TypeError),
        ({"examples": [["input", {}]]}, TypeError),
        ({"rows": []}, ValueError),
        ({"examples": [], "name": "x"}, ValueError),
    ],
)
async def test_what_is_no_dataset_is_refused_in_words(given: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^(a dataset|an example) "):
        await run_eval(AsyncCallable(), given)  # type: ignore[arg-type]


async def test_each_failure_is_counted_by_its_cause_and_the_rest_goes_on() -> None:
    """An error is never a wrong answer and never left out."""

    async def system(data: dict) -> object:
        match data["n"]:
            case 0:
                raise DependencyUnavailable("x", "timeout")
            case 1:
                raise DependencyMalformed("x", "malformed")
            case 2:
                raise ZeroDivisionError
            case 3:
                return "high"
        return prediction("high")

    report = await run_eval(system, dataset(10))
    assert report.failures_by_kind == {"internal": 2, "malformed": 1, "timeout": 1}
    assert (report.n_scored, report.n_failed, report.accuracy) == (6, 4, 1.0)
    assert report.accuracy_bounds.worst == 0.6


async def test_all_failing_gives_a_report_without_figures() -> None:
    async def system(_: dict) -> EvalPrediction:
        raise DependencyUnavailable("x", "refused")

    report = await run_eval(system, dataset(50))
    assert (report.n_failed, report.accuracy) == (50, None)


async def test_an_open_circuit_is_waited_out_and_is_nobodys_result() -> None:
    opened = [True]

    async def system(_: EvalExample) -> EvalPrediction:
        if opened:
            opened.clear()
            raise CircuitOpen("x", retry_after=0.0)
        return prediction("high")

    report = await run_eval(Scripted(system), dataset(5), concurrency=2)
    assert (report.n_scored, report.n_failed) == (5, 0)


async def test_concurrency_is_kept() -> None:
    """As many at a time as allowed, and no more."""
    running, most = 0, 0

    async def system(_: dict) -> EvalPrediction:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1
        return prediction("high")

    await run_eval(system, dataset(40), concurrency=7)
    assert most == 7


async def test_progress_is_told_after_every_example() -> None:
    seen = []
    await run_eval(AsyncCallable(), dataset(5), concurrency=1, on_progress=seen.append)
    assert [progress.n_done for progress in seen] == [1, 2, 3, 4, 5]
    assert {progress.n_total for progress in seen} == {5}


async def test_predictions_come_in_the_datasets_order() -> None:
    async def system(data: dict) -> EvalPrediction:
        for _ in range(5 - data["n"]):
            await anyio.lowlevel.checkpoint()
        return prediction("high", id=str(data["n"]))

    report = await run_eval(system, dataset(5), predictions=True)
    assert [each.id for each in report.predictions or ()] == ["0", "1", "2", "3", "4"]


async def test_a_label_that_is_no_verdict_fails() -> None:
    profile = SystemProfile(name="x", not_verdicts=frozenset({"skipped"}))

    async def system(_: dict) -> EvalPrediction:
        return prediction("skipped")

    assert (await run_eval(system, dataset(2), profile=profile)).failures_by_kind == {"not_a_verdict": 2}


async def test_binary_needs_a_collapse() -> None:
    collapse = BinaryCollapse(keep=frozenset({"low"}), negative="low", positive="high")

    async def system(_: dict) -> EvalPrediction:
        return prediction("critical")

    with pytest.raises(ValueError, match="no binary collapse"):
        await run_eval(system, dataset(2), binary=True)
    report = await run_eval(system, dataset(2), binary=True, profile=SystemProfile(name="x", binary=collapse))
    assert report.accuracy == 0.0
    assert report.binary is not None
    assert report.binary.accuracy == 1.0


async def test_useless_datasets_are_refused() -> None:
    with pytest.raises(EmptyDataset):
        await run_eval(AsyncCallable(), EvalDataset(examples=()))
    with pytest.raises(DuplicateExampleIds):
        await run_eval(AsyncCallable(), [{"id": "a", "expected_label": "x"}] * 2)


def test_importing_it_needs_neither_server_nor_store() -> None:
    """Python callers pay for what they use."""
    heavy = ["fastapi", "sqlalchemy", "dbos", "alembic", "scipy", "numpy", "httpx", "opentelemetry", "uvicorn"]
    code = f"import sys; from app.runs import run_eval; print(*[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
