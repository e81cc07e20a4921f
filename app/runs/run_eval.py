"""Score a system from Python: no server, no store, no model."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import anyio.to_thread

from app.runs.asking import Asker, Item
from app.runs.dataset import check_unique, examples_of, with_ids
from app.runs.executor import Execution, Kept
from app.runs.gate import Gate
from app.runs.limits import Limits, Standing
from app.runs.model import EvalReport, Progress, Record
from app.runs.tally import TallyBuilder
from layers.model import EvalDataset, EvalExample, EvalPrediction, JsonObject
from layers.ports import SystemUnderTest
from layers.profile import SystemProfile

Predict: TypeAlias = Callable[[JsonObject], EvalPrediction] | Callable[[JsonObject], Awaitable[EvalPrediction]]
Dataset: TypeAlias = EvalDataset | Iterable[EvalExample | Mapping[str, Any]] | Mapping[str, Any]
OnProgress: TypeAlias = Callable[[Progress], None]

ANY_SYSTEM = SystemProfile(name="generic")


async def run_eval(
    system_under_test: SystemUnderTest | Predict,
    dataset: Dataset,
    *,
    profile: SystemProfile | None = None,
    binary: bool = False,
    concurrency: int = 16,
    predictions: bool = False,
    slices: Sequence[str] = (),
    on_progress: OnProgress | None = None,
) -> EvalReport:
    """Ask `system_under_test` about every example of `dataset` and report how right it was.

    A dataset is an `EvalDataset`, its examples one by one (as `EvalExample` or as plain mappings), or
    `{"examples": [...]}`.

    It is an object with `async predict(example)`, or a function, sync or async, from an example's input to an
    `EvalPrediction`; a sync one runs in threads. An example that raises is counted as failed, with its cause, and the
    rest goes on. Labels compare exactly unless the `profile` folds them; `binary` adds the reading with the labels
    collapsed as the profile says. `predictions` puts every prediction into the report. Intervals respect the examples'
    groups; `slices` are JSON Pointers into an example (`/input/category`) along which the report is cut.

    Raises `TypeError` or `ValueError` for what is no dataset, `DatasetError` for an empty one or one with duplicate
    ids, `ValueError` for `binary` without a collapse.
    """
    profile = profile or ANY_SYSTEM
    if binary and profile.binary is None:
        raise ValueError(f"the profile {profile.name!r} has no binary collapse")
    if concurrency < 1:
        raise ValueError("concurrency must be at least 1")
    examples = _examples(dataset)
    kept = _Kept(profile, len(examples), on_progress, slices=slices, predictions=predictions)
    asker = Asker(_as_system(system_under_test), profile, Gate(), Standing(), tell_all=True)
    # A failing system is what the caller wants to know about, so nothing ends this before its time.
    limits = Limits(profile.name, len(examples) + 1, unreachable_limit=len(examples) + 1, max_failed_share=1.0)
    items = (Item(position, 0, example) for position, example in enumerate(examples))
    await Execution(asker, limits, min(concurrency, len(examples))).run(items, kept.keep)
    return kept.report(binary=binary)


class _Kept:
    """What is remembered of the records: counts, and predictions only when they are wanted."""

    def __init__(
        self,
        profile: SystemProfile,
        n_total: int,
        on_progress: OnProgress | None,
        *,
        slices: Sequence[str],
        predictions: bool,
    ) -> None:
        from app.runs.analysis import Analysis  # statistics are loaded by those who run something

        self._profile = profile
        self._analysis = Analysis(profile, n_total, slices)
        self._tally = TallyBuilder(profile, n_total)
        self._on_progress = on_progress
        self._predictions: dict[int, EvalPrediction] | None = {} if predictions else None

    async def keep(self, batch: Kept) -> Kept:
        for item, record in batch:
            self._keep_one(item, record)
        return batch

    def _keep_one(self, item: Item, record: Record) -> None:
        example = item.example.model_dump(include={"input", "metadata", "group"})
        self._analysis.add(item.unit, example, [self._analysis.seen(record)])
        if self._predictions is not None and record.prediction is not None:
            self._predictions[item.unit] = record.prediction
        if self._on_progress is not None:
            self._tally.add(record)
            self._on_progress(self._tally.progress())

    def report(self, *, binary: bool) -> EvalReport:
        from app.runs.report import derive_report

        tally, breakdown = self._analysis.tally(), self._analysis.breakdown()
        report = derive_report(tally, self._profile, binary=binary, breakdown=breakdown)
        if self._predictions is None:
            return report
        ordered = tuple(self._predictions[unit] for unit in sorted(self._predictions))
        return report.model_copy(update={"predictions": ordered})


def _examples(dataset: Dataset) -> list[EvalExample]:
    if isinstance(dataset, EvalDataset):
        examples = list(with_ids(dataset))
    else:
        examples = list(examples_of([_plain(item) for item in _listed(dataset)]))
    check_unique(example.id or "" for example in examples)
    return examples


def _listed(dataset: Any) -> Iterable[Any]:
    if isinstance(dataset, Mapping):
        if set(dataset) != {"examples"}:
            raise ValueError('a dataset that is a mapping has the one key "examples"')
        dataset = dataset["examples"]
    if isinstance(dataset, (str, bytes, Mapping)) or not isinstance(dataset, Iterable):
        raise TypeError(
            f'a dataset is an EvalDataset, {{"examples": [...]}} or a list of examples, not {type(dataset).__name__}'
        )
    return dataset


def _plain(item: Any) -> JsonObject:
    if isinstance(item, EvalExample):
        return item.model_dump()
    if not isinstance(item, Mapping):
        raise TypeError(f"an example is an EvalExample or a mapping, not {type(item).__name__}")
    return dict(item)


def _as_system(target: SystemUnderTest | Predict) -> SystemUnderTest:
    if hasattr(target, "predict"):
        return target
    return _Function(target)


class _Function:
    """A plain function as a system under test."""

    def __init__(self, function: Predict) -> None:
        self._function = function
        call = getattr(function, "__call__", function)  # noqa: B004 - an object's method tells whether it is async
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)

    async def predict(self, example: EvalExample) -> EvalPrediction:
        if self._is_async:
            answer: Any = self._function(example.input)
        else:
            answer = await anyio.to_thread.run_sync(self._function, example.input)
        if inspect.isawaitable(answer):
            answer = await answer
        return cast(EvalPrediction, answer)  # whatever it is, the asker looks
