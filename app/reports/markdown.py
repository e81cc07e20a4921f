"""A report as GitHub's Markdown, for pull requests and job summaries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from app.gates.render_markdown import code
from app.reports import text
from app.reports.view import Case, Json, ReportView
from app.runs.contrasts import Comparison, LabelContrast
from app.runs.figures import Interval, Reliability, Scores, Slice, Undefined

MAX_WORST = 10
MAX_IDS = 10
MAX_TEXT = 2_000
"""Characters of an input or raw output; a comment on a pull request has room for 65,536 in all."""

_VERDICTS = {
    "better": "better than the baseline",
    "worse": "worse than the baseline",
    "no_difference_shown": "no difference is shown",
    "nothing_to_compare": "nothing to compare",
}


def render_markdown(view: ReportView) -> str:
    """The whole report. Text that others wrote stands in code, where nothing is made of it."""
    report = view.report
    parts: list[Iterable[str]] = [_heading(view), _scores(report), _undefined(report.undefined)]
    if report.binary is not None:
        parts.append(["## Labels collapsed to two", "", *_scores(report.binary)])
    if report.calibration is not None:
        parts.append(_calibration(report.calibration))
    parts += [_slice(one) for one in report.slices]
    if view.comparison is not None:
        parts.append(_comparison(view.comparison))
    parts += [_worst(view), _failures(view), _provenance(view)]
    return "\n\n".join("\n".join(part).strip("\n") for part in map(list, parts) if part) + "\n"


def _heading(view: ReportView) -> Iterator[str]:
    run = view.run
    yield f"# Report: {code(run.system)} {code(run.name) if run.name else ''}".rstrip()
    yield ""
    yield f"Run {code(run.run_id)} {run.status.value}, {text.count(view.report.total)} questions."
    if run.failure is not None:
        yield f"It could not go on: {code(run.failure.message)}"


def _scores(scores: Scores) -> Iterator[str]:
    clustered = scores.intervals.accuracy_clustered
    interval = clustered.interval if clustered else scores.intervals.accuracy
    if scores.accuracy is None:
        yield f"**Accuracy is undefined**: 0 of {text.count(scores.total)} scored."
    else:
        yield (
            f"**Accuracy {text.percent(scores.accuracy)}** (95 % interval {text.between(interval)}, "
            f"{text.count(scores.correct)} of n = {text.count(scores.n_scored)})"
        )
    if scores.total > scores.n_scored:
        bounds = scores.accuracy_bounds
        yield (
            f"{text.count(scores.total - scores.n_scored)} are not scored; over all questions accuracy would be "
            f"{text.percent(bounds.worst)} to {text.percent(bounds.best)}."
        )
    yield ""
    yield from _per_label(scores)
    yield ""
    yield from _confusion(scores)


def _per_label(scores: Scores) -> Iterator[str]:
    ends = {one.label: one for one in scores.intervals.per_label}
    yield from _head("label", "precision", "recall", "F1", "support")
    for row in scores.per_label:
        mine = ends.get(row.label)
        yield _row(
            code(row.label),
            _share(row.precision, mine.precision if mine else None),
            _share(row.recall, mine.recall if mine else None),
            _share(row.f1, mine.f1 if mine else None),
            text.count(row.support),
        )


def _confusion(scores: Scores) -> Iterator[str]:
    labels = scores.confusion.labels
    if not labels:
        return
    yield from _head("expected \\ predicted", *map(code, labels))
    for label, cells in zip(labels, scores.confusion.matrix, strict=True):
        yield _row(code(label), *map(text.count, cells))
    if scores.confusion.n_omitted:
        yield ""
        yield f"{text.count(scores.confusion.n_omitted)} rarer labels are not shown."


def _undefined(items: Sequence[Undefined]) -> Iterator[str]:
    for item in items:
        of = f" of {code(item.label)}" if item.label is not None else ""
        yield f"- undefined: {code(item.metric)}{of}: {item.reason}"


def _calibration(figures: Reliability) -> Iterator[str]:
    yield "## Calibration"
    yield ""
    yield (
        f"Brier score {text.figure(figures.brier_score)}, expected calibration error "
        f"{text.figure(figures.expected_calibration_error)}, n = {text.count(figures.n)}"
    )
    yield ""
    yield from _head("confidence", "mean", "right", "n")
    for one in figures.bins:
        if one.n:
            share = _share(one.accuracy, one.interval)
            yield _row(f"{one.low:.1f}–{one.high:.1f}", text.percent(one.confidence), share, text.count(one.n))


def _slice(part: Slice) -> Iterator[str]:
    yield f"## Slice {code(part.path)}"
    yield ""
    if part.reason:
        yield part.reason
        return
    yield from _head("value", "accuracy", "stands out", "p", "scored", "failed")
    for value in part.values:
        yield _row(
            code(text.scalar(value.value)),
            _share(value.accuracy, value.interval),
            value.flag or "no",
            text.p_value(value.p_adjusted),
            text.count(value.n_scored),
            text.count(value.n_failed),
        )


def _comparison(made: Comparison) -> Iterator[str]:
    strict = made.strict
    yield "## Comparison with the baseline"
    yield ""
    yield f"Baseline {code(made.baseline_run_id)}, {text.count(made.pairs.n_paired)} examples paired by id."
    for warning in made.warnings:
        yield from ("", f"> **Warning:** {code(warning)}", "")
    if strict.interval is None:
        yield "No pair of examples could be compared."
        return
    yield (
        f"**{text.points(strict.difference)} points** ({_ends(strict.interval)}): {_VERDICTS[strict.verdict]}; "
        f"{text.count(strict.corrected)} corrected, {text.count(strict.broke)} broke, exact p "
        f"{text.p_value(strict.p_exact)}, n = {text.count(strict.n)} pairs."
    )
    yield ""
    yield from _contrasts(made.per_label)
    for name, listed in (("broke", made.pairs.broke), ("corrected", made.pairs.corrected)):
        if listed.count:
            yield ""
            more = " …" if listed.count > MAX_IDS else ""
            yield f"{name}: {' '.join(map(code, listed.ids[:MAX_IDS]))}{more}"


def _contrasts(rows: Sequence[LabelContrast]) -> Iterator[str]:
    yield from _head("label", "difference", "corrected", "broke", "p", "pairs")
    for row in rows:
        yield _row(
            code(row.label),
            f"{text.points(row.difference)} ({_ends(row.interval)})" if row.interval else "–",
            text.count(row.corrected),
            text.count(row.broke),
            text.p_value(row.p_adjusted),
            text.count(row.n),
        )


def _worst(view: ReportView) -> Iterator[str]:
    if not view.n_wrong:
        return
    yield "## Wrong predictions"
    yield ""
    shown = view.worst[:MAX_WORST]
    yield f"{text.count(view.n_wrong)} of {text.count(view.report.n_scored)} scored; the gravest {len(shown)}:"
    for case in shown:
        yield ""
        yield from _case(case)


def _failures(view: ReportView) -> Iterator[str]:
    if not view.failures:
        return
    yield "## Failures by cause"
    yield ""
    yield from _head("cause", "examples", "for example")
    for cause in view.failures:
        some = " ".join(f"{code(case.record.example_id)} {code(_message(case))}" for case in cause.cases[:1])
        yield _row(code(cause.kind), text.count(cause.count), some)


def _message(case: Case) -> str:
    return case.record.error.message if case.record.error else ""


def _case(case: Case) -> Iterator[str]:
    record = case.record
    yield "<details><summary>"
    yield ""
    yield f"{code(record.example_id)} expected {code(record.expected_label)}, predicted {code(record.scored_label)}"
    yield ""
    yield "</summary>"
    for name, value in (("Input", case.input), ("Raw output", case.raw_output)):
        if value is not None:
            yield ""
            yield f"{name}:"
            yield ""
            yield from _block(value)
    yield ""
    yield "</details>"


def _block(value: Json) -> Iterator[str]:
    shown = text.visible(value.text[:MAX_TEXT])
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    yield f"{fence}json"
    yield shown
    yield fence
    if omitted := value.omitted + len(value.text) - len(value.text[:MAX_TEXT]):
        yield ""
        yield f"{text.count(omitted)} more characters"


def _provenance(view: ReportView) -> Iterator[str]:
    run = view.run
    options = ", ".join(f"{name} {code(value)}" for name, value in run.options if value is not None)
    yield "## Provenance"
    yield ""
    yield f"- dataset {code(run.dataset_id)}"
    yield f"- configuration {code(run.system)}, {options}, attempt {run.attempts}"
    for name, value in run.labels.items():
        yield f"- {code(name)} {code(value)}"
    yield f"- code version {code(run.code_version)}"
    yield f"- accepted {text.moment(run.created_at)}, ended {text.moment(run.finished_at)}"
    yield f"- made {text.moment(view.made_at)} by Arbiter-L8 {code(view.made_by)} from the run's records"


def _head(first: str, *others: str) -> Iterator[str]:
    yield _row(first, *others)
    yield "|---|" + "---:|" * len(others)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _share(value: float | None, interval: Interval | None) -> str:
    return text.percent(value) if value is None else f"{text.percent(value)} ({text.between(interval)})"


def _ends(interval: Interval) -> str:
    return f"{text.points(interval.low)} to {text.points(interval.high)}"
